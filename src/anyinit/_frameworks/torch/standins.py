"""Shapes of results where PyTorch's own rule without data is slow or missing.

``STAND_INS[name](*args)`` gives a result of the right shape for meta arguments, or ``NotImplemented``
where the arguments are not plainly right, so that PyTorch itself says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

STAND_INS: dict[str, Callable[..., Any]] = {}


def stand_in(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a shape rule."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        STAND_INS.update(dict.fromkeys(names, fn))
        return fn

    return register


@stand_in("batch_norm", "instance_norm")
def _batch_norm(x: Tensor, weight: Tensor | None = None, *rest: Any, **options: Any) -> Any:
    fits = x.ndim >= 2 and (weight is None or weight.shape == x.shape[1:2])
    return torch.empty_like(x) if fits else NotImplemented


@stand_in("layer_norm", "rms_norm")
def _layer_norm(x: Tensor, normalized_shape: Sequence[int], *rest: Any, **options: Any) -> Any:
    fits = tuple(x.shape[-len(normalized_shape) :]) == tuple(normalized_shape)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device) if fits else NotImplemented


@stand_in("_grouped_mm")
def _grouped_mm(a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if a.ndim != 2 or b.ndim != 3 or a.shape[1] != b.shape[1]:
        return NotImplemented
    return a.new_empty((a.shape[0], b.shape[2]), dtype=out_dtype or a.dtype)

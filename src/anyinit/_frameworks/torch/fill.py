"""One PyTorch tensor filled in place, for modules that write their own ``reset_parameters``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from anyinit._core.layer import layer_std
from anyinit.errors import ConfigError


def fill(
    tensor: torch.Tensor,
    role: str,
    activation: Any,
    fan: int | None,
    generator: torch.Generator | None,
    params: Mapping[str, Any],
) -> torch.Tensor:
    """See :func:`anyinit.init_`."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        kind = getattr(tensor, "dtype", type(tensor).__name__)
        raise ConfigError("Not a tensor of real numbers", value=kind, remedy="Pass a float parameter.")
    if fan is None and tensor.ndim < 2:
        raise ConfigError(
            "The fan of a vector is unknown", value=tuple(tensor.shape), remedy="Pass fan=, the terms in one output."
        )
    terms = math.prod(tensor.shape[1:]) if fan is None else fan
    std = layer_std(role, terms, activation, dict(params))
    with torch.no_grad():
        return tensor.normal_(0.0, std, generator=generator) if std else tensor.zero_()

"""Giving lazy parameters their shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from anyinit._frameworks.torch import adapters, guard
from anyinit._frameworks.torch.inputs import Inputs
from anyinit.errors import TraceError


def materialize(model: nn.Module, inputs: Inputs, forward: Callable[..., Any] | None) -> None:
    """Run a lazy model once on its input, which is how PyTorch gives its parameters shapes.

    The random state and all buffers that existed before are kept.
    """
    if not adapters.is_lazy(model):
        return
    kept = [(b, b.detach().clone()) for b in model.buffers() if not isinstance(b, nn.parameter.UninitializedBuffer)]
    flags = [(m, m.training) for m in model.modules()]
    with guard.rng_kept(), torch.no_grad():
        try:
            model.eval()  # running statistics stay what they are
            inputs.call(model, forward, inputs.real())
        except Exception as error:
            raise TraceError(
                f"The lazy model could not be run to learn its shapes: {type(error).__name__}: {error}",
                value={name: tuple(leaf.shape) for name, leaf in inputs.named()},
                remedy="Check the shape and type of the input.",
            ) from error
        finally:
            for module, flag in flags:
                module.training = flag
            for buffer, old in kept:
                buffer.copy_(old)

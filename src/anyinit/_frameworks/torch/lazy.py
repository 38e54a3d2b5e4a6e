"""Giving lazy parameters their shapes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from anyinit._frameworks.torch import adapters, guard
from anyinit._frameworks.torch.inputs import Inputs
from anyinit.errors import TraceError


def materialize(model: nn.Module, inputs: Inputs, forward: Callable[..., Any] | None) -> None:
    """Run a lazy model once on its input, which is how PyTorch gives its parameters shapes.

    The random state and all buffers that existed before are kept; a run that fails leaves the model lazy.
    """
    if not adapters.is_lazy(model):
        return
    kept = [(b, b.detach().clone()) for b in model.buffers() if not isinstance(b, nn.parameter.UninitializedBuffer)]
    flags = [(m, m.training) for m in model.modules()]
    before = _lazy_parts(model)
    with guard.rng_kept(), torch.no_grad():
        try:
            model.eval()  # running statistics stay what they are
            inputs.call(model, forward, inputs.real())
        except Exception as error:
            _restore(*before)
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


Modules = list[tuple[nn.Module, type, dict[str, Any]]]
Tensors = list[tuple[torch.Tensor, type]]


def _lazy_parts(model: nn.Module) -> tuple[Modules, Tensors]:
    """Classes and attributes of the lazy modules, and the classes of tensors without shape."""
    lazy = [m for m in model.modules() if isinstance(m, nn.modules.lazy.LazyModuleMixin)]
    modules = [(m, type(m), {k: copy.copy(v) if isinstance(v, dict) else v for k, v in vars(m).items()}) for m in lazy]
    shapeless = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
    tensors = [t for m in model.modules() for t in (*m._parameters.values(), *m._buffers.values())]
    return modules, [(t, type(t)) for t in tensors if isinstance(t, shapeless)]


def _restore(modules: Modules, tensors: Tensors) -> None:
    for module, kind, attributes in modules:
        module.__class__ = kind
        vars(module).clear()
        vars(module).update(attributes)
    for tensor, kind in tensors:
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        tensor.__class__ = kind

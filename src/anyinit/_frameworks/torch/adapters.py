"""The one list of classes and switches that must be known to run a model at all.

Nothing here decides what is drawn: it only says how to call a model, and what to switch off so
that its operations are executed one by one. Two more files know classes, for the same purpose:
:mod:`effective` (weights computed from other parameters) and :mod:`infer` (an input for a model that
came without one).
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn


def is_lazy(model: nn.Module) -> bool:
    """Whether any parameter or buffer still waits for its first input to take shape."""
    lazy = nn.parameter.UninitializedTensorMixin
    return any(isinstance(t, lazy) for m in model.modules() for t in (*m._parameters.values(), *m._buffers.values()))


def callee(model: nn.Module) -> nn.Module:
    """The module to call: the one inside a compiled wrapper, whose compilation would hide its operations,
    or inside a data-parallel one, which would move the batch."""
    inner = getattr(model, "_orig_mod", None)
    if isinstance(inner, nn.Module):
        return callee(inner)
    if isinstance(model, nn.DataParallel) or type(model).__name__ in ("DistributedDataParallel",):
        return callee(model.module)
    return model


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module behind wrappers, where its first layers and its config are looked for."""
    return callee(model)


@contextmanager
def plain_execution() -> Generator[None]:
    """Fused fast paths and the compiler are off."""
    with ExitStack() as stack:
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def config_of(model: nn.Module) -> Any:
    """A transformers configuration, if the model carries one."""
    return getattr(unwrapped(model), "config", None)

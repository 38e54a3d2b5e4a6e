"""What a model's own code would draw: its modules' ``reset_parameters``, on a copy."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import nn

RESETS = ("reset_parameters", "_reset_parameters")


def redrawn(model: nn.Module, names: Collection[str], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Values of the named parameters after every module of a copy has drawn its own again.

    Modules reset from the inside out, as they are built; a model that initializes its modules from outside
    (``_init_weights``, as in Transformers) does so afterwards. What no module draws again keeps its value.
    The model and the random state are left as they are.
    """
    import torch

    from anyinit._frameworks.torch import weights

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed % 2**63)
        fresh = copy.deepcopy(model)
        for module in reversed([m for m in fresh.modules() if m is not fresh]):
            _reset(module)
        _reset(fresh)
        for owner in fresh.modules():
            outside = getattr(owner, "_init_weights", None)
            if callable(outside):
                owner.apply(outside)
                break
        return weights.read(fresh, names)


def _reset(module: nn.Module) -> None:
    for name in RESETS:
        method = getattr(module, name, None)
        if callable(method):
            method()
            return

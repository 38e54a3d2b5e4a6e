"""A PyTorch activation (function, module or module class) as a NumPy function in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def evaluator(target: Any, params: Mapping[str, Any]) -> Callable[[NDArray[np.float64]], Any]:
    """``target(**params)`` for a module class, a float64 copy of a module, or ``target(x, **params)``."""
    if isinstance(target, type):
        with preserved(), torch.device("cpu"):
            call = target(**params).to(torch.float64)
    elif isinstance(target, torch.nn.Module):
        call = copy.deepcopy(target).to("cpu", torch.float64)
    else:

        def call(x: torch.Tensor) -> Any:
            return target(x, **params)

    def evaluate(x: NDArray[np.float64]) -> Any:
        with torch.no_grad():
            out = call(torch.tensor(x, device="cpu"))
        return out.detach().cpu().resolve_conj().numpy() if isinstance(out, torch.Tensor) else out

    return evaluate


@contextmanager
def preserved() -> Generator[None]:
    """Restore the global random state on leaving."""
    state = torch.random.get_rng_state()
    try:
        yield
    finally:
        torch.random.set_rng_state(state)

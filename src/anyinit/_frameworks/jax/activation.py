"""A JAX activation (function, Equinox or Flax module, or their classes) as a NumPy function in float64."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

_SMALLEST = 1024


def evaluator(target: Any, params: Mapping[str, Any]) -> Callable[[NDArray[np.float64]], Any]:
    """``target(**params)`` for a class, the module itself, or ``target(x, **params)`` for a function.

    Arguments are padded to a power of two, so that only a handful of shapes is ever compiled.
    """
    made = target(**params) if isinstance(target, type) else target
    rest: Mapping[str, Any] = {} if isinstance(target, type) else params

    def call(x: Any) -> Any:
        if hasattr(made, "init_with_output"):  # linen
            return made.init_with_output(jax.random.key(0), x, **rest)[0]
        return made(x, **rest)

    def evaluate(x: NDArray[np.float64]) -> Any:
        size = max(_SMALLEST, 1 << (x.size - 1).bit_length()) if x.size else 0
        padded = np.pad(x, (0, size - x.size), mode="edge") if x.size else x
        with _double():
            out = np.asarray(call(jax.numpy.asarray(padded, dtype="float64")))
        return out[: x.size] if out.shape == padded.shape else out

    return evaluate


def _double() -> AbstractContextManager[Any]:
    """64-bit mode for this call only, under whichever name this version of JAX has for it."""
    enable = getattr(jax, "enable_x64", None)
    if enable is None:
        from jax.experimental import enable_x64 as enable
    return enable(True)


@contextmanager
def preserved() -> Generator[None]:
    """JAX keeps no global random state."""
    yield

"""Check that a callable is a deterministic, real, elementwise function before anything is computed from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from anyinit.errors import ActivationError

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
Guard = Callable[[], AbstractContextManager[object]]

_TOLERANCE = 1e-6  # far above float32 rounding, far below any dependence on neighbours worth the name


def scalar_function(fn: Callable[..., object], label: str) -> Function:
    """Wrap ``fn`` so that any array goes in flat and comes back as float64 of its own shape.

    Args:
        fn: takes a one-dimensional float64 array and returns as many real numbers (or one, a constant).
        label: how messages call it.
    Raises:
        ActivationError: ``fn`` raised, or returned something of another shape or no real numbers.
    """

    def call(x: Array) -> Array:
        flat = np.ascontiguousarray(x, np.float64).reshape(-1)
        try:
            with np.errstate(all="ignore"):
                out = np.asarray(fn(flat))
        except ActivationError:
            raise
        except Exception as error:
            raise ActivationError(
                f"The activation {label} could not be evaluated on a one-dimensional float64 array",
                value=f"{type(error).__name__}: {error}",
                remedy="It must accept an array of any shape and return one of the same shape.",
            ) from error
        return _real(out, flat, label).reshape(x.shape)

    return call


def _real(out: NDArray[np.generic], flat: Array, label: str) -> Array:
    if out.dtype.kind not in "fiub":
        raise ActivationError(f"The activation {label} does not return real numbers", value=str(out.dtype))
    if out.shape not in ((), flat.shape):
        raise ActivationError(
            f"The activation {label} is not elementwise: its result has another shape than its argument",
            value=f"{flat.shape} -> {out.shape}",
            remedy="Only functions that act on each number by itself have a profile.",
        )
    return np.broadcast_to(out, flat.shape).astype(np.float64)


def check(f: Function, label: str, guard: Guard = nullcontext) -> None:
    """Refuse a function that is random, not elementwise or NaN at ordinary arguments.

    Args:
        f: a wrapped function (:func:`scalar_function`).
        label: how messages call it.
        guard: a context that restores the random state the calls may consume.
    Raises:
        ActivationError: naming which of the three it is.
    """
    x = np.sort(np.random.default_rng(20240229).uniform(-6.0, 6.0, 61))
    with guard():
        first, second, alone = f(x), f(x), np.concatenate([f(x[i : i + 1]) for i in range(0, 61, 12)])
        part, mixed = f(x[20:27]), f(np.concatenate([x[::-1], [37.0, -53.0]]))[60::-1]
    if not np.array_equal(first, second, equal_nan=True):
        i = int(np.argmax(~np.isclose(first, second, rtol=0.0, atol=0.0, equal_nan=True)))
        raise ActivationError(
            f"The activation {label} is random: two calls on the same argument differ",
            value=f"f({x[i]:.4g}) = {first[i]:.6g} and {second[i]:.6g}",
            remedy="Describe dropout and other noise as layers of the model, not as an activation.",
        )
    _refuse_nan(first, x, label)
    scale = _TOLERANCE * float(np.max(np.abs(first[np.isfinite(first)]), initial=1e-300))
    for other, mine in ((alone, first[::12]), (part, first[20:27]), (mixed, first)):
        with np.errstate(invalid="ignore"):
            same = (other == mine) | (np.abs(other - mine) <= scale)
        if not same.all():
            i = int(np.argmax(~same))
            raise ActivationError(
                f"The activation {label} is not elementwise: its value at a point depends on the other points",
                value=f"{mine[i]:.6g} among some numbers, {other[i]:.6g} among others",
                remedy="Softmax, normalization and gating across channels are layers, not activations.",
            )


def _refuse_nan(y: Array, x: Array, label: str) -> None:
    bad = np.isnan(y)
    if bad.any():
        raise ActivationError(
            f"The activation {label} gives NaN",
            value=f"f({x[int(np.argmax(bad))]:.4g}) = nan",
            remedy="It must be defined on the whole real line; clamp its argument first.",
        )

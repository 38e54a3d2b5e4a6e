"""Constants computed while recording: NumPy meanings of the primitives that make masks and indices.

A primitive missing here is evaluated by JAX itself, which is exact but needs a compilation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Params = Mapping[str, Any]

LIMIT = 1 << 28
"""Largest constant, in bytes, that is computed while recording."""


def _broadcast(p: Params, x: Array) -> Array:
    shape = tuple(int(n) for n in p["shape"])
    view = [1] * len(shape)
    for size, dim in zip(x.shape, p["broadcast_dimensions"], strict=True):
        view[int(dim)] = size
    return np.broadcast_to(x.reshape(view), shape)


def _iota(p: Params) -> Array:
    shape, dim = tuple(int(n) for n in p["shape"]), int(p["dimension"])
    line = np.arange(shape[dim], dtype=p["dtype"]).reshape([-1 if i == dim else 1 for i in range(len(shape))])
    return np.broadcast_to(line, shape)


def _integer_pow(p: Params, x: Array) -> Array:
    return np.power(x, np.asarray(p["y"], x.dtype) if p["y"] >= 0 else p["y"])


def _select(_: Params, which: Array, *cases: Array) -> Array:
    if len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


def _slice(p: Params, x: Array) -> Array:
    steps = p["strides"] or (1,) * x.ndim
    return x[tuple(slice(a, b, s) for a, b, s in zip(p["start_indices"], p["limit_indices"], steps, strict=True))]


def _clamp(_: Params, low: Array, x: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *xs: fn(*xs)


NUMPY: dict[str, Callable[..., Any]] = {
    "add": _plain(np.add), "sub": _plain(np.subtract), "mul": _plain(np.multiply), "neg": _plain(np.negative),
    "max": _plain(np.maximum), "min": _plain(np.minimum), "abs": _plain(np.abs), "sign": _plain(np.sign),
    "eq": _plain(np.equal), "ne": _plain(np.not_equal), "lt": _plain(np.less), "le": _plain(np.less_equal),
    "gt": _plain(np.greater), "ge": _plain(np.greater_equal), "square": _plain(np.square), "sqrt": _plain(np.sqrt),
    "and": _plain(np.bitwise_and), "or": _plain(np.bitwise_or), "not": _plain(np.invert), "copy": _plain(np.asarray),
    "stop_gradient": _plain(np.asarray), "select_n": _select, "clamp": _clamp, "iota": _iota, "slice": _slice,
    "broadcast_in_dim": _broadcast, "integer_pow": _integer_pow,
    "convert_element_type": lambda p, x: x.astype(p["new_dtype"]),
    "reshape": lambda p, x: (x if p["dimensions"] is None else x.transpose(p["dimensions"])).reshape(p["new_sizes"]),
    "squeeze": lambda p, x: x.squeeze(tuple(int(d) for d in p["dimensions"])),
    "expand_dims": lambda p, x: np.expand_dims(x, tuple(int(d) for d in p["dimensions"])),
    "transpose": lambda p, x: x.transpose(p["permutation"]),
    "concatenate": lambda p, *xs: np.concatenate(xs, p["dimension"]),
}  # fmt: skip


ELEMENTWISE = {
    "add", "sub", "mul", "neg", "max", "min", "abs", "sign", "eq", "ne", "lt", "le", "gt", "ge", "square", "sqrt",
    "and", "or", "not", "copy", "stop_gradient", "select_n", "clamp", "integer_pow", "convert_element_type", "div",
}  # fmt: skip
VIEWS = {"broadcast_in_dim", "iota"}
"""Results that take no memory, however large."""


def fold(name: str, params: Params, args: list[Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """The output of one primitive on known ``args``; ``None`` if it is not listed here or too large.

    Elementwise primitives are computed without the repetition in their operands."""
    fn = NUMPY.get(name)
    if name == "div" and np.issubdtype(dtype, np.floating):
        fn = _plain(np.divide)
    if fn is None:
        return None
    small = [_compact(a) for a in args] if name in ELEMENTWISE else args
    size = math.prod(np.broadcast_shapes(*(a.shape for a in small))) if name in ELEMENTWISE else math.prod(shape)
    if size * dtype.itemsize > LIMIT and name not in VIEWS:
        return None
    with np.errstate(all="ignore"):
        out = np.asarray(fn(params, *small))
    return np.broadcast_to(_compact(out).astype(dtype, copy=False), shape)


def _compact(data: Array) -> Array:
    """``data`` with size one along axes that only repeat."""
    return data[
        tuple(slice(0, 1) if n > 1 and not s else slice(None) for n, s in zip(data.shape, data.strides, strict=True))
    ]


def uniform(data: Array) -> Any | None:
    """The one number that fills ``data``, or ``None``."""
    if data.size == 0:
        return None
    first = data.flat[0]
    if data.size == 1 or not any(data.strides):
        return first
    if data.flat[data.size - 1] != first:
        return None
    return first if bool((data == first).all()) else None


def shrunk(data: Array) -> Array:
    """``data`` without repetition: axes along which nothing changes have size one, leading ones are gone."""
    for axis in range(data.ndim):
        first = data[(slice(None),) * axis + (slice(0, 1),)]
        if data.shape[axis] > 1 and (
            not data.strides[axis] or (data.size <= LIMIT >> 3 and bool((data == first).all()))
        ):
            data = first
    ones = next((i for i, n in enumerate(data.shape) if n != 1), data.ndim)
    return data.reshape(data.shape[ones:])


def number(value: Any) -> float:
    """A scalar as a Python float.

    In a type shorter than double many numbers round to the same value; the simplest of them is taken: a
    short decimal (0.1, not 0.10000000149), a square root of an integer or its inverse, a multiple of pi.
    """
    value = np.asarray(value)[()]
    if value.dtype == np.float64 or value.dtype.kind in "iub":
        return float(value)
    if value.dtype.kind == "c":
        return float(value.real)
    short = str(value) if value.dtype.itemsize == 4 else str(np.float32(value))
    if not np.isfinite(value) or len(short.split("e")[0].strip("-").replace(".", "").strip("0")) < 7:
        return float(short)
    return next((c for c in _simple(float(value)) if value.dtype.type(c) == value), float(value))


def _simple(x: float) -> tuple[float, ...]:
    sign = math.copysign(1.0, x)
    square = x * x
    roots = (sign * math.sqrt(round(square)), sign / math.sqrt(max(round(1 / square), 1)))
    turns = (
        (math.pi * round(x / math.pi), math.pi / round(math.pi / x))
        if 0.01 < abs(x) < 100 and round(math.pi / x)
        else ()
    )
    return (
        *roots,
        sign * math.sqrt(2 / math.pi),
        *turns,
        sign * math.sqrt(math.pi),
        sign / math.sqrt(2 * math.pi),
        math.log(2) * sign,
    )

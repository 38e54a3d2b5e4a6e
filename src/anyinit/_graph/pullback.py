"""Vector-Jacobian products of the vocabulary, in float64 NumPy: the meaning of the adjoint rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._core.pointwise import FUNCTIONS
from anyinit._graph import ops
from anyinit._graph.interpret import Shape, apply, gather_index, sorted_index, taps_of, window_index, windows_of

Array = NDArray[Any]
Gradients = tuple[Array | None, ...]
Pullback = Callable[[Any, Sequence[Array], Array, Array], Gradients]
PULLBACK: dict[type[ops.Op], Pullback] = {}

MOVERS: tuple[type[ops.Op], ...] = (
    ops.Reshape, ops.Permute, ops.Expand, ops.Repeat, ops.Slice, ops.Update, ops.Concat, ops.Pad, ops.Shuffle,
    ops.Lookup, ops.Gather, ops.Unfold, ops.Triangle,
)  # fmt: skip
"""Operations that only move entries: their pull-back adds up whatever came from an entry."""


def pull_back(op: ops.Op, inputs: Sequence[Array], output: Array, grad: Array) -> Gradients:
    """Gradient of ``sum(grad * op(inputs))`` with respect to each input; None for integers.

    Args:
        op: the operation.
        inputs: its operands. output: what they gave (a dropout's mask is read from it).
        grad: gradient at the output, of its shape.
    """
    if isinstance(op, MOVERS):
        return _moved(op, inputs, output.shape, grad)
    return PULLBACK[type(op)](op, inputs, output, grad)


def pullback(op: type[ops.Op]) -> Callable[[Pullback], Pullback]:
    """Register the pull-back of an operation."""

    def keep(function: Pullback) -> Pullback:
        PULLBACK[op] = function
        return function

    return keep


def _moved(op: Any, inputs: Sequence[Array], shape: Shape, grad: Array) -> Gradients:
    """Send the number of every entry through the operation; ``-1`` stands for what is no entry."""
    if isinstance(op, ops.Pad):
        op = ops.Pad(op.low, op.high, -1.0, op.mode)
    places: list[Array] = []
    start = 0
    indices = {ops.Lookup: 1, ops.Gather: 1}.get(type(op), len(inputs))
    for x in inputs[:indices]:
        places.append(np.arange(start, start + x.size, dtype=np.float64).reshape(x.shape))
        start += x.size
    if isinstance(op, ops.Triangle):
        places = [p + 1 for p in places]
    came = apply(op, [*places, *inputs[indices:]], shape).astype(np.int64).ravel()
    came = came - 1 if isinstance(op, ops.Triangle) else came
    real = came >= 0
    flat = np.bincount(came[real], weights=grad.ravel()[real], minlength=start)
    sizes = np.cumsum([x.size for x in inputs[:indices]])[:-1]
    parts = np.split(flat, sizes)
    return (*(p.reshape(x.shape) for p, x in zip(parts, inputs, strict=False)), *(None for _ in inputs[indices:]))


def _summed(grad: Array, shape: Shape) -> Array:
    """Sum over what broadcasting repeated."""
    extra = grad.ndim - len(shape)
    grad = grad.sum(tuple(range(extra))) if extra else grad
    wide = tuple(d for d, n in enumerate(shape) if n == 1 and grad.shape[d] > 1)
    return grad.sum(wide, keepdims=True) if wide else grad


@pullback(ops.Pointwise)
def _pointwise(op: ops.Pointwise, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    """Central differences, 1e-6 wide; a jump has no slope."""
    out: list[Array | None] = []
    for i, x in enumerate(xs):
        if np.asarray(x).dtype.kind not in "fc":
            out.append(None)
            continue
        h = 1e-6 * (0.1 + np.abs(x))
        ends: list[Array] = []
        for step in (h, -h):
            operands = iter([*xs[:i], x + step, *xs[i + 1 :]])
            ends.append(FUNCTIONS[op.fn](*(next(operands) if a is None else a for a in op.args)))
        slope = (ends[0] - ends[1]) / (2 * h)
        slope = np.where(np.isfinite(slope) & (np.abs(slope) < 1e4), slope, 0.0)
        out.append(_summed(np.broadcast_to(g * slope, y.shape), x.shape))
    return tuple(out)


def _ordered(x: Array, names: list[int], to: list[int]) -> Array:
    """Dimensions in another order of their labels."""
    return x.transpose([names.index(n) for n in to])


@pullback(ops.Contract)
def _contract(op: ops.Contract, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    a, labels = taps_of(op, xs[0], y.shape)
    to_b = np.einsum(g, list(op.out), a, labels, list(op.b), optimize=True)
    to_a = np.einsum(g, list(op.out), xs[1], list(op.b), labels, optimize=True)
    names = list(labels)
    for w in reversed(op.windows):
        d = op.a.index(w.a)
        at, real = window_index(w, xs[0].shape[d], y.shape[op.out.index(w.out)])
        keep = [n for n in names if n not in (w.out, w.tap)]
        moved = _ordered(to_a, names, [*keep, w.out, w.tap]) * real
        folded = np.zeros((*moved.shape[:-2], xs[0].shape[d]))
        places: Any = (..., at)
        np.add.at(folded, places, moved)
        to_a, names = folded, [*keep, w.a]
    return _ordered(to_a, names, list(op.a)), to_b


def _kept(op: ops.Reduce, v: Array, like: Array) -> Array:
    """A reduced value with its reduced dimensions back, of size one."""
    return v.reshape([1 if d in op.dims else n for d, n in enumerate(like.shape)])


@pullback(ops.Reduce)
def _reduce(op: ops.Reduce, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    x = xs[0]
    y, g = _kept(op, np.asarray(y), x), _kept(op, g, x)
    count = x.size / max(y.size, 1)
    with np.errstate(all="ignore"):
        match op.kind:
            case "sum":
                slope = np.ones_like(x)
            case "mean":
                slope = np.full_like(x, 1 / count)
            case "max" | "min":
                hit = (x == y).astype(np.float64)
                slope = hit / hit.sum(op.dims, keepdims=True)
            case "prod":
                slope = y / x
            case "logsumexp":
                slope = np.exp(x - y)
            case "norm":
                slope = x / y
            case "var" | "std":
                slope = 2 * (x - x.mean(op.dims, keepdims=True)) / (count - op.correction)
                slope = slope if op.kind == "var" else slope / (2 * y)
            case _:
                return (None,)
    return (g * slope,)


@pullback(ops.Pool)
def _pool(op: ops.Pool, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    x = xs[0]
    number = windows_of(op, np.arange(1.0, x.size + 1).reshape(x.shape), y.shape, 0.0).astype(np.int64) - 1
    real = number >= 0
    if op.kind == "avg":
        share = real / (number.shape[-1] if op.count_pad else real.sum(-1, keepdims=True))
    else:
        places = windows_of(op, x, y.shape, -np.inf if op.kind == "max" else 0.0)
        share = places / y[..., None] if op.kind == "lp" else np.eye(places.shape[-1])[places.argmax(-1)]
    flat = np.bincount(number[real], weights=(g[..., None] * share)[real], minlength=x.size)
    return (flat.reshape(x.shape),)


@pullback(ops.Normalize)
def _normalize(op: ops.Normalize, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    x = xs[0] - xs[0].mean(op.dims, keepdims=True) if op.center else xs[0]
    sd = np.sqrt((x**2).mean(op.dims, keepdims=True) + op.eps)
    back = g - y * (g * y).mean(op.dims, keepdims=True)
    return ((back - g.mean(op.dims, keepdims=True) if op.center else back) / sd,)


@pullback(ops.Softmax)
def _softmax(op: ops.Softmax, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    if op.log:
        return (g - np.exp(y) * g.sum(op.dim, keepdims=True),)
    return (y * (g - (y * g).sum(op.dim, keepdims=True)),)


@pullback(ops.Sort)
def _sort(op: ops.Sort, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    out = np.zeros_like(xs[0])
    np.put_along_axis(out, sorted_index(op, xs[0]), g, op.dim)
    return (out,)


@pullback(ops.Cumulate)
def _cumulate(op: ops.Cumulate, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    if op.kind == "prod":
        back = np.flip(np.cumsum(np.flip(g * y, op.dim), op.dim), op.dim)
        return (back / xs[0],)
    return (np.flip(np.cumsum(np.flip(g, op.dim), op.dim), op.dim),)


@pullback(ops.Scatter)
def _scatter(op: ops.Scatter, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    base, src = xs[0], xs[-1]
    at = gather_index(op.dim, base, xs[1:-1])
    if op.kind == "add":
        return (g, *(None for _ in xs[1:-1]), np.broadcast_to(g[at], src.shape))
    number = np.full(base.shape, -1)
    number[at] = np.arange(src.size).reshape(src.shape)
    won = number >= 0
    to_src = np.bincount(number[won], weights=g[won], minlength=src.size).reshape(src.shape)
    return (np.where(won, 0.0, g), *(None for _ in xs[1:-1]), to_src)


@pullback(ops.Dropout)
def _dropout(op: ops.Dropout, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    with np.errstate(all="ignore"):
        return (np.where(xs[0] != 0, g * y / xs[0], 0.0),)


@lru_cache(maxsize=64)
def _matrix(op: ops.Op, before: Shape, after: Shape) -> Array:
    """A linear map with few entries as ``(outputs, inputs)``: one forward pass for each input."""
    count = int(np.prod(before))
    columns = [apply(op, [unit.reshape(before)], after).ravel() for unit in np.eye(count)]
    return np.array(columns).T


def _linear(op: Any, xs: Sequence[Array], y: Array, g: Array) -> Gradients:
    return (np.real(g.conj().ravel() @ _matrix(op, xs[0].shape, y.shape)).reshape(xs[0].shape),)


PULLBACK.update(
    {
        ops.Resize: _linear,
        ops.Spectral: _linear,
        ops.Random: lambda op, xs, y, g: (),
        ops.Fill: lambda op, xs, y, g: (),
    }
)

__all__ = ["MOVERS", "PULLBACK", "pull_back", "pullback"]

"""The vocabulary on numbers: every operation evaluated, and pulled back, in float64 NumPy.

This is the meaning that the statistics rules are checked against and an oracle for importers: a recorded
graph run here must give the values the framework gave. :func:`apply` evaluates one operation,
:func:`anyinit._graph.pullback.pull_back` returns its vector-Jacobian product, :func:`run` evaluates a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._core.pointwise import FUNCTIONS
from anyinit._graph import ops
from anyinit._graph.graph import Graph
from anyinit.errors import AnyInitError

Array = NDArray[Any]
Shape = tuple[int, ...]
Meaning = Callable[[Any, Sequence[Array], Shape, np.random.Generator], Array]
MEANING: dict[type[ops.Op], Meaning] = {}


def apply(op: ops.Op, inputs: Sequence[Array], shape: Shape, rng: np.random.Generator | None = None) -> Array:
    """The operation on numbers.

    Args:
        op: any operation of the vocabulary but :class:`~anyinit._graph.ops.Opaque`.
        inputs: operands, in the order of the node's inputs.
        shape: shape of the output.
        rng: source of chance for :class:`Random` and :class:`Dropout`; fresh entropy when None.

    Raises:
        AnyInitError: the operation has no meaning here.
    """
    meaning = MEANING.get(type(op))
    if meaning is None:
        raise AnyInitError(
            "This operation has no meaning in NumPy", value=op, remedy="Pass one of the vocabulary, or its own meaning."
        )
    return np.asarray(meaning(op, inputs, shape, rng or np.random.default_rng()))


def run(graph: Graph, leaves: Mapping[str, Array], rng: np.random.Generator | None = None) -> dict[int, Array]:
    """Every value of a graph by id; leaves without data of their own are taken from ``leaves`` by name."""
    values: dict[int, Array] = {}
    for i, leaf in graph.leaves.items():
        data = np.asarray(leaves[leaf.name] if leaf.data is None else leaf.data)
        values[i] = data.astype(np.float64) if data.dtype.kind == "f" else data
    for node in graph.nodes:
        shape = graph.values[node.output].shape
        values[node.output] = apply(node.op, [values[i] for i in node.inputs], shape, rng)
    return values


def output_shape(op: ops.Op, inputs: Sequence[Array]) -> Shape:
    """Shape of what :func:`apply` gives; windows are taken as far as they fit."""
    match op:
        case ops.Reshape() | ops.Expand() | ops.Random() | ops.Fill():
            return op.shape
        case ops.Pointwise():
            return np.broadcast_shapes(*(x.shape for x in inputs))
        case ops.Contract():
            pairs = zip(inputs, (op.a, op.b), strict=True)
            sizes = {lab: n for x, labels in pairs for lab, n in zip(labels, x.shape, strict=True)}
            for w in op.windows:
                wide = (sizes[w.a] - 1) * w.spread + 1 + w.pad_low + w.pad_high
                sizes[w.out] = (wide - w.dilation * (w.size - 1) - 1) // w.stride + 1
            return tuple(sizes[lab] for lab in op.out)
        case ops.Pool():
            shape = list(inputs[0].shape)
            for w in op.windows:
                wide = shape[w.dim] + w.pad_low + w.pad_high
                shape[w.dim] = (wide - w.dilation * (w.size - 1) - 1) // w.stride + 1
            return tuple(shape)
        case ops.Reduce():
            kept = [1 if d in op.dims else n for d, n in enumerate(inputs[0].shape)]
            return tuple(n for d, n in enumerate(kept) if op.keepdims or d not in op.dims)
        case _:
            return apply(op, inputs, inputs[0].shape, np.random.default_rng(0)).shape


def meaning(op: type[ops.Op]) -> Callable[[Meaning], Meaning]:
    """Register what an operation does to numbers."""

    def keep(function: Meaning) -> Meaning:
        MEANING[op] = function
        return function

    return keep


def along(dim: int, part: slice, ndim: int) -> tuple[slice, ...]:
    """Index of a stretch of one dimension."""
    return tuple(part if i == dim else slice(None) for i in range(ndim))


# --- arithmetic -------------------------------------------------------------------------------


@meaning(ops.Pointwise)
def _pointwise(op: ops.Pointwise, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    left = iter(xs)
    return np.broadcast_to(FUNCTIONS[op.fn](*(next(left) if a is None else a for a in op.args)), shape)


def window_index(w: ops.Window, n: int, out: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Entry of ``a`` that meets tap ``t`` at output ``o``, as ``(out, taps)``, and whether there is one."""
    o, t = np.arange(out)[:, None], np.arange(w.size)[None]
    at = o * w.stride + t * w.dilation - w.pad_low
    real = (at >= 0) & (at % w.spread == 0) & (at // w.spread < n)
    return np.where(real, at // w.spread, 0), real


def taps_of(op: ops.Contract, a: Array, shape: Shape) -> tuple[Array, list[int]]:
    """The first operand with each window laid out as ``(out, tap)`` dimensions, and its labels."""
    labels = list(op.a)
    for w in op.windows:
        d = labels.index(w.a)
        at, real = window_index(w, a.shape[d], shape[op.out.index(w.out)])
        a = np.moveaxis(a, d, -1)[..., at] * real
        labels = [*labels[:d], *labels[d + 1 :], w.out, w.tap]
    return a, labels


@meaning(ops.Contract)
def _contract(op: ops.Contract, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    a, labels = taps_of(op, xs[0], shape)
    return np.einsum(a, labels, xs[1], list(op.b), list(op.out), optimize=True)


@meaning(ops.Reduce)
def _reduce(op: ops.Reduce, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    x, dims, keep = xs[0], op.dims, op.keepdims
    match op.kind:
        case "norm":
            return np.sqrt((np.abs(x) ** 2).sum(dims, keepdims=keep))
        case "var" | "std":
            return getattr(np, op.kind)(x, dims, keepdims=keep, ddof=op.correction)
        case "logsumexp":
            top = x.max(dims, keepdims=True)
            out = top + np.log(np.exp(x - top).sum(dims, keepdims=True))
            return out if keep else out.reshape(shape)
        case "argmax":
            moved = np.moveaxis(x, dims, range(-len(dims), 0))
            flat = moved.reshape(*moved.shape[: x.ndim - len(dims)], -1)
            return flat.argmax(-1).reshape(shape)
        case _:
            return getattr(np, op.kind)(x, axis=dims, keepdims=keep).astype(np.float64)


def pooled_index(w: ops.PoolWindow, n: int, out: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Entry under place ``t`` of window ``o``, as ``(out, size)``, and whether it is no padding."""
    at = np.arange(out)[:, None] * w.stride + np.arange(w.size)[None] * w.dilation - w.pad_low
    real = (at >= 0) & (at < n)
    return np.where(real, at, 0), real


def windows_of(op: ops.Pool, x: Array, shape: Shape, fill: float) -> Array:
    """All windows laid out: their places are the last dimensions, padding holds ``fill``."""
    for w in op.windows:
        at, real = pooled_index(w, x.shape[w.dim], shape[w.dim])
        x = np.where(real, np.moveaxis(x, w.dim, -1)[..., at], fill)
        x = np.moveaxis(x, -2, w.dim)
        x = np.moveaxis(x, -1, len(shape)) if x.ndim > len(shape) + 1 else x
    return x.reshape(*shape, -1)


@meaning(ops.Pool)
def _pool(op: ops.Pool, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    if op.kind == "max":
        return windows_of(op, xs[0], shape, -np.inf).max(-1)
    places = windows_of(op, xs[0], shape, 0.0)
    if op.kind == "lp":
        return np.sqrt((places**2).sum(-1))
    count = places.shape[-1] if op.count_pad else windows_of(op, np.ones_like(xs[0]), shape, 0.0).sum(-1)
    return places.sum(-1) / count


@meaning(ops.Normalize)
def _normalize(op: ops.Normalize, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    x = xs[0] - xs[0].mean(op.dims, keepdims=True) if op.center else xs[0]
    return x / np.sqrt((x**2).mean(op.dims, keepdims=True) + op.eps)


@meaning(ops.Softmax)
def _softmax(op: ops.Softmax, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    x = xs[0] - xs[0].max(op.dim, keepdims=True)
    out = x - np.log(np.exp(x).sum(op.dim, keepdims=True))
    return out if op.log else np.exp(out)


@meaning(ops.Sort)
def _sort(op: ops.Sort, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    return np.take_along_axis(xs[0], sorted_index(op, xs[0]), op.dim)


def sorted_index(op: ops.Sort, x: Array) -> NDArray[np.int64]:
    """Places of the entries that are kept, in their order."""
    order = np.argsort(-x if op.descending else x, axis=op.dim, kind="stable")
    return order[along(op.dim, slice(0, op.k), x.ndim)]


@meaning(ops.Cumulate)
def _cumulate(op: ops.Cumulate, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    return (np.cumsum if op.kind == "sum" else np.cumprod)(xs[0], op.dim)


@meaning(ops.Spectral)
def _spectral(op: ops.Spectral, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    transform: Any = getattr(np.fft, op.kind + "n")
    return transform(xs[0], op.sizes, op.dims, norm=op.norm)


def weights_of(kind: str, before: int, after: int) -> Array:
    """Matrix ``(after, before)`` of an interpolation with half-pixel centres; edges repeat."""
    at = (np.arange(after) + 0.5) * before / after - 0.5
    if kind == "nearest":
        at, reach, weight = np.floor((np.arange(after) * before) / after), range(1), lambda d: np.ones_like(d)
    elif kind == "linear":
        at, reach, weight = np.clip(at, 0, before - 1), range(2), lambda d: np.maximum(1 - np.abs(d), 0)
    else:
        reach, weight = range(-1, 3), _cubic
    matrix = np.zeros((after, before))
    for k in reach:
        column = np.floor(at) + k
        np.add.at(matrix, (np.arange(after), np.clip(column, 0, before - 1).astype(int)), weight(at - column))
    return matrix


def _cubic(d: Array) -> Array:
    """Keys' kernel with a = -0.75."""
    d, a = np.abs(d), -0.75
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    return np.where(d <= 1, near, np.where(d < 2, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a, 0.0))


@meaning(ops.Resize)
def _resize(op: ops.Resize, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    x = xs[0]
    for d, n in zip(op.dims, op.sizes, strict=True):
        x = np.moveaxis(np.moveaxis(x, d, -1) @ weights_of(op.kind, x.shape[d], n).T, -1, d)
    return x


# --- movement ---------------------------------------------------------------------------------

_PAD = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@meaning(ops.Pad)
def _pad(op: ops.Pad, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    cut = tuple(slice(max(-lo, 0), n - max(-hi, 0)) for lo, hi, n in zip(op.low, op.high, xs[0].shape, strict=True))
    widths = [(max(lo, 0), max(hi, 0)) for lo, hi in zip(op.low, op.high, strict=True)]
    options: dict[str, Any] = {"constant_values": op.value} if op.mode == "constant" else {}
    mode: Any = _PAD[op.mode]
    return np.pad(xs[0][cut], widths, mode=mode, **options)


@meaning(ops.Update)
def _update(op: ops.Update, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    out = np.array(xs[0])
    out[along(op.dim, slice(op.start, op.stop, op.step), out.ndim)] = xs[1]
    return out


def gather_index(dim: int, x: Array, indices: Sequence[Array]) -> tuple[Any, ...]:
    """The NumPy index of a gather: along ``dim`` when the index has the rank of ``x`` (other dimensions
    in step), else the indices stand at ``dim`` and those after it."""
    first = np.asarray(indices[0])
    if len(indices) == 1 and first.dtype != bool and first.ndim == x.ndim:
        grid = list(np.ogrid[tuple(slice(n) for n in first.shape)])
        grid[dim] = first.astype(np.int64)
        return tuple(grid)
    return (*(slice(None),) * dim, *(i if np.asarray(i).dtype == bool else np.asarray(i, np.int64) for i in indices))


@meaning(ops.Gather)
def _gather(op: ops.Gather, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    return xs[0][gather_index(op.dim, xs[0], xs[1:])]


@meaning(ops.Scatter)
def _scatter(op: ops.Scatter, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    out = np.array(xs[0])
    at = gather_index(op.dim, out, xs[1:-1])
    if op.kind == "add":
        np.add.at(out, at, xs[-1])
    else:
        out[at] = xs[-1]
    return out


@meaning(ops.Unfold)
def _unfold(op: ops.Unfold, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    x = xs[0]
    for dim, size, step in op.windows:
        x = np.lib.stride_tricks.sliding_window_view(x, size, dim)
        x = x[along(dim, slice(None, None, step), x.ndim)]
    return x


@meaning(ops.Lookup)
def _lookup(op: ops.Lookup, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    return xs[0][np.asarray(xs[1], np.int64)]


@meaning(ops.Repeat)
def _repeat(op: ops.Repeat, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    return np.concatenate([xs[0]] * op.times, op.dim) if op.tile else np.repeat(xs[0], op.times, op.dim)


@meaning(ops.Triangle)
def _triangle(op: ops.Triangle, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    return (np.triu if op.upper else np.tril)(xs[0], op.diagonal)


MEANING.update(
    {
        ops.Reshape: lambda op, xs, shape, rng: xs[0].reshape(shape),
        ops.Permute: lambda op, xs, shape, rng: xs[0].transpose(op.order),
        ops.Expand: lambda op, xs, shape, rng: np.broadcast_to(xs[0], shape),
        ops.Slice: lambda op, xs, shape, rng: xs[0][along(op.dim, slice(op.start, op.stop, op.step), xs[0].ndim)],
        ops.Concat: lambda op, xs, shape, rng: np.concatenate(xs, op.dim),
        # any permutation will do: a reversal, as one that is its own inverse
        ops.Shuffle: lambda op, xs, shape, rng: np.flip(xs[0], op.dims),
        ops.Fill: lambda op, xs, shape, rng: np.full(shape, op.value),
    }
)


# --- chance -----------------------------------------------------------------------------------


@meaning(ops.Random)
def _random(op: ops.Random, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    p = op.params
    match op.kind:
        case "normal":
            return rng.normal(p[0], p[1], shape)
        case "uniform":
            return rng.uniform(*(p if len(p) == 2 else (0.0, 1.0)), shape)
        case "bernoulli":
            return (rng.random(shape) < (p[0] if p else 0.5)).astype(np.float64)
        case "exponential":
            return rng.exponential(1 / (p[0] if p else 1.0), shape)
        case _:
            return rng.integers(int(p[0]), int(p[1]), shape)


@meaning(ops.Dropout)
def _dropout(op: ops.Dropout, xs: Sequence[Array], shape: Shape, rng: np.random.Generator) -> Array:
    if op.p >= 1:
        return np.zeros(shape)
    drawn = [n if op.dims is None or d in op.dims else 1 for d, n in enumerate(shape)]
    return xs[0] * (rng.random(drawn) >= op.p) / (1 - op.p)


__all__ = ["MEANING", "apply", "meaning", "output_shape", "run"]

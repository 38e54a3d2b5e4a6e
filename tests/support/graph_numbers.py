"""An independent reading of the vocabulary: a recorded graph evaluated on numbers with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anyinit._core.pointwise import FUNCTIONS
from anyinit._graph import ops
from anyinit._graph.graph import Graph


def evaluate(graph: Graph, leaves: Mapping[str, Any]) -> dict[int, np.ndarray]:
    """Every value of the graph from named leaves; values fed by chance are missing."""
    env: dict[int, np.ndarray] = {}
    for value, leaf in graph.leaves.items():
        data = leaf.data if leaf.data is not None else leaves[leaf.name]
        env[value] = np.asarray(data).astype(
            np.float64 if graph.values[value].kind == "float" else np.asarray(data).dtype
        )
    for node in graph.nodes:
        if isinstance(node.op, (ops.Random, ops.Dropout, ops.Opaque)) or any(i not in env for i in node.inputs):
            continue
        out = np.asarray(apply(node.op, [env[i] for i in node.inputs], graph.values[node.output].shape))
        assert out.shape == graph.values[node.output].shape, (node, out.shape)
        env[node.output] = out
    return env


def apply(op: ops.Op, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    """One operation on numbers."""
    return _MEANING[type(op)](op, xs, shape)


def _pointwise(op: ops.Pointwise, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    left = iter(xs)
    return FUNCTIONS[op.fn](*(next(left) if a is None else a for a in op.args))


def _contract(op: ops.Contract, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    """Windows are laid out explicitly: a tap becomes a dimension of the first operand."""
    a, labels = xs[0], list(op.a)
    for w in op.windows:
        dim = labels.index(w.a)
        a = np.moveaxis(a, dim, 0)
        if w.spread > 1:
            wide = np.zeros(((a.shape[0] - 1) * w.spread + 1, *a.shape[1:]))
            wide[:: w.spread] = a
            a = wide
        a = np.pad(a, [(max(w.pad_low, 0), max(w.pad_high, 0))] + [(0, 0)] * (a.ndim - 1))
        a = a[max(-w.pad_low, 0) : a.shape[0] - max(-w.pad_high, 0)]
        count = (a.shape[0] - w.dilation * (w.size - 1) - 1) // w.stride + 1
        at = np.arange(count)[:, None] * w.stride + np.arange(w.size)[None] * w.dilation
        a = a[at]
        labels = [w.out, w.tap, *labels[:dim], *labels[dim + 1 :]]
    return np.einsum(a, labels, xs[1], list(op.b), list(op.out))


def _reduce(op: ops.Reduce, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    if op.kind == "argmax":
        return np.argmax(xs[0], axis=op.dims[0], keepdims=op.keepdims)
    names = {
        "sum": np.sum,
        "mean": np.mean,
        "max": np.max,
        "min": np.min,
        "prod": np.prod,
        "all": np.all,
        "any": np.any,
    }
    return names[op.kind](xs[0], axis=op.dims, keepdims=op.keepdims)


def _pool(op: ops.Pool, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    x = xs[0]
    for w in op.windows:
        x = np.moveaxis(x, w.dim, -1)
        fill = -np.inf if op.kind == "max" else 0.0
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(w.pad_low, w.pad_high)], constant_values=fill)
        count = (x.shape[-1] - w.dilation * (w.size - 1) - 1) // w.stride + 1
        taps = x[..., np.arange(count)[:, None] * w.stride + np.arange(w.size) * w.dilation]
        x = np.moveaxis(taps.max(-1) if op.kind == "max" else taps.mean(-1), -1, w.dim)
    if op.kind == "avg" and not op.count_pad:
        x = x / _pool(ops.Pool("avg", op.windows), [np.ones_like(xs[0])], shape)
    return x


def _normalize(op: ops.Normalize, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    x = xs[0] - xs[0].mean(op.dims, keepdims=True) if op.center else xs[0]
    return x / np.sqrt((x**2).mean(op.dims, keepdims=True) + op.eps)


def _softmax(op: ops.Softmax, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    x = xs[0] - xs[0].max(op.dim, keepdims=True)
    out = x - np.log(np.exp(x).sum(op.dim, keepdims=True))
    return out if op.log else np.exp(out)


def _along(dim: int, part: slice, ndim: int) -> tuple[slice, ...]:
    return tuple(part if i == dim else slice(None) for i in range(ndim))


def _slice(op: ops.Slice, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    return xs[0][_along(op.dim, slice(op.start, op.stop, op.step), xs[0].ndim)]


def _update(op: ops.Update, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    out = xs[0].copy()
    out[_along(op.dim, slice(op.start, op.stop, op.step), out.ndim)] = xs[1]
    return out


def _sort(op: ops.Sort, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    out = np.sort(xs[0], op.dim)
    out = np.flip(out, op.dim) if op.descending else out
    return out if op.k is None else out[_along(op.dim, slice(0, op.k), out.ndim)]


def _repeat(op: ops.Repeat, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    return np.concatenate([xs[0]] * op.times, op.dim) if op.tile else np.repeat(xs[0], op.times, op.dim)


_MEANING: dict[type[ops.Op], Any] = {
    ops.Pointwise: _pointwise,
    ops.Contract: _contract,
    ops.Reduce: _reduce,
    ops.Pool: _pool,
    ops.Normalize: _normalize,
    ops.Softmax: _softmax,
    ops.Slice: _slice,
    ops.Update: _update,
    ops.Sort: _sort,
    ops.Repeat: _repeat,
    ops.Reshape: lambda op, xs, shape: xs[0].reshape(op.shape),
    ops.Permute: lambda op, xs, shape: xs[0].transpose(op.order),
    ops.Expand: lambda op, xs, shape: np.broadcast_to(xs[0], op.shape),
    ops.Concat: lambda op, xs, shape: np.concatenate(xs, op.dim),
    ops.Pad: lambda op, xs, shape: np.pad(xs[0], list(zip(op.low, op.high, strict=True)), constant_values=op.value),
    ops.Shuffle: lambda op, xs, shape: np.flip(xs[0], op.dims),
    ops.Lookup: lambda op, xs, shape: xs[0][xs[1].astype(int)],
    ops.Gather: lambda op, xs, shape: np.take_along_axis(xs[0], xs[1].astype(int).reshape(shape), op.dim),
    ops.Cumulate: lambda op, xs, shape: (np.cumsum if op.kind == "sum" else np.cumprod)(xs[0], op.dim),
    ops.Fill: lambda op, xs, shape: np.full(op.shape, op.value),
    ops.Spectral: lambda op, xs, shape: getattr(np.fft, op.kind + "n")(xs[0], op.sizes, op.dims),
}

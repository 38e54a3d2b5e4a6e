"""A recorded graph against the run it came from: every observable value, recomputed with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

import graph_numbers
from anyinit._frameworks.torch.runtime import TorchRuntime
from anyinit._graph import ops

MEANING: dict[type[ops.Op], Any] = {
    **graph_numbers._MEANING,
    ops.Triangle: lambda op, xs, shape: (np.triu if op.upper else np.tril)(xs[0], op.diagonal),
    ops.Shuffle: None,
}


def _pad(op: ops.Pad, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    widths = list(zip(op.low, op.high, strict=True))
    if op.mode == "constant":
        return np.pad(xs[0], widths, constant_values=op.value)
    return np.pad(xs[0], widths, mode={"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[op.mode])


def _reduce(op: ops.Reduce, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    x, dims, keep = xs[0], op.dims, op.keepdims
    match op.kind:
        case "norm":
            return np.sqrt((np.abs(x) ** 2).sum(dims, keepdims=keep))
        case "var":
            return x.var(dims, keepdims=keep, ddof=op.correction)
        case "std":
            return x.std(dims, keepdims=keep, ddof=op.correction)
        case "logsumexp":
            return scipy.special.logsumexp(x, dims, keepdims=keep)
        case _:
            return graph_numbers._reduce(op, xs, shape)


def _unfold(op: ops.Unfold, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    x = xs[0]
    for dim, size, step in op.windows:
        x = np.lib.stride_tricks.sliding_window_view(x, size, dim)
        x = x[tuple(slice(None, None, step) if i == dim else slice(None) for i in range(x.ndim))]
    return x


def _pool(op: ops.Pool, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    if op.kind == "max" or op.count_pad or not any(w.pad_low or w.pad_high for w in op.windows):
        return graph_numbers._pool(op, xs, shape)
    return graph_numbers._pool(op, xs, shape) / graph_numbers._pool(op, [np.ones_like(xs[0])], shape)


def _contract(op: ops.Contract, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    """Taps of a transposed convolution run backwards, which the vocabulary leaves open."""
    a, b = xs
    for w in op.windows:
        if w.spread > 1:
            b = np.flip(b, op.b.index(w.tap))
    return graph_numbers._contract(op, [a, b], shape)


def _spectral(op: ops.Spectral, xs: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    return getattr(np.fft, op.kind + "n")(xs[0], op.sizes, op.dims, norm=op.norm)


MEANING |= {
    ops.Pad: _pad, ops.Reduce: _reduce, ops.Unfold: _unfold, ops.Pool: _pool, ops.Contract: _contract,
    ops.Spectral: _spectral,
}  # fmt: skip
CHANCE = (ops.Random, ops.Dropout, ops.Opaque)


def differences(runtime: TorchRuntime) -> tuple[list[tuple[float, Any]], int, set[str]]:
    """``(relative error, node)`` of every observed value, how many were compared, and the kinds of
    operation whose numbers were taken from the run because NumPy cannot recompute them here."""
    graph = runtime.record()
    seen: dict[int, np.ndarray] = {}
    runtime.run({}, range(len(graph.values)), lambda i, x: seen.__setitem__(i, x))
    env = _leaves(runtime)
    errors: list[tuple[float, Any]] = []
    skipped: set[str] = set()
    for node in graph.nodes:
        if MEANING.get(type(node.op)) is not None and all(i in env for i in node.inputs):
            try:
                out = MEANING[type(node.op)](node.op, [env[i] for i in node.inputs], graph.values[node.output].shape)
                env[node.output] = np.asarray(out)
            except (KeyError, ValueError, TypeError, IndexError) as error:
                skipped.add(f"{type(node.op).__name__} {error}")
        else:
            skipped.add(type(node.op).__name__)
        if node.output in seen:
            if node.output in env:
                errors.append((_distance(env[node.output], seen[node.output]), node))
            env[node.output] = seen[node.output]
    return sorted(errors, key=lambda pair: -pair[0]), len(errors), skipped


def _leaves(runtime: TorchRuntime) -> dict[int, np.ndarray]:
    graph, inputs = runtime.record(), runtime.inputs_used()
    params = runtime.read([leaf.name for leaf in graph.leaves.values() if leaf.role == "param"])
    env: dict[int, np.ndarray] = {}
    for i, leaf in graph.leaves.items():
        data = leaf.data if leaf.data is not None else params.get(leaf.name, inputs.get(leaf.name))
        if data is not None:
            env[i] = data.astype(np.float64) if data.dtype.kind == "f" else data
    return env


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind in "fc" and b.dtype.kind in "fc" else a == b
        gap = np.where(same, 0.0, np.abs(a.astype(complex) - b.astype(complex)))
        scale = float(np.sqrt(np.mean(np.abs(np.where(np.isfinite(b), b, 0).astype(complex)) ** 2))) or 1.0
    return float(np.max(gap, initial=0.0)) / scale

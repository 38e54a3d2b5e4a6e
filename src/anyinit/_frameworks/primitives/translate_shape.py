"""Primitives that move entries without touching them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._graph.ops import Concat, Fill, Pad, Repeat, Shuffle, Slice


@translates("reshape")
def reshape(low: Lowering, step: Step, x: Bound, *_: Bound) -> Bound:
    shape, order = out_shape(step), step.params.get("dimensions")
    if order is not None:
        moved = low.permute(low.full(x), order)
        return Bound(shape, x.kind, low.reshape(moved, shape))
    if x.data is not None:
        return replace(x, shape=shape, data=np.broadcast_to(x.data, x.shape).reshape(shape))
    kept = [i for i, n in enumerate(x.shape) if n != 1]
    if [x.shape[i] for i in kept] == [n for n in shape if n != 1]:
        left = iter(kept)
        return low.relabel(x, shape, [None if n == 1 else next(left) for n in shape])
    return Bound(shape, x.kind, low.reshape(low.full(x), shape))


@translates("squeeze")
def squeeze(low: Lowering, step: Step, x: Bound) -> Bound:
    gone = {int(d) for d in step.params["dimensions"]}
    return low.relabel(x, out_shape(step), [i for i in range(len(x.shape)) if i not in gone])


@translates("expand_dims")
def expand_dims(low: Lowering, step: Step, x: Bound) -> Bound:
    new, left = {int(d) for d in step.params["dimensions"]}, iter(range(len(x.shape)))
    shape = out_shape(step)
    return low.relabel(x, shape, [None if i in new else next(left) for i in range(len(shape))])


@translates("broadcast_in_dim")
def broadcast_in_dim(low: Lowering, step: Step, x: Bound, *_: Bound) -> Bound:
    shape = out_shape(step)
    source: list[int | None] = [None] * len(shape)
    for old, new in enumerate(step.params["broadcast_dimensions"]):
        source[int(new)] = old
    return low.relabel(x, shape, source)


@translates("transpose")
def transpose(low: Lowering, step: Step, x: Bound) -> Bound:
    return Bound(out_shape(step), x.kind, low.permute(low.full(x), step.params["permutation"]))


@translates("rev")
def rev(low: Lowering, step: Step, x: Bound) -> Bound:
    dims = tuple(int(d) for d in step.params["dimensions"])
    return low.made(Shuffle(dims), (low.full(x),), x.shape, x.kind)


@translates("concatenate")
def concatenate(low: Lowering, step: Step, *xs: Bound) -> Bound:
    return low.made(Concat(int(step.params["dimension"])), [low.full(x) for x in xs], out_shape(step), out_kind(step))


@translates("stack")
def stack(low: Lowering, step: Step, *xs: Bound) -> Bound:
    axis, shape = int(step.params["axis"]), list(out_shape(step))
    shape[axis] = 1
    parts = [low.reshape(low.full(x), shape) for x in xs]
    return low.made(Concat(axis), parts, out_shape(step), out_kind(step))


def cut(low: Lowering, value: int, dim: int, start: int, stop: int, step: int = 1) -> int:
    """``value[start:stop:step]`` along ``dim``; the whole of it is itself."""
    shape, node = list(low.builder.shape(value)), low.node(value)
    if (start, stop, step) == (0, shape[dim], 1):
        return value
    if node is not None and step == 1 and node.op == Concat(dim):
        first = 0
        for part in node.inputs:
            size = low.builder.shape(part)[dim]
            if first <= start and stop <= first + size:
                return cut(low, part, dim, start - first, stop - first)
            first += size
    shape[dim] = len(range(start, stop, step))
    return low.add(Slice(dim, start, stop, step), (value,), shape, low.builder.values[value].kind)


@translates("unstack")
def unstack(low: Lowering, step: Step, x: Bound) -> list[Bound]:
    axis, value = int(step.params["axis"]), low.full(x)
    rows = [cut(low, value, axis, i, i + 1) for i in range(x.shape[axis])]
    return [Bound(a.shape, x.kind, low.reshape(row, a.shape)) for row, a in zip(rows, step.avals, strict=True)]


@translates("index")
def index(low: Lowering, step: Step, x: Bound) -> Bound:
    """Row ``index`` of the first dimension: one step of an unrolled loop."""
    i, shape = int(step.params["index"]), out_shape(step)
    value = low.lazy(x)
    own = low.builder.shape(value)
    if len(own) < len(x.shape):
        return Bound(shape, x.kind, value)
    return Bound(shape, x.kind, low.reshape(cut(low, low.full(x), 0, i, i + 1), shape))


@translates("split")
def split(low: Lowering, step: Step, x: Bound) -> list[Bound]:
    axis, value, start, out = int(step.params["axis"]), low.full(x), 0, list[Bound]()
    for size, aval in zip(step.params["sizes"], step.avals, strict=True):
        out.append(Bound(aval.shape, x.kind, cut(low, value, axis, start, start + int(size))))
        start += int(size)
    return out


@translates("slice")
def slice_(low: Lowering, step: Step, x: Bound) -> Bound:
    steps = step.params["strides"] or (1,) * len(x.shape)
    value = low.full(x)
    for dim, (a, b, s) in enumerate(
        zip(step.params["start_indices"], step.params["limit_indices"], steps, strict=True)
    ):
        value = cut(low, value, dim, int(a), int(b), int(s))
    return Bound(out_shape(step), x.kind, value)


@translates("tile")
def tile(low: Lowering, step: Step, x: Bound) -> Bound:
    shape = out_shape(step)
    reps = tuple(int(r) for r in step.params["reps"])
    reps = (1,) * (len(shape) - len(reps)) + reps
    old = (1,) * (len(shape) - len(x.shape)) + x.shape
    if all(r == 1 or n == 1 for r, n in zip(reps, old, strict=True)):
        lead = len(shape) - len(x.shape)
        return low.relabel(x, shape, [None if i < lead else i - lead for i in range(len(shape))])
    value, now = low.reshape(low.full(x), old), list(old)
    for dim, times in enumerate(reps):
        if times > 1:
            now[dim] *= times
            value = low.add(Repeat(dim, times), (value,), now, x.kind)
    return Bound(shape, x.kind, value)


@translates("pad")
def pad(low: Lowering, step: Step, x: Bound, filler: Bound) -> Bound | list[Bound]:
    """Interior padding is a reshape, a padding and a reshape; negative padding a slice."""
    number = low.scalar(filler)
    if number is None:
        return low.opaque(step, [x, filler], "padding with a number that depends on data")
    config = [tuple(int(n) for n in c) for c in step.params["padding_config"]]
    value = low.full(x)
    for dim, (_, _, inner) in enumerate(config):
        if inner and low.builder.shape(value)[dim] > 1:
            value = _spread(low, value, dim, inner, number)
    ends = [(max(a, 0), max(b, 0)) for a, b, _ in config]
    if any(a or b for a, b in ends):
        shape = [n + a + b for n, (a, b) in zip(low.builder.shape(value), ends, strict=True)]
        op = Pad(tuple(a for a, _ in ends), tuple(b for _, b in ends), number)
        value = low.add(op, (value,), shape, x.kind)
    for dim, (a, b, _) in enumerate(config):
        if a < 0 or b < 0:
            value = cut(low, value, dim, max(-a, 0), low.builder.shape(value)[dim] - max(-b, 0))
    return Bound(out_shape(step), x.kind, value)


def _spread(low: Lowering, value: int, dim: int, inner: int, number: float) -> int:
    """``inner`` copies of ``number`` between neighbours along ``dim``."""
    shape = low.builder.shape(value)
    column = low.reshape(value, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
    rank, wide = len(shape) + 1, (*shape[: dim + 1], inner + 1, *shape[dim + 1 :])
    high = tuple(inner if i == dim + 1 else 0 for i in range(rank))
    padded = low.add(Pad((0,) * rank, high, number), (column,), wide, low.builder.values[value].kind)
    flat = low.reshape(padded, (*shape[:dim], shape[dim] * (inner + 1), *shape[dim + 1 :]))
    return cut(low, flat, dim, 0, shape[dim] * (inner + 1) - inner)


@translates("iota")
def iota(low: Lowering, step: Step) -> Bound:
    """Only an iota too large to compute while recording comes here."""
    return low.made(
        Fill((step.params["shape"][step.params["dimension"]] - 1) / 2, out_shape(step)),
        (),
        out_shape(step),
        out_kind(step),
    )


@translates("full", "empty")
def full(low: Lowering, step: Step, *_: Bound) -> Bound:
    return low.made(
        Fill(float(step.params.get("fill_value", 0.0)), out_shape(step)), (), out_shape(step), out_kind(step)
    )

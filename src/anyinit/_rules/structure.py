"""Operations that move entries: reshapes, permutations, broadcasts, slices.

They change no marginal; the axis groups go with the factors. The adjoint is the same movement backwards.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from anyinit._core.field import Signal, correlation_for, measured
from anyinit._core.tables import Factor, Layout, Masks, Table, align, build, conform, gather_down, lift, simplify
from anyinit._graph.ops import Expand, Op, Permute, Repeat, Reshape, Shuffle, Slice
from anyinit._rules.axis import mapped, padding
from anyinit._rules.base import Inputs, Site, adjoint, forward

LARGEST_MASK = 1 << 24  # entries of a softmax's mask that a reshape carries on, broadcast


def moved(x: Signal, layout: Layout, op: Op, masks: Masks | None = None) -> Signal:
    """The signal in a new layout; its fields get new identities, the same for the same movement."""
    corr = tuple(r if masks is None else r[masks] for r in x.corr)
    equal = x.equal if masks is None or x.equal is None else x.equal[masks]
    keys = tuple((k, op) for k in x.keys)
    out = x.but(layout=layout, keys=keys, corr=corr, equal=equal, sources={}, data=None, kept=None)
    if layout.groups > 7 and corr:
        layout, tables = simplify(layout, list(corr))
        out = out.but(layout=layout, corr=tuple(tables), equal=None)
    return out


def reshape_layout(layout: Layout, shape: Sequence[int]) -> tuple[Layout, Masks | None]:
    """Row-major reshape of a layout whose sizes divide (see :func:`divisible`), and the map of its masks."""
    dims = _regroup([f for dim in layout.dims for f in dim], shape)
    if dims is None:
        raise ValueError(f"{layout.dims} cannot be regrouped as {tuple(shape)}")
    target, keys = build(dims)
    masks = lift(target, keys, {g: 1 << g for g in range(layout.groups)})
    return target, None if np.array_equal(masks, np.arange(1 << layout.groups)) else masks


def divisible(layout: Layout, shape: Sequence[int]) -> Layout:
    """The layout with just those axes merged into one group that no regrouping of factors can tell apart."""
    flat = [f for dim in layout.dims for f in dim]
    if _regroup(flat, shape) is not None:
        return layout
    ends = np.cumprod([n for n, _ in flat])
    common = set(ends.tolist()) & set(np.cumprod([n for n in shape if n > 1]).tolist())
    dims: list[list[Factor]] = []
    count, segment = 1, 0
    for dim in layout.dims:
        factors: list[Factor] = []
        for n, g in dim:
            factors.append((n, (segment, g)))
            count *= n
            segment += count in common
        dims.append(factors)
    merged: list[list[Factor]] = []
    for dim in dims:
        merged.append([(n, k[1] if _fits(dims, k[0], shape) else ("merged", k[0])) for n, k in dim])  # type: ignore[index]
    return build(merged)[0]


def _fits(dims: Sequence[Sequence[Factor]], segment: int, shape: Sequence[int]) -> bool:
    """Whether the factors of one segment can be regrouped as the dimensions that cover it."""
    flat = [(n, k[0]) for dim in dims for n, k in dim]  # type: ignore[index]
    before = math.prod(n for n, s in flat if s < segment)
    inside = [(n, i) for i, (n, s) in enumerate(flat) if s == segment]
    ends = np.cumprod([n for n in shape if n > 1])
    size = math.prod(n for n, _ in inside)
    covering = [int(n) for n, e in zip([n for n in shape if n > 1], ends, strict=True) if before < e <= before * size]
    return _regroup(inside, covering) is not None


def relaid(x: Signal, layout: Layout) -> Signal:
    """The signal over a coarser layout of the same shape: pairs averaged."""
    if layout.dims == x.layout.dims or not x.keys:
        return x.but(layout=layout)
    corr = tuple(conform(x.layout, r, layout) for r in x.corr)
    if len(corr) == 1:
        corr = (correlation_for(x.nodes, conform(x.layout, x.cov, layout)),)
    for r in corr:
        r[0] = 1.0
    return x.but(layout=layout, corr=corr, equal=None)


def _regroup(flat: list[tuple[int, int]], shape: Sequence[int]) -> list[list[Factor]] | None:
    queue: list[tuple[int, int]] = []
    for n, g in flat:  # neighbours of one group are one factor
        joined = bool(queue) and queue[-1][1] == g
        queue.append((queue.pop()[0] * n, g) if joined else (n, g))
    dims: list[list[Factor]] = []
    for n in reversed(shape):
        need, factors = n, list[Factor]()
        while need > 1:
            if not queue:
                return None
            size, g = queue.pop()
            step = math.gcd(size, need)
            if step < size and step < need:
                return None
            if step < size:
                queue.append((size // step, g))
            factors.append((step, g))
            need //= step
        dims.append(factors[::-1])
    return dims[::-1] if not queue else None


@forward(Reshape)
def reshape(op: Reshape, inputs: Inputs, site: Site) -> Signal:
    """Factors are regrouped; where sizes do not divide, the axes involved become one group."""
    x = inputs[0]
    whole = divisible(x.layout, site.shape)
    layout, masks = reshape_layout(whole, site.shape)
    out = moved(relaid(x, whole) if whole is not x.layout else x, layout, Reshape(site.shape), masks)
    data = None if x.data is None else x.data.reshape(site.shape)
    small = x.kept is not None and x.layout.size <= LARGEST_MASK
    kept = np.broadcast_to(x.kept, x.layout.shape).reshape(site.shape) if x.kept is not None and small else None
    return out.but(data=data, kept=kept)


@adjoint(Reshape)
def reshape_adjoint(op: Reshape, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The same numbers in the input's shape."""
    return (reshaped(output.layout, grad, inputs[0].layout.shape, inputs[0].layout),)


def reshaped(layout: Layout, table: Table, shape: Sequence[int], target: Layout) -> Table:
    """A table carried through a reshape, over a given layout of the new shape."""
    whole = divisible(layout, shape)
    table = conform(layout, table, whole)
    fresh, masks = reshape_layout(whole, shape)
    return conform(fresh, table if masks is None else table[masks], target)


@forward(Permute)
def permute(op: Permute, inputs: Inputs, site: Site) -> Signal:
    """Dimensions reordered, groups kept."""
    x = inputs[0]
    layout = Layout(tuple(x.layout.dims[i] for i in op.order))
    kept = None if x.kept is None or x.kept.ndim != len(op.order) else x.kept.transpose(op.order)
    return moved(x, *_renumbered(layout, x.layout.groups, op)).but(
        data=None if x.data is None else x.data.transpose(op.order), kept=kept
    )


def _renumbered(layout: Layout, groups: int, op: Op) -> tuple[Layout, Op, Masks]:
    fresh, keys = build(layout.dims)
    return fresh, op, lift(fresh, keys, {g: 1 << g for g in range(groups)})


@adjoint(Permute)
def permute_adjoint(op: Permute, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Dimensions back in order."""
    back = [0] * len(op.order)
    for i, o in enumerate(op.order):
        back[o] = i
    layout, _, masks = _renumbered(Layout(tuple(output.layout.dims[i] for i in back)), output.layout.groups, op)
    return (conform(layout, grad[masks], inputs[0].layout),)


@forward(Expand)
def expand(op: Expand, inputs: Inputs, site: Site) -> Signal:
    """Broadcast: entries that differ only along new axes are the same entry."""
    x = inputs[0]
    layout, (masks,) = align([x.layout], site.shape)
    corr = tuple(r[masks] for r in x.corr)
    data = None if x.data is None else np.broadcast_to(x.data, site.shape)
    equal = None if x.equal is None else x.equal[masks]
    return x.but(layout=layout, corr=corr, data=data, equal=equal, sources={}, kept=None)


@adjoint(Expand)
def expand_adjoint(op: Expand, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Sum over the new axes."""
    return (gather_down(output.layout, grad, inputs[0].layout),)


@forward(Repeat)
def repeat(op: Repeat, inputs: Inputs, site: Site) -> Signal:
    """Copies along a dimension: one more factor, which its entries share."""
    x = inputs[0]
    new: Factor = (op.times, "copies")
    dims: list[list[Factor]] = [list(d) for d in x.layout.dims]
    dims[op.dim] = [new, *dims[op.dim]] if op.tile else [*dims[op.dim], new]
    layout, keys = build(dims)
    return moved(x, layout, op, lift(layout, keys, {g: 1 << g for g in range(x.layout.groups)}))


@adjoint(Repeat)
def repeat_adjoint(op: Repeat, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Sum over the copies."""
    x = inputs[0]
    shape = list(output.layout.shape)
    at = [op.times, shape[op.dim] // op.times] if op.tile else [shape[op.dim] // op.times, op.times]
    apart = [*shape[: op.dim], *at, *shape[op.dim + 1 :]]
    whole = divisible(output.layout, apart)
    layout, masks = reshape_layout(whole, apart)
    table = conform(output.layout, grad, whole)
    own = ((), x.layout.dims[op.dim]) if op.tile else (x.layout.dims[op.dim], ())
    one = Layout((*x.layout.dims[: op.dim], *own, *x.layout.dims[op.dim + 1 :]))
    return (gather_down(layout, table if masks is None else table[masks], one),)


def kept_factors(factors: Sequence[tuple[int, int]], start: int, stop: int, step: int) -> list[int] | None:
    """How many indices of each factor ``start:stop:step`` keeps; None where they are no product of factors."""
    size = -(-(stop - start) // step)
    if len(factors) <= 1:
        return [size] * len(factors)
    inner = math.prod(n for n, _ in factors[1:])
    if start // inner == (stop - 1) // inner:
        rest = kept_factors(factors[1:], start % inner, (stop - 1) % inner + 1, step)
        return None if rest is None else [1, *rest]
    if step == 1 and start % inner == 0 and size % inner == 0:
        return [size // inner, *(n for n, _ in factors[1:])]
    return [size, *(1 for _ in factors[1:])] if step % inner == 0 else None


def cut(layout: Layout, table: Table, dim: int, start: int, stop: int, step: int) -> tuple[Layout, Table]:
    """Layout and table after slicing; a dimension of several factors keeps them where the cut is a product."""
    factors = layout.dims[dim]
    kept = kept_factors(factors, start, stop, step)
    dims: list[list[Factor]] = [list(d) for d in layout.dims]
    if kept is not None:
        dims[dim] = [(m, g) for m, (_, g) in zip(kept, factors, strict=True)]
        fresh, keys = build(dims)
        return fresh, table[lift(fresh, keys, {g: 1 << g for g in range(layout.groups)})]
    index = np.arange(start, stop, step)
    dims[dim] = [(index.size, "cut")]
    fresh, keys = build(dims)
    rest = lift(fresh, keys, {g: 1 << g for g in range(layout.groups)})
    if "cut" not in keys:
        return fresh, table[rest]
    crossed = (np.arange(rest.size) & (1 << keys.index("cut"))) != 0
    pairs = sum(p * table[rest | m] for m, p in _pair_masks(factors, index).items())
    return fresh, np.where(crossed, pairs, table[rest])


def _pair_masks(factors: Sequence[tuple[int, int]], index: NDArray[np.int64]) -> dict[int, float]:
    """Share of pairs of different indices by the groups of the factors in which they differ."""
    if index.size > 512:
        index = index[:: -(-index.size // 512)]
    mask = np.zeros((index.size, index.size), dtype=np.int64)
    at = index
    for n, g in reversed(factors):
        here, at = at % n, at // n
        mask |= np.where(here[:, None] != here[None], 1 << g, 0)
    values, counts = np.unique(mask[~np.eye(index.size, dtype=bool)], return_counts=True)
    return {int(v): float(c) / counts.sum() for v, c in zip(values, counts, strict=True)}


@forward(Slice)
def slice_(op: Slice, inputs: Inputs, site: Site) -> Signal:
    """Part of a dimension: entries are exchangeable along it, so nothing else changes."""
    x = inputs[0]
    index = (slice(None),) * op.dim + (slice(op.start, op.stop, op.step),)
    data = None if x.data is None else x.data[index]
    if data is not None and x.keys and data.size:
        return measured(data, (x.keys[0], op)).but(noise=x.noise)
    tables = [cut(x.layout, t, op.dim, op.start, op.stop, op.step) for t in x.corr or (np.ones(1 << x.layout.groups),)]
    return moved(x.but(corr=tuple(t for _, t in tables[: len(x.corr)])), tables[0][0], op).but(data=data)


@adjoint(Slice)
def slice_adjoint(op: Slice, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Zeros outside the cut: of each factor that the cut shortens, or of the whole dimension."""
    x = inputs[0]
    factors = x.layout.dims[op.dim]
    kept = kept_factors(factors, op.start, op.stop, op.step)
    if kept is None or len(factors) < 2:
        return (spread_back(output, grad, x, op.dim),)
    split = [*output.layout.shape[: op.dim], *kept, *output.layout.shape[op.dim + 1 :]]
    table = reshaped(output.layout, grad, split, layout := divisible(*_split(output.layout, split)))
    for i, (m, (size, _)) in enumerate(zip(kept, factors, strict=True)):
        if m < size:
            layout, table = mapped(layout, table, op.dim + i, padding(0, size - m, "constant", m))
    return (reshaped(layout, table, x.layout.shape, x.layout),)


def _split(layout: Layout, shape: Sequence[int]) -> tuple[Layout, Sequence[int]]:
    return reshape_layout(divisible(layout, shape), shape)[0], shape


def spread_back(output: Signal, grad: Table, x: Signal, dim: int) -> Table:
    """Adjoint of keeping ``m`` of the ``n`` entries along ``dim``: the rest gets no gradient. Two entries at
    one place of ``dim`` are both kept with probability ``m/n``, at two places ``m(m-1)/(n(n-1))``."""
    m, n = output.layout.shape[dim], x.layout.shape[dim]
    layout, table = mapped(output.layout, grad, dim, padding(0, n - m, "constant", m))
    return conform(layout, table, x.layout)


def resized(layout: Layout, shape: Sequence[int]) -> tuple[Layout, Masks | None]:
    """The layout with dimensions stretched to other sizes (one factor where the size changed)."""
    dims: list[list[Factor]] = []
    touches: dict[Hashable, int] = {g: 1 << g for g in range(layout.groups)}
    for d, factors in enumerate(layout.dims):
        if layout.shape[d] == shape[d]:
            dims.append(list(factors))
        elif len(factors) == 1:
            dims.append([(shape[d], factors[0][1])])
        else:
            key = ("resized", d)
            touches[key] = sum({1 << g for _, g in factors})
            dims.append([(shape[d], key)])
    fresh, keys = build(dims)
    return fresh, lift(fresh, keys, touches)


@forward(Shuffle)
def shuffle(op: Shuffle, inputs: Inputs, site: Site) -> Signal:
    """Entries permuted along axes they are exchangeable on."""
    x = inputs[0]
    return moved(x, x.layout, op)


@adjoint(Shuffle)
def shuffle_adjoint(op: Shuffle, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Unchanged."""
    return (conform(output.layout, grad, inputs[0].layout),)

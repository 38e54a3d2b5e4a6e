"""Operations that move entries: reshapes, slices, concatenations, padding.

They change no marginal (padding and concatenation mix marginals); the axis groups go with the
factors. The adjoint is the same movement backwards.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from anyinit._core.field import WEIGHT, Nodes, Signal, correlation_for, expect, materialize, quantiles
from anyinit._core.tables import Factor, Layout, Masks, Table, align, build, collapse, conform, gather_down, lift, simplify
from anyinit._graph.ops import Concat, Expand, Op, Pad, Permute, Repeat, Reshape, Shuffle, Slice, Update
from anyinit._rules.axis import AxisMap, mapped, padding
from anyinit._rules.base import Inputs, Site, adjoint, forward, inherited


def moved(x: Signal, layout: Layout, op: Op, masks: np.ndarray | None = None) -> Signal:
    """The signal in a new layout; its fields get new identities, the same for the same movement."""
    corr = tuple(r if masks is None else r[masks] for r in x.corr)
    equal = x.equal if masks is None or x.equal is None else x.equal[masks]
    keys = tuple((k, op) for k in x.keys)
    out = x.but(layout=layout, keys=keys, corr=corr, equal=equal, sources={}, data=None, kept=None)
    if layout.groups > 7 and corr:
        layout, tables = simplify(layout, list(corr))
        out = out.but(layout=layout, corr=tuple(tables), equal=None)
    return out


def reshape_layout(layout: Layout, shape: Sequence[int]) -> tuple[Layout, np.ndarray | None]:
    """Row-major reshape of a layout; masks when groups had to be merged (sizes do not divide)."""
    flat = [f for dim in layout.dims for f in dim]
    dims = _regroup(flat, shape)
    if dims is None:
        merged = Layout(((((layout.size, 0),) if layout.size > 1 else ()),))
        one = _regroup([(layout.size, 0)], shape)
        assert one is not None and merged.groups <= 1
        target, _ = build(one)
        return target, np.arange(1 << target.groups) * ((1 << layout.groups) - 1)
    target, keys = build(dims)
    masks = lift(target, keys, {g: 1 << g for g in range(layout.groups)})
    return target, None if np.array_equal(masks, np.arange(1 << layout.groups)) else masks


def _regroup(flat: list[tuple[int, int]], shape: Sequence[int]) -> list[list[Factor]] | None:
    queue = list(flat)
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
    layout, masks = reshape_layout(x.layout, site.shape)
    out = moved(x, layout, Reshape(site.shape), masks)
    data = None if x.data is None else x.data.reshape(site.shape)
    kept = x.kept.reshape(site.shape) if x.kept is not None and x.kept.size == x.layout.size else None
    return out.but(data=data, kept=kept)


@adjoint(Reshape)
def reshape_adjoint(op: Reshape, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The same numbers in the input's shape."""
    layout, masks = reshape_layout(output.layout, inputs[0].layout.shape)
    return (conform(layout, grad if masks is None else grad[masks], inputs[0].layout),)


@forward(Permute)
def permute(op: Permute, inputs: Inputs, site: Site) -> Signal:
    """Dimensions reordered, groups kept."""
    x = inputs[0]
    layout = Layout(tuple(x.layout.dims[i] for i in op.order))
    kept = None if x.kept is None or x.kept.ndim != len(op.order) else x.kept.transpose(op.order)
    return moved(x, *_renumbered(layout, x.layout.groups, op)).but(data=None if x.data is None else x.data.transpose(op.order), kept=kept)


def _renumbered(layout: Layout, groups: int, op: Op) -> tuple[Layout, Op, np.ndarray]:
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
    layout, masks = reshape_layout(output.layout, [*shape[: op.dim], *at, *shape[op.dim + 1 :]])
    table = grad if masks is None else grad[masks]
    keep = [*x.layout.dims[: op.dim]]
    pos = op.dim if op.tile else op.dim + 1
    one = Layout((*keep, *((((), x.layout.dims[op.dim])) if op.tile else (x.layout.dims[op.dim], ())), *x.layout.dims[op.dim + 1 :]))
    assert len(one.dims) == len(layout.dims) and pos >= 0
    return (gather_down(layout, table, one),)


def cut(layout: Layout, dim: int, start: int, stop: int, step: int) -> tuple[Layout, np.ndarray | None]:
    """Layout after slicing; a dimension of several factors keeps them when the cut is aligned."""
    factors = layout.dims[dim]
    size = -(-(stop - start) // step)
    kept: list[tuple[int, int]] | None = None
    if len(factors) <= 1:
        kept = [(size, factors[0][1])] if factors and size > 1 else []
    else:
        inner = math.prod(n for n, _ in factors[1:])
        if step == 1 and start % inner == 0 and size % inner == 0:
            outer = size // inner
            kept = ([(outer, factors[0][1])] if outer > 1 else []) + list(factors[1:])
        elif step == 1 and start // inner == (stop - 1) // inner:
            sub, masks = cut(Layout((*layout.dims[:dim], factors[1:], *layout.dims[dim + 1 :])), dim, start % inner, (stop - 1) % inner + 1, 1)
            if masks is None:
                kept = list(sub.dims[dim])
    dims = [list(d) for d in layout.dims]
    if kept is not None:
        dims[dim] = kept
        fresh, keys = build(dims)
        return fresh, lift(fresh, keys, {g: 1 << g for g in range(layout.groups)})
    dims[dim] = [(size, "cut")]  # type: ignore[list-item]
    fresh, keys = build(dims)
    bits = 0
    for _, g in factors:
        bits |= 1 << g
    return fresh, lift(fresh, keys, {**{g: 1 << g for g in range(layout.groups)}, "cut": bits})


@forward(Slice)
def slice_(op: Slice, inputs: Inputs, site: Site) -> Signal:
    """Part of a dimension: entries are exchangeable along it, so nothing else changes."""
    x = inputs[0]
    layout, masks = cut(x.layout, op.dim, op.start, op.stop, op.step)
    index = (slice(None),) * op.dim + (slice(op.start, op.stop, op.step),)
    data = None if x.data is None else x.data[index]
    if data is not None and x.keys and data.size:
        from anyinit._core.field import measured

        return measured(data, (x.keys[0], op)).but(noise=x.noise)
    return moved(x, layout, op, masks).but(data=data)


def spread_back(output: Signal, grad: Table, x: Signal, dim: int) -> Table:
    """Adjoint of keeping ``m`` of the ``n`` entries along ``dim``: the rest gets no gradient. Two entries at
    one place of ``dim`` are both kept with probability ``m/n``, at two places ``m(m-1)/(n(n-1))``."""
    m, n = output.layout.shape[dim], x.layout.shape[dim]
    fine, (a, b) = _loose(output.layout, x.layout)
    table = collapse(fine, grad[a], b, x.layout.groups)
    bits = sum({1 << g for _, g in x.layout.dims[dim]})
    apart = (np.arange(table.size) & bits) != 0
    return table * np.where(apart, m * (m - 1) / max(n * (n - 1), 1), m / n)


def _loose(small: Layout, big: Layout) -> tuple[Layout, list[np.ndarray]]:
    """Align two layouts of equal rank whose sizes differ in some dimensions (one factor there)."""
    dims = tuple(d if math.prod(n for n, _ in d) == math.prod(n for n, _ in e) else (((math.prod(n for n, _ in e)), d[-1][1] if d else 10**6),) for d, e in zip(small.dims, big.dims, strict=True))
    grown, keys = build(dims)
    fine, (a, b) = align([grown, big], big.shape)
    to_small = lift(grown, keys, {g: 1 << g for g in range(small.groups)})
    return fine, [to_small[a], b]


@adjoint(Slice)
def slice_adjoint(op: Slice, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Zeros outside the cut: levels shrink by the share that is inside."""
    x = inputs[0]
    return (spread_back(output, grad, x, op.dim),)


def mixed(
    parts: Sequence[tuple[Signal, float]], layout: Layout, masks: Sequence[Masks], bit: int, key: Hashable, size: float
) -> Signal:
    """Mixture of marginals by share; pairs within a part keep its covariance, pairs across parts have the
    product of means.

    bit: the axis along which parts differ. size: its number of entries, of which a part with share ``w`` has
    ``w size``: two different ones are both its own with probability ``w (w size - 1) / (size - 1)``.
    """
    more = size / max(size - 1, 1e-9)
    inside = sum(w * s.cov[m] for (s, w), m in zip(parts, masks, strict=True))
    both = sum(w * (w * size - 1) / max(size - 1, 1e-9) * s.cov[m] for (s, w), m in zip(parts, masks, strict=True))
    mean = sum(w * s.mean for s, w in parts)
    across = (mean**2 - sum(w * w * s.mean**2 for s, w in parts)) * more
    moved_ = (np.arange(1 << layout.groups) & bit) != 0
    return blended(parts, layout, np.where(moved_, both + across, inside), key)


def blended(parts: Sequence[tuple[Signal, float]], layout: Layout, table: Table, key: Hashable) -> Signal:
    """The mixture of marginals by share, with a given table."""
    m2 = sum(w * s.m2 for s, w in parts)
    nodes = quantiles(*_pool(parts))
    mean = sum(w * s.mean for s, w in parts)
    if m2 <= 0 or expect((nodes - expect(nodes)) ** 2) <= 1e-14 * m2:
        return Signal(layout, np.asarray(mean))
    corr = correlation_for(nodes, table)
    corr[0] = 1.0
    total = m2 or 1.0
    noise = inherited(*(s for s, _ in parts), weights=tuple(w * s.m2 / total for s, w in parts))
    rigid = sum(w * s.m2 * (s.rigid[0] if s.rigid else 1.0) for s, w in parts) / total
    return Signal(layout, nodes, (key,), (corr,), noise=noise, rigid=(rigid,))


def _pool(parts: Sequence[tuple[Signal, float]]) -> tuple[Nodes, Nodes]:
    values: list[Nodes] = []
    weights: list[Nodes] = []
    for s, w in parts:
        if s.nodes.ndim == 0:
            values.append(np.array([float(s.nodes)]))
            weights.append(np.array([w]))
        else:
            values.append(s.nodes.ravel())
            weights.append(w * (WEIGHT if s.nodes.ndim == 1 else np.outer(WEIGHT, WEIGHT).ravel()))
    return np.concatenate(values), np.concatenate(weights)


def _stacked(layouts: Sequence[Layout], dim: int, shape: Sequence[int]) -> tuple[Layout, list[np.ndarray], int]:
    """Common layout of parts laid side by side along ``dim`` (one factor there), and its bit."""
    blank = [Layout((*lay.dims[:dim], (), *lay.dims[dim + 1 :])) for lay in layouts]
    rest = list(shape)
    rest[dim] = 1
    common, _ = align(blank, rest)
    dims: list[list[Factor]] = [list(d) for d in common.dims]
    dims[dim] = [(shape[dim], "joined")]
    layout, keys = build(dims)
    bit = 1 << keys.index("joined") if "joined" in keys else 0
    masks: list[np.ndarray] = []
    for lay, flat in zip(layouts, blank, strict=True):
        _, (_, m) = align([common, flat], rest)
        inner = 0
        for _, g in lay.dims[dim]:
            inner |= 1 << g
        to_common = lift(layout, keys, {g: 1 << g for g in range(common.groups)})
        crossed = (np.arange(to_common.size) & bit) != 0
        masks.append(m[to_common] | np.where(crossed, inner, 0))
    return layout, masks, bit


@forward(Concat)
def concat(op: Concat, inputs: Inputs, site: Site) -> Signal:
    """Mixture by length; entries of different parts are independent given their means."""
    parts = [x for x in inputs if x.layout.size]
    if len(parts) == 1:
        return parts[0]
    layout, masks, bit = _stacked([x.layout for x in parts], op.dim, site.shape)
    weights = [x.layout.shape[op.dim] / site.shape[op.dim] for x in parts]
    out = mixed(list(zip(parts, weights, strict=True)), layout, masks, bit, site.id, site.shape[op.dim])
    if all(x.data is not None for x in inputs):
        return out.but(data=np.concatenate([np.asarray(x.data) for x in inputs], axis=op.dim))
    return out


@adjoint(Concat)
def concat_adjoint(op: Concat, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Each part takes its stretch of the gradient."""
    out: list[Table | None] = []
    for x in inputs:
        if not x.layout.size:
            out.append(None)
            continue
        small, masks = cut(output.layout, op.dim, 0, x.layout.shape[op.dim], 1)
        out.append(conform(small, grad if masks is None else grad[masks], x.layout))
    return tuple(out)


@forward(Update)
def update(op: Update, inputs: Inputs, site: Site) -> Signal:
    """``base`` with a stretch replaced: the mixture of what stays and what is new."""
    base, new = inputs
    share = -(-(op.stop - op.start) // op.step) / site.shape[op.dim]
    if share >= 1:
        return new
    layout, masks, bit = _stacked([base.layout, new.layout], op.dim, site.shape)
    return mixed([(base, 1 - share), (new, share)], layout, masks, bit, site.id, site.shape[op.dim])


@adjoint(Update)
def update_adjoint(op: Update, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The base gets none where it was replaced, the new part what falls on it."""
    base, new = inputs
    share = -(-(op.stop - op.start) // op.step) / output.layout.shape[op.dim]
    small, masks = cut(output.layout, op.dim, op.start, op.stop, op.step)
    n = output.layout.shape[op.dim]
    to_base = conform(output.layout, grad, base.layout)
    bits = sum({1 << g for _, g in base.layout.dims[op.dim]})
    apart = (np.arange(to_base.size) & bits) != 0
    to_base = to_base * np.where(apart, (1 - share) * (n * (1 - share) - 1) / max(n - 1, 1), 1 - share)
    return to_base, gather_down(small, grad if masks is None else grad[masks], new.layout)


@forward(Pad)
def pad(op: Pad, inputs: Inputs, site: Site) -> Signal:
    """A linear map of each padded dimension; constant padding mixes in its value."""
    x = materialize(inputs[0], ("m", site.id, 0))
    value = op.value if op.mode == "constant" else 0.0
    maps = _padded(op, x.layout.shape)
    layout, table = x.layout, x.cov - 2 * value * x.mean + value**2
    for d, by in maps:
        layout, table = mapped(layout, table, d, by)
    share = math.prod(by.mean for _, by in maps)
    if op.mode != "constant" or share >= 1:
        if not x.keys:
            return Signal(layout, x.nodes)
        corr = correlation_for(x.nodes, table)
        corr[0] = 1.0
        return Signal(layout, x.nodes, (site.id,), (corr,), noise=dict(x.noise), rigid=x.rigid)
    table = table + 2 * value * (x.mean - value) * share + value**2
    return blended([(x, share), (Signal(layout, np.asarray(value)), 1 - share)], layout, table, site.id)


def _padded(op: Pad, shape: Sequence[int]) -> list[tuple[int, AxisMap]]:
    ends = enumerate(zip(op.low, op.high, strict=True))
    return [(d, padding(lo, hi, op.mode, shape[d])) for d, (lo, hi) in ends if lo or hi]


def _resized(layout: Layout, shape: Sequence[int]) -> tuple[Layout, np.ndarray | None]:
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


@adjoint(Pad)
def pad_adjoint(op: Pad, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The gradient inside; repeated entries add up."""
    x = inputs[0]
    layout, table = output.layout, grad
    for d, by in _padded(op, x.layout.shape):
        layout, table = mapped(layout, table, d, by.transposed)
    return (conform(layout, table, x.layout),)


@forward(Shuffle)
def shuffle(op: Shuffle, inputs: Inputs, site: Site) -> Signal:
    """Entries permuted along axes they are exchangeable on."""
    x = inputs[0]
    return moved(x, x.layout, op)


@adjoint(Shuffle)
def shuffle_adjoint(op: Shuffle, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Unchanged."""
    return (conform(output.layout, grad, inputs[0].layout),)

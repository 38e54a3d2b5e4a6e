"""Operations that lay values side by side: concatenations, replaced stretches, padding.

Their marginals are mixtures; pairs are counted by the part in which each entry stands.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from anyinit._core.field import WEIGHT, Nodes, Signal, correlation_for, expect, materialize, quantiles
from anyinit._core.tables import Factor, Layout, Masks, Table, align, build, conform, gather_down, lift
from anyinit._graph.ops import Concat, Pad, Update
from anyinit._rules.axis import AxisMap, mapped, padding
from anyinit._rules.base import Inputs, Site, adjoint, forward, inherited
from anyinit._rules.structure import cut


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


def _stacked(layouts: Sequence[Layout], dim: int, shape: Sequence[int]) -> tuple[Layout, list[Masks], int]:
    """Common layout of parts laid side by side along ``dim`` (one factor there), and its bit."""
    blank = [Layout((*lay.dims[:dim], (), *lay.dims[dim + 1 :])) for lay in layouts]
    rest = list(shape)
    rest[dim] = 1
    common, _ = align(blank, rest)
    dims: list[list[Factor]] = [list(d) for d in common.dims]
    dims[dim] = [(shape[dim], "joined")]
    layout, keys = build(dims)
    bit = 1 << keys.index("joined") if "joined" in keys else 0
    masks: list[Masks] = []
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
    start = 0
    for x in inputs:
        if not x.layout.size:
            out.append(None)
            continue
        stop = start + x.layout.shape[op.dim]
        out.append(conform(*cut(output.layout, grad, op.dim, start, stop, 1), x.layout))
        start = stop
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
    small, table = cut(output.layout, grad, op.dim, op.start, op.stop, op.step)
    n = output.layout.shape[op.dim]
    to_base = conform(output.layout, grad, base.layout)
    bits = sum({1 << g for _, g in base.layout.dims[op.dim]})
    apart = (np.arange(to_base.size) & bits) != 0
    to_base = to_base * np.where(apart, (1 - share) * (n * (1 - share) - 1) / max(n - 1, 1), 1 - share)
    return to_base, gather_down(small, table, new.layout)


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


@adjoint(Pad)
def pad_adjoint(op: Pad, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The gradient inside; repeated entries add up."""
    x = inputs[0]
    layout, table = output.layout, grad
    for d, by in _padded(op, x.layout.shape):
        layout, table = mapped(layout, table, d, by.transposed)
    return (conform(layout, table, x.layout),)

"""Lookups and gathers: rows picked by integers.

Rows picked at two places are the same row with the probability that the integers are equal, which is
counted where the integers are known and ``1 / rows`` where they are not.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from anyinit._core.field import Signal, from_table
from anyinit._core.tables import Factor, Layout, Masks, Table, build, conform, lift, separate
from anyinit._graph.ops import Gather, Lookup, Scatter
from anyinit._rules.axis import alone
from anyinit._rules.base import Inputs, Site, adjoint, forward
from anyinit._rules.structure import mixed, moved, spread_back


def equality(ids: Signal, rows: int) -> Table:
    """Probability by mask that two entries of an integer value are equal."""
    masks = np.arange(1 << ids.layout.groups)
    if ids.equal is not None and ids.equal.size == masks.size:
        return ids.equal
    if ids.data is not None and ids.layout.groups <= 4:
        data = np.asarray(ids.data)
        counts = np.unique(data, return_counts=True)[1].astype(float)
        if ids.layout.groups <= 1:
            total = data.size
            p = float((counts * (counts - 1)).sum() / max(total * (total - 1), 1))
            return np.where(masks == 0, 1.0, p)
        return _pairwise(data, ids.layout)
    return np.where(masks == 0, 1.0, 1.0 / max(rows, 1))


def _pairwise(data: np.ndarray, layout: Layout) -> Table:
    rng = np.random.default_rng(0)
    shape = [n for n in data.shape if n > 1]
    x = data.reshape(shape)
    out = np.ones(1 << layout.groups)
    count = 4096
    for mask in range(1, out.size):
        one = [rng.integers(0, n, count) for n in shape]
        two = [(i + rng.integers(1, n, count)) % n if mask >> g & 1 else i for g, (i, n) in enumerate(zip(one, shape, strict=True))]
        out[mask] = float(np.mean(x[tuple(one)] == x[tuple(two)]))
    return out


@forward(Lookup)
def lookup(op: Lookup, inputs: Inputs, site: Site) -> Signal:
    """``table[ids]``: ``C[S] = p_equal C_t[rest] + (1 - p_equal) C_t[rest + rows]``."""
    table, ids = inputs
    where, rows, layout, in_ids, in_table = _places(table.layout, ids)
    keep = ids.equal is not None and ids.equal.size == 1 << where.groups
    ids = ids.but(layout=where, equal=ids.equal if keep else None)
    same = equality(ids, table.layout.shape[0])[in_ids]
    c = table.cov
    cov = same * c[in_table] + (1 - same) * c[in_table | rows]
    like = table.nodes if table.nodes.ndim == 1 and not table.affine() else None
    out = from_table(layout, table.mean, cov, site.id, like).but(noise=dict(table.noise))
    return out.but(rigid=(0.0,) * len(out.keys))


@adjoint(Lookup)
def lookup_adjoint(op: Lookup, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Every place adds its gradient to its row: the mean over rows, used or not."""
    table, ids = inputs
    apart, _, _ = alone(table.layout, table.cov, 0)
    where, rows, layout, in_ids, in_table = _places(apart, ids)
    g = conform(output.layout, grad, layout)
    count, n = where.size, table.layout.shape[0]
    # ordered pairs of places, by what they differ in, that take the same row
    share = where.pairs * equality(ids.but(layout=where), n)
    out = np.empty(1 << apart.groups)
    same, all_ = np.zeros(out.size), np.zeros(out.size)
    np.add.at(same, in_table, share[in_ids] * g)
    np.add.at(all_, in_table, where.pairs[in_ids] * g)
    masks = np.arange(out.size)
    low = masks & ~rows
    reach = same[low] * count**2 / n
    other = (all_[low] - same[low]) * count**2 / max(n * (n - 1), 1)
    return conform(apart, np.where((masks & rows) == 0, reach, other), table.layout), None


def _places(table: Layout, ids: Signal) -> tuple[Layout, int, Layout, Masks, Masks]:
    """Layout of the integers, bit of the table's rows, layout of the result and its masks in both."""
    where = ids.layout if ids.equal is not None or ids.data is None else separate(ids.layout.shape)
    rows = sum({1 << g for _, g in table.dims[0]})
    dims: list[list[Factor]] = [[(n, ("i", g)) for n, g in d] for d in where.dims]
    dims += [[(n, ("t", g)) for n, g in d] for d in table.dims[1:]]
    layout, keys = build(dims)
    in_ids = lift(layout, keys, {("i", g): 1 << g for g in range(where.groups)})
    in_table = lift(layout, keys, {("t", g): 1 << g for g in range(table.groups)})
    return where, rows, layout, in_ids, in_table


@forward(Gather)
def gather(op: Gather, inputs: Inputs, site: Site) -> Signal:
    """Entries of ``x`` at data-dependent places: the same marginal in the index's shape."""
    x = inputs[0]
    layout = separate(site.shape)
    bits: dict[Hashable, int] = {}
    at = 0
    rank = len(x.layout.dims)
    for d, n in enumerate(site.shape):
        if n > 1:
            bits[at] = sum({1 << g for _, g in x.layout.dims[d]}) if d < rank and len(site.shape) == rank else (1 << x.layout.groups) - 1
            at += 1
    return moved(x, layout, op, lift(layout, list(range(layout.groups)), bits))


@adjoint(Gather)
def gather_adjoint(op: Gather, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Gradients return to the entries picked."""
    x = inputs[0]
    share = output.layout.size / max(x.layout.size, 1)
    out = np.zeros(1 << x.layout.groups)
    out[0] = float(grad[0]) * share
    return (out, *(None for _ in inputs[1:]))


@forward(Scatter)
def scatter(op: Scatter, inputs: Inputs, site: Site) -> Signal:
    """Entries written or added into ``base`` where an index says."""
    base, src = inputs[0], inputs[-1]
    share = min(src.layout.size / max(base.layout.size, 1), 1.0)
    layout = separate(site.shape)
    full = (1 << base.layout.groups) - 1
    all_base = np.where(np.arange(1 << layout.groups) == 0, 0, full)
    all_src = np.where(np.arange(1 << layout.groups) == 0, 0, (1 << src.layout.groups) - 1)
    if op.kind == "add":
        times = src.layout.size / max(base.layout.size, 1)
        cov = base.cov[all_base] + np.where(all_src == 0, times * src.m2 + max(times - 1, 0) * times * src.mean**2, (times * src.mean) ** 2)
        return from_table(layout, base.mean + times * src.mean, cov + 2 * base.mean * times * src.mean, site.id)
    bit = (1 << layout.groups) - 1
    return mixed([(base, 1 - share), (src, share)], layout, [all_base, all_src], bit, site.id, base.layout.size)


@adjoint(Scatter)
def scatter_adjoint(op: Scatter, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """What was written over gets no gradient; what was written gets its own."""
    base, src = inputs[0], inputs[-1]
    share = min(src.layout.size / max(base.layout.size, 1), 1.0)
    to_base = conform(output.layout, grad, base.layout) * (1.0 if op.kind == "add" else 1 - share)
    to_src = np.zeros(1 << src.layout.groups)
    to_src[0] = float(grad[0])
    return (to_base, *(None for _ in inputs[1:-1]), to_src)


__all__ = ["Layout", "equality", "spread_back"]

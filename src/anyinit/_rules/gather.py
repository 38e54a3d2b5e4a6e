"""Lookups, gathers and scatters: entries picked by integers.

Entries picked at two places are the same entry with the probability that the integers are equal, which is
counted where the integers are known and ``1 / n`` where they are not.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from anyinit._core.field import Signal, constant, correlation_for, from_table
from anyinit._core.tables import Factor, Layout, Masks, Table, align, build, conform, gather_down, lift, separate
from anyinit._graph.ops import Gather, Lookup, Op, Scatter
from anyinit._rules.axis import alone, mapped, padding
from anyinit._rules.base import Inputs, Site, adjoint, forward, inherited
from anyinit._rules.merge import blended
from anyinit._rules.structure import moved, resized

Mask = NDArray[np.int64]


def equality(ids: Signal, rows: int) -> Table:
    """Probability by mask that two entries of an integer value are equal."""
    masks = np.arange(1 << ids.layout.groups)
    if ids.equal is not None and ids.equal.size == masks.size:
        return ids.equal
    if ids.data is not None and ids.layout.groups <= 4:
        data = np.asarray(ids.data)
        if ids.layout.groups <= 1:
            counts = np.unique(data, return_counts=True)[1].astype(float)
            total = data.size
            p = float((counts * (counts - 1)).sum() / max(total * (total - 1), 1))
            return np.where(masks == 0, 1.0, p)
        factors = [f for dim in ids.layout.dims for f in dim]
        if len(factors) == ids.layout.groups:
            return _pairwise(data.reshape([n for n, _ in factors]), [g for _, g in factors])
    return np.where(masks == 0, 1.0, 1.0 / max(rows, 1))


def _pairwise(x: NDArray[np.generic], groups: Sequence[int]) -> Table:
    """Share of pairs that are equal, by the axes in which they differ; ``groups``: group of each axis."""
    rng = np.random.default_rng(0)
    out = np.ones(1 << x.ndim)
    count = 4096
    for mask in range(1, out.size):
        one = [rng.integers(0, n, count) for n in x.shape]
        two = [
            (i + rng.integers(1, n, count)) % n if mask >> g & 1 else i
            for g, i, n in zip(groups, one, x.shape, strict=True)
        ]
        out[mask] = float(np.mean(x[tuple(one)] == x[tuple(two)]))
    return out


@dataclass(frozen=True)
class Picked:
    """How a picked value hangs together with the one it was picked from.

    source: layout of ``x`` with every picked dimension in a group of its own. layout: of the result, its groups
    those of ``source`` that were not picked and those of the integers. other: result mask -> source mask of the
    dimensions not picked. dims: for each picked dimension its size, its bit in ``source`` and the probability by
    result mask that two picked places agree there. pairs: ordered pairs of picks that meet one place of the
    other dimensions, by result mask.
    """

    source: Layout
    layout: Layout
    other: Mask
    dims: tuple[tuple[int, int, Table], ...]
    pairs: Table

    def take(self, table: Table) -> Table:
        """Second moments of the result from those of ``x`` (over ``source``)."""
        out = np.zeros(self.other.size)
        for differs in product((False, True), repeat=len(self.dims)):
            weight, mask = np.ones(out.size), self.other
            for (_, bit, equal), moved_ in zip(self.dims, differs, strict=True):
                weight = weight * (1 - equal if moved_ else equal)
                mask = mask | bit if moved_ else mask
            out += weight * table[mask]
        return out

    def put(self, table: Table) -> Table:
        """Second moments, over ``source``, of everything added up at the place it was picked from."""
        out = np.zeros(1 << self.source.groups)
        for differs in product((False, True), repeat=len(self.dims)):
            weight, mask = self.pairs * table, self.other
            for (n, bit, equal), moved_ in zip(self.dims, differs, strict=True):
                weight = weight * ((1 - equal) / max(n * (n - 1), 1) if moved_ else equal / n)
                mask = mask | bit if moved_ else mask
            np.add.at(out, mask, weight)
        return out


def picked(x: Layout, dim: int, ids: Sequence[Signal], shape: Sequence[int]) -> Picked | None:
    """Structure of ``x`` picked by ``ids`` at ``dim``; None when the shapes fit no form of a gather.

    One index with the rank of ``x`` picks along ``dim``, other dimensions in step. Otherwise the indices stand in
    place of as many dimensions from ``dim`` on.
    """
    known = [_told_apart(i) for i in ids]
    first = known[0]
    step = len(ids) == 1 and len(first.shape) == len(x.shape) and tuple(shape) == first.shape
    where = np.broadcast_shapes(*(k.shape for k in known))
    count = 1 if step else len(ids)
    if not step and tuple(shape) != (*x.shape[:dim], *where, *x.shape[dim + count :]):
        return None
    source, bits = x, list[int]()
    for d in range(dim, dim + count):
        source, _, _ = alone(source, np.zeros(1 << source.groups), d)
    bits = [sum({1 << g for _, g in source.dims[d]}) for d in range(dim, dim + count)]
    rest: list[list[Factor]] = [[(n, ("x", g)) for n, g in f] for f in source.dims]
    if step:
        # an index smaller than x in other dimensions meets only a part of them
        kept = [[] if d == dim else f if source.shape[d] == shape[d] else _cut(f, shape[d]) for d, f in enumerate(rest)]
    else:
        kept = [*rest[:dim], *([] for _ in where), *rest[dim + count :]]
    plain, keys = build(kept)
    spread = [Layout((*((),) * (0 if step else dim), *k.dims, *((),) * (0 if step else len(x.shape) - dim - count)))
              for k in known]  # fmt: skip
    layout, maps = align([plain, *spread], shape)
    touches = lift(plain, keys, {k: sum(1 << g for g in _groups(k)) for k in keys})
    sizes = source.shape[dim : dim + count]
    equal = [equality(i.but(layout=k), n)[m] for i, k, n, m in zip(ids, known, sizes, maps[1:], strict=True)]
    own = [
        1 << g for d, f in enumerate(layout.dims) for _, g in f if (d == dim if step else dim <= d < dim + len(where))
    ]
    pairs = _met(layout, sum(set(own)), math.prod(shape[dim : dim + 1]) if step else math.prod(where))
    return Picked(source, layout, touches[maps[0]], tuple(zip(sizes, bits, equal, strict=True)), pairs)


def _told_apart(ids: Signal) -> Layout:
    """Layout of known integers with at least one group for every dimension; factors of joined dimensions kept."""
    if ids.data is None or ids.equal is not None:
        return ids.layout
    factors = [f for dim in ids.layout.dims for f in dim]
    fine = len(factors) == ids.layout.groups and len(ids.data.shape) > 0
    return ids.layout if fine else separate(ids.layout.shape)


def _cut(factors: list[Factor], size: int) -> list[Factor]:
    keys = tuple(k for _, k in factors)
    return [(size, keys[0] if len(keys) == 1 else ("several", keys))]


def _groups(key: Hashable) -> set[int]:
    name, value = key  # type: ignore[misc]
    return {value} if name == "x" else {g for k in value for g in _groups(k)}


def _met(layout: Layout, own: int, count: int) -> Table:
    """Ordered pairs of picks at one place of the rest, by the mask in which they differ."""
    chance = np.ones(1)
    for g, n in enumerate(layout.sizes):
        low, high = (1 / n, 1 - 1 / n) if own >> g & 1 else (1.0, 1.0)
        chance = np.concatenate([chance * low, chance * high])
    return chance * float(count) ** 2


def _take(x: Signal, how: Picked, key: Hashable, op: Op) -> Signal:
    """The picked value: the same marginal."""
    table = how.take(conform(x.layout, x.cov, how.source))
    if not x.keys:
        return Signal(how.layout, x.nodes)
    if len(x.keys) > 1:
        return from_table(how.layout, x.mean, table, key).but(noise=dict(x.noise))
    corr = correlation_for(x.nodes, table)
    corr[0] = 1.0
    return Signal(how.layout, x.nodes, (key,), (corr,), noise=dict(x.noise), rigid=(0.0,))


@forward(Lookup)
def lookup(op: Lookup, inputs: Inputs, site: Site) -> Signal:
    """``table[ids]``: ``C[S] = p_equal C_t[rest] + (1 - p_equal) C_t[rest + rows]``."""
    if not math.prod(site.shape):  # nothing was found to look up
        return constant(separate(site.shape), 0.0)
    how = picked(inputs[0].layout, 0, inputs[1:], site.shape)
    if how is None:
        raise ValueError(f"a lookup of shape {site.shape} in a table of shape {inputs[0].layout.shape}")
    return _take(inputs[0], how, site.id, op)


@adjoint(Lookup)
def lookup_adjoint(op: Lookup, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Every place adds its gradient to its row: the mean over rows, used or not."""
    return _put(inputs[0], inputs[1:], 0, output.layout, grad)


def _put(x: Signal, ids: Inputs, dim: int, layout: Layout, grad: Table) -> tuple[Table | None, ...]:
    how = picked(x.layout, dim, ids, layout.shape)
    if how is None:
        out = np.zeros(1 << x.layout.groups)
        out[0] = float(grad[0]) * layout.size / max(x.layout.size, 1)
        return (out, *(None for _ in ids))
    return (_added(how, conform(layout, grad, how.layout), x.layout, dim), *(None for _ in ids))


def _added(how: Picked, table: Table, target: Layout, dim: int) -> Table:
    """What is put back, zeros where an index was too small to reach."""
    out, source = how.put(table), how.source
    for d, (n, m) in enumerate(zip(target.shape, how.layout.shape, strict=False)):
        if len(how.layout.shape) == len(target.shape) and d != dim and m < n and how.other.any():
            source, out = mapped(source, out, d, padding(0, n - m, "constant", m))
    return conform(source, out, target)


@forward(Gather)
def gather(op: Gather, inputs: Inputs, site: Site) -> Signal:
    """Entries of ``x`` at data-dependent places: the same marginal; pairs by the chance of the same place.

    A slice at a computed place keeps what its dimension has. Forms that fit neither (a mask) pick
    different entries anywhere.
    """
    x = inputs[0]
    if inputs[1].layout.size == 1 and len(site.shape) == len(x.layout.shape):
        layout, masks = resized(x.layout, site.shape)
        return moved(x, layout, op, masks)
    how = picked(x.layout, op.dim, inputs[1:], site.shape)
    if how is not None:
        return _take(x, how, site.id, op)
    layout = separate(site.shape)
    everywhere: dict[Hashable, int] = dict.fromkeys(range(layout.groups), (1 << x.layout.groups) - 1)
    return moved(x, layout, op, lift(layout, list(range(layout.groups)), everywhere))


@adjoint(Gather)
def gather_adjoint(op: Gather, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Gradients return to the entries picked."""
    return _put(inputs[0], inputs[1:], op.dim, output.layout, grad)


def _source_of(op: Scatter, base: Layout, ids: Inputs, src: Signal) -> tuple[Picked | None, tuple[int, ...]]:
    """The gather that a scatter undoes, and the shape its source has before broadcasting."""
    first = ids[0].layout.shape
    if len(ids) == 1 and len(first) == len(base.shape):
        shape = first
    else:
        where = np.broadcast_shapes(*(i.layout.shape for i in ids))
        shape = (*base.shape[: op.dim], *where, *base.shape[op.dim + len(ids) :])
    return picked(base, op.dim, ids, shape), shape


@forward(Scatter)
def scatter(op: Scatter, inputs: Inputs, site: Site) -> Signal:
    """``add``: the base and, independent of it, everything that falls on an entry. ``set``: a mixture of what
    stays and what is written; an index that is drawn twice writes once."""
    base, src = inputs[0], inputs[-1]
    how, shape = _source_of(op, base.layout, inputs[1:-1], src)
    if how is None:
        share = min(src.layout.size / max(base.layout.size, 1), 1.0)
        return blended([(base, 1 - share), (src, share)], base.layout, base.cov * (1 - share), site.id)
    layout, (m,) = align([src.layout], shape)
    written = conform(layout, src.cov[m], how.layout)
    if op.kind == "add":
        times = math.prod(shape) / max(base.layout.size, 1)
        cov = base.cov + _added(how, written, base.layout, op.dim) + 2 * base.mean * times * src.mean
        share = float(cov[0] - base.m2) / max(float(cov[0]), 1e-300)
        noise = inherited(base, src, weights=(1 - share, share))
        return from_table(base.layout, base.mean + times * src.mean, cov, site.id).but(noise=noise)
    q = _covered(how)
    both = _both_kept(how, q, base.layout)
    pair = _added(how, written, base.layout, op.dim) / np.maximum(
        _added(how, np.ones(written.size), base.layout, op.dim), 1e-300
    )
    table = both * base.cov + (1 - 2 * (1 - q) + both) * pair + 2 * (1 - q - both) * base.mean * src.mean
    return blended([(base, 1 - q), (src, q)], base.layout, table, site.id)


def _covered(how: Picked) -> float:
    """Share of the entries that at least one of the picks falls on."""
    n = math.prod(size for size, _, _ in how.dims)
    picks = math.sqrt(float(how.pairs.max())) if how.pairs.size == 1 else math.sqrt(float(_total(how)))
    return 1 - (1 - 1 / n) ** picks if n > 1 else 1.0


def _total(how: Picked) -> float:
    """Ordered pairs of picks at one place of the rest."""
    return float(how.pairs[how.other == 0].sum())


def _both_kept(how: Picked, q: float, target: Layout) -> Table:
    """Probability by mask that two entries are both not written: together at one place of the picked
    dimensions as far as the indices agree, else independently."""
    masks = np.arange(1 << how.source.groups)
    n = math.prod(size for size, _, _ in how.dims)
    bits = sum(bit for _, bit, _ in how.dims)
    together = np.ones(masks.size)
    agree = np.prod([e for _, _, e in how.dims], axis=0)
    for mask in masks:
        rest = mask & ~bits
        found = agree[(how.other == rest) & (_own(how) == 0)]
        p = float(found[0]) if found.size else 1.0
        alike = min(max((p - 1 / n) / max(1 - 1 / n, 1e-9), 0.0), 1.0)
        together[mask] = alike * (1 - q) + (1 - alike) * (1 - q) ** 2 if not mask & bits else (1 - q) ** 2
    return conform(how.source, together, target)


def _own(how: Picked) -> Mask:
    """Bits of the result's mask that no other dimension of the source accounts for."""
    single = [how.other[1 << g] == 0 for g in range(how.layout.groups)]
    own = sum(1 << g for g, alone_ in enumerate(single) if alone_)
    return np.arange(how.other.size) & own


@adjoint(Scatter)
def scatter_adjoint(op: Scatter, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """What was written over gets no gradient; what was written gets its own, if nothing came after it."""
    base, src = inputs[0], inputs[-1]
    how, shape = _source_of(op, base.layout, inputs[1:-1], src)
    to_base = conform(output.layout, grad, base.layout)
    none = (None,) * (len(inputs) - 2)
    if how is None:
        share = min(src.layout.size / max(base.layout.size, 1), 1.0)
        to_src = np.zeros(1 << src.layout.groups)
        to_src[0] = float(grad[0])
        return (to_base * (1.0 if op.kind == "add" else 1 - share), *none, to_src)
    back = how.take(conform(output.layout, grad, how.source))
    if op.kind == "set":
        q = _covered(how)
        to_base = to_base * _both_kept(how, q, base.layout)
        won = q * math.prod(n for n, _, _ in how.dims) / max(math.sqrt(_total(how)), 1.0)
        # two picks of one place do not both stay
        equal = np.prod([e for _, _, e in how.dims], axis=0)
        g = conform(output.layout, grad, how.source)
        lone = (how.other == 0) & (np.arange(back.size) != 0)
        back = np.where(lone, (back - equal * g[0]) / np.maximum(1 - equal, 1e-9), back)
        back = back * np.where(np.arange(back.size) == 0, won, won**2)
    full, (m,) = align([src.layout], shape)
    del m
    return (to_base, *none, gather_down(full, conform(how.layout, back, full), src.layout))


__all__ = ["Masks", "Picked", "equality", "picked"]

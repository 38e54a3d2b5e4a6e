"""Reductions, pooling and normalization.

A mean over ``n`` entries has ``C'[S] = C[S] / n + (1 - 1/n) C[S + A]``; a norm divides by a quantity
that a reduction over many entries makes nearly deterministic (Ioffe & Szegedy 2015; Ba et al. 2016).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from anyinit._core.field import GRID, WEIGHT, Nodes, Signal, constant, correlation_for, expect, from_table, gaussian
from anyinit._core.tables import Layout, Table, align, build, collapse, conform, gather_down, lift
from anyinit._graph.ops import Cumulate, Normalize, Pool, Reduce, Reshape, Sort
from anyinit._rules.base import Inputs, Site, adjoint, forward
from anyinit._rules.pointwise import as_source, region_tables
from anyinit._rules.structure import moved, reshape_layout


def _without(layout: Layout, dims: Sequence[int]) -> Layout:
    """The layout with some dimensions reduced to size one (keepdims)."""
    fresh, _ = build([() if d in dims else f for d, f in enumerate(layout.dims)])
    return fresh


def averaged(layout: Layout, table: Table, dims: Sequence[int]) -> tuple[Layout, Table, int]:
    """Second moments of the mean over ``dims`` (kept as size one), and the number averaged."""
    small = _without(layout, dims)
    fine, (a, b) = align([layout, small], layout.shape)
    count = layout.size // max(small.size, 1)
    return small, collapse(fine, table[a], b, small.groups), count


def _effective(x: Signal, dims: Sequence[int]) -> float:
    """Number of independent entries among those reduced over, from the field's own correlation."""
    spread = x.cov - x.mean**2
    if spread[0] <= 0:
        return 1.0
    _, table, count = averaged(x.layout, spread, dims)
    return float(np.clip(spread[0] / max(table[0], spread[0] / count), 1.0, count))


def extreme(nodes: Nodes, n: float, largest: bool) -> Nodes:
    """Node values of the maximum (minimum) of ``n`` independent copies: ``u -> u^(1/n)``."""
    order = np.argsort(nodes, kind="stable")
    sorted_nodes = nodes[order]
    level = np.cumsum(WEIGHT[order]) - 0.5 * WEIGHT[order]
    u = np.clip(ndtr(GRID), 1e-300, 1.0)
    if largest:
        at = np.exp(np.log(u) / n)
    else:
        at = -np.expm1(np.log1p(-np.clip(u, 0, 1 - 1e-16)) / n)
    return np.interp(ndtri(np.clip(at, 1e-300, 1 - 1e-16)), ndtri(np.clip(level, 1e-300, 1 - 1e-16)), sorted_nodes)


@forward(Reduce)
def reduce(op: Reduce, inputs: Inputs, site: Site) -> Signal:
    """Sums and means by the table; extremes by order statistics of the independent entries."""
    x = inputs[0]
    if len(x.keys) > 1:
        from anyinit._core.field import materialize

        x = materialize(x, ("m", site.id, 0))
    dims = op.dims
    small, table, count = averaged(x.layout, x.cov, dims)
    kind = op.kind
    if kind in {"sum", "mean"}:
        factor = float(count) if kind == "sum" else 1.0
        n = _effective(x, dims)
        like = x.nodes if n < 3 and x.nodes.ndim == 1 else (_positive(x, n) if _one_sided(x) else None)
        out = from_table(small, x.mean * factor, table * factor**2, site.id, like)
        plug = x.mean * factor
    elif kind in {"max", "min", "any", "all"}:
        out = _extreme(x, dims, small, kind in {"max", "any"}, site)
        plug = out.mean
    elif kind in {"norm", "var", "std", "logsumexp", "prod"}:
        plug = _closed(kind, x, dims, count, op.correction)
        out = constant(small, plug)
    else:
        return constant(_shaped(small, site), 0.0).but(equal=np.eye(1, 1 << _shaped(small, site).groups)[0])
    roots = frozenset(x.keys) | x.lineage
    out = out.but(noise=dict(x.noise) if kind not in {"logsumexp", "prod"} else {}, lineage=roots, plug=plug)
    return out if op.keepdims else _squeezed(out, site)


def _one_sided(x: Signal) -> bool:
    return x.nodes.ndim == 1 and float(np.min(x.nodes)) >= 0 and x.mean > 0


def _positive(x: Signal, n: float) -> Nodes:
    """Log-normal shape for the mean of ``n`` non-negative entries."""
    s = math.sqrt(math.log1p(x.variance / (n * x.mean**2)))
    return np.exp(s * GRID - 0.5 * s * s)


def _extreme(x: Signal, dims: Sequence[int], small: Layout, largest: bool, site: Site) -> Signal:
    """Extreme of the reduced entries; pairs outside keep the correlation they have across ``dims``."""
    if not x.keys:
        return constant(small, x.mean)
    n = _effective(x, dims)
    nodes = extreme(x.nodes, n, largest)
    _, corr, _ = averaged(x.layout, x.corr[0], dims)
    corr = np.clip(corr / max(corr[0], 1e-12), -1, 1)
    return Signal(small, nodes, (site.id,), (corr,), rigid=(0.0,))


def _closed(kind: str, x: Signal, dims: Sequence[int], count: int, correction: int) -> float:
    """Typical value of a reduction that a large count makes deterministic."""
    _, table, _ = averaged(x.layout, x.cov, dims)
    inside = max(x.m2 - float(table[0]), 0.0) * count / max(count - correction, 1)
    if kind == "norm":
        return math.sqrt(x.m2 * count)
    if kind == "var":
        return inside
    if kind == "std":
        return math.sqrt(inside)
    if kind == "logsumexp":
        return math.log(count) + math.log(max(expect(np.exp(np.minimum(x.nodes, 600.0))), 1e-300))
    return x.mean**count


def _shaped(small: Layout, site: Site) -> Layout:
    return small if small.shape == site.shape else reshape_layout(small, site.shape)[0]


def _squeezed(x: Signal, site: Site) -> Signal:
    layout, masks = reshape_layout(x.layout, site.shape)
    return moved(x, layout, Reshape(site.shape), masks).but(lineage=x.lineage, plug=x.plug)


def _wide(output: Signal, grad: Table, dims: Sequence[int], like: Layout) -> tuple[Layout, Table]:
    """A reduced gradient as a table over the input's layout (constant along ``dims``)."""
    shape = [1 if d in dims else n for d, n in enumerate(like.shape)]
    layout, masks = reshape_layout(output.layout, shape)
    small = grad if masks is None else grad[masks]
    fine, (a, b) = align([layout, like], like.shape)
    return like, collapse(fine, small[a], b, like.groups)


@adjoint(Reduce)
def reduce_adjoint(op: Reduce, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Sum and mean spread the gradient evenly; an extreme sends all of it to one entry in ``n``."""
    x = inputs[0]
    count = x.layout.size // max(output.layout.size, 1)
    like, table = _wide(output, grad, op.dims, x.layout)
    if op.kind == "sum":
        return (table,)
    if op.kind == "mean":
        return (table / count**2,)
    if op.kind in {"max", "min"}:
        masks = np.arange(table.size)
        return (table / count * np.where(masks == 0, 1.0, 1.0 / count),)
    if op.kind in {"norm", "std", "var", "logsumexp"}:
        scale = {"norm": 1 / count, "std": 1 / count, "var": 4 * x.variance / count**2, "logsumexp": 1 / count**2}[op.kind]
        sign = np.where(np.arange(table.size) == 0, 1.0, 0.0)
        return (table * scale * sign,)
    del like
    return (None,)


@forward(Normalize)
def normalize(op: Normalize, inputs: Inputs, site: Site) -> Signal:
    """``(x - mean) / sqrt(var + eps)``: what the normalized axes share is removed, the level fixed."""
    x = inputs[0]
    if len(x.keys) > 1:
        from anyinit._core.field import materialize

        x = materialize(x, ("m", site.id, 0))
    small, shared, count = averaged(x.layout, x.cov, op.dims)
    fine, (a, b) = align([x.layout, small], x.layout.shape)
    table = collapse(fine, x.cov[a] - shared[b], np.arange(1 << fine.groups), fine.groups) if op.center else x.cov[a]
    level = float(table[0])
    if level + op.eps <= 0 or count <= 1 and op.center:
        return constant(fine, 0.0)
    scale = 1 / math.sqrt(level + op.eps)
    if not x.keys:
        return constant(fine, 0.0 if op.center else x.mean * scale)
    removed = float(shared[0]) / x.m2 if op.center else 0.0
    mean = 0.0 if op.center else x.mean * scale
    out = from_table(fine, mean, table * scale**2, x.keys[0] if removed < 0.02 else site.id, x.nodes)
    # pairs along the normalized axes share the constraint that their squares sum to the count
    return out.but(noise={}, rigid=(1.0,) * len(out.keys))


@adjoint(Normalize)
def normalize_adjoint(op: Normalize, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """``(g - mean g - y mean(g y)) / sd`` (Ioffe & Szegedy 2015, sec. 3).

    What the gradient shares along the axes, and its part along ``y``, is projected out. ``E 1/sd^2`` exceeds
    ``1 / E sd^2`` where the axes hold few independent entries: for a gamma-distributed variance of relative
    variance ``r`` the ratio is ``1 / (1 - r)``. It is what makes gradients grow through batch norms.
    """
    x = inputs[0]
    g = conform(output.layout, grad, x.layout)
    small, shared, _ = averaged(x.layout, x.cov, op.dims)
    level = max(x.m2 - float(shared[0]) if op.center else x.m2, 1e-300)
    fine, (a, b) = align([x.layout, small], x.layout.shape)
    own = np.arange(1 << fine.groups)
    y = (x.cov[a] - shared[b] if op.center else x.cov[a]) / level
    wide = g[a]
    _, along, _ = averaged(fine, wide * y, op.dims)
    out = wide - y * along[_onto(fine, small)]
    if op.center:
        out = out - averaged(x.layout, g, op.dims)[1][b]
    r = float(averaged(fine, 2 * y * y, op.dims)[1][0])
    out[0] = max(float(out[0]), 0.0)
    table = collapse(fine, out, a, x.layout.groups) if fine.groups != x.layout.groups else out[own]
    return (table / (level + op.eps) / (1 - min(r, 0.8)),)


def _onto(fine: Layout, small: Layout) -> np.ndarray:
    """Masks of the reduced layout for every mask of the full one."""
    return align([fine, small], fine.shape)[1][1]


@forward(Pool)
def pool(op: Pool, inputs: Inputs, site: Site) -> Signal:
    """Average of a window: mean of its entries; maximum: order statistics of the independent ones."""
    x = inputs[0]
    if len(x.keys) > 1:
        from anyinit._core.field import materialize

        x = materialize(x, ("m", site.id, 0))
    n, bits = 1, 0
    for w in op.windows:
        n *= min(w.size, x.layout.shape[w.dim] + w.pad_low + w.pad_high)
        for _, g in x.layout.dims[w.dim]:
            bits |= 1 << g
    layout, masks = _windowed(x.layout, site.shape)
    m = np.arange(1 << layout.groups) if masks is None else masks
    if not x.keys:
        return constant(layout, x.mean)
    cov = x.cov
    inside, apart = cov[m], cov[m | bits]
    lone = (m & bits) == 0
    # terms that are the same entry in both windows, against terms that differ
    table = np.where(lone, inside / n + (1 - 1 / n) * apart, inside)
    if op.kind == "avg":
        valid = _valid(op, x.layout.shape, site.shape) if op.count_pad else 1.0
        spread = cov - x.mean**2
        eff = float(np.clip(spread[0] / max(spread[0] / n + (1 - 1 / n) * float(spread[bits]), 1e-300), 1, n)) if spread[0] > 0 else 1.0
        like = x.nodes if eff < 3 else (_positive(x, eff) if _one_sided(x) else None)
        return from_table(layout, x.mean * valid, table * valid**2, site.id, like).but(noise=dict(x.noise))
    spread = cov - x.mean**2
    eff = float(np.clip(spread[0] / max(spread[0] / n + (1 - 1 / n) * float(spread[bits]), 1e-300), 1, n)) if spread[0] > 0 else 1.0
    eff = max(eff * _valid(op, x.layout.shape, site.shape), 1.0)
    nodes = extreme(x.nodes, eff, True)
    corr = x.corr[0]
    held = np.where(lone, np.minimum(corr[m], 1.0), corr[m])
    return Signal(layout, nodes, (site.id,), (held,), noise=dict(x.noise), rigid=(0.0,))


def _valid(op: Pool, before: tuple[int, ...], after: tuple[int, ...]) -> float:
    """Share of window entries that are not padding."""
    share = 1.0
    for w in op.windows:
        o, t = np.arange(after[w.dim]), np.arange(w.size)
        at = o[:, None] * w.stride + t[None] * w.dilation - w.pad_low
        share *= float(((at >= 0) & (at < before[w.dim])).mean())
    return share


def _windowed(layout: Layout, shape: tuple[int, ...]) -> tuple[Layout, np.ndarray | None]:
    from anyinit._rules.structure import _resized  # pyright: ignore[reportPrivateUsage]

    return _resized(layout, shape)


@adjoint(Pool)
def pool_adjoint(op: Pool, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Average: each entry gets ``1/n`` from every window over it; maximum: all from the windows it wins."""
    from anyinit._rules.structure import _loose  # pyright: ignore[reportPrivateUsage]

    x = inputs[0]
    n = math.prod(w.size for w in op.windows)
    fine, (a, b) = _loose(output.layout, x.layout)
    table = collapse(fine, grad[a], b, x.layout.groups)
    ratio = output.layout.size / x.layout.size
    covered = ratio * n
    masks = np.arange(table.size)
    if op.kind == "avg":
        apart = float(np.mean(table[1:])) if table.size > 1 else float(table[0])
        del apart
        same = (covered * table[0] + covered * max(covered - 1, 0) * _near(output, grad, op)) / n**2
        return (np.where(masks == 0, same, table * (covered / n) ** 2),)
    table = table * _at_winners(x, n)
    return (table * np.where(masks == 0, ratio, ratio**2),)


def _at_winners(x: Signal, n: int) -> float:
    """Mean squared slope of the region before, at the entries that win a maximum, over that at all."""
    varying = [s for s in x.sources.values() if s.nodes.ndim == 1 and s.deriv.ndim == 1]
    if x.nodes.ndim != 1 or not varying:
        return 1.0
    square = varying[0].deriv ** 2
    order = np.argsort(x.nodes, kind="stable")
    level = np.empty_like(WEIGHT)
    level[order] = np.cumsum(WEIGHT[order]) - 0.5 * WEIGHT[order]
    win = WEIGHT * level ** (n - 1)
    everywhere = float(WEIGHT @ square)
    return float(win @ square) / float(win.sum()) / everywhere if everywhere > 0 else 1.0


def _near(output: Signal, grad: Table, op: Pool) -> float:
    bits = 0
    for w in op.windows:
        for _, g in output.layout.dims[w.dim]:
            bits |= 1 << g
    return float(grad[bits])


@forward(Cumulate)
def cumulate(op: Cumulate, inputs: Inputs, site: Site) -> Signal:
    """Running sum: position ``t`` adds ``t`` terms; levels are averages over positions."""
    x = inputs[0]
    n = x.layout.shape[op.dim]
    bits = sum({1 << g for _, g in x.layout.dims[op.dim]})
    if op.kind != "sum" or n == 1:
        return x.but(sources={})
    masks = np.arange(x.cov.size)
    t = np.arange(1, n + 1, dtype=float)
    lone = (masks & bits) == 0
    same, cross = float(t.mean()), float((t * (t - 1)).mean())
    low = np.minimum.outer(t, t)
    pairs = n * (n - 1)
    apart = float((low.sum() - t.sum()) / pairs)
    both = float((np.multiply.outer(t, t) - low).sum() - (t * t - t).sum()) / pairs
    c0, c1 = x.cov[masks & ~bits], x.cov[masks | bits]
    table = np.where(lone, same * c0 + cross * c1, apart * c0 + both * c1)
    return from_table(x.layout, x.mean * same, table, site.id).but(noise=dict(x.noise))


@adjoint(Cumulate)
def cumulate_adjoint(op: Cumulate, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """A running sum from the other end."""
    g = Signal(output.layout, np.sqrt(max(float(grad[0]), 0.0)) * GRID, ("g",), (correlation_for(GRID, grad / max(float(grad[0]), 1e-300)),))
    back = cumulate(op, (g,), Site(-1, output.layout.shape))
    return (conform(back.layout, back.cov, inputs[0].layout),)


@forward(Sort)
def sort(op: Sort, inputs: Inputs, site: Site) -> Signal:
    """Sorted values have the same marginal; the top ``k`` of ``n`` its upper part."""
    x = inputs[0]
    n = x.layout.shape[op.dim]
    layout, masks = _windowed(x.layout, site.shape)
    m = np.arange(1 << layout.groups) if masks is None else masks
    if op.k is None or op.k >= n or x.nodes.ndim != 1:
        return moved(x, layout, op, masks)
    share = op.k / n
    u = ndtr(GRID)
    at = ndtri(np.clip(1 - share * (1 - u) if op.descending else share * u, 1e-16, 1 - 1e-16))
    order = np.argsort(x.nodes, kind="stable")
    level = np.cumsum(WEIGHT[order]) - 0.5 * WEIGHT[order]
    nodes = np.interp(at, ndtri(np.clip(level, 1e-300, 1 - 1e-16)), x.nodes[order])
    return Signal(layout, nodes, (site.id,), (x.corr[0][m],), noise=dict(x.noise), rigid=(0.0,))


@adjoint(Sort)
def sort_adjoint(op: Sort, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Gradients go back to where the entries came from."""
    from anyinit._rules.structure import spread_back

    return (spread_back(output, grad, inputs[0], op.dim),)


__all__ = ["Hashable", "as_source", "averaged", "extreme", "gather_down", "gaussian", "lift", "region_tables"]

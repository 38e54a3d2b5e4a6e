"""Reductions, pooling and normalization.

A mean over ``n`` entries has ``C'[S] = C[S] / n + (1 - 1/n) C[S + A]``; a norm divides by a quantity
that a reduction over many entries makes nearly deterministic (Ioffe & Szegedy 2015; Ba et al. 2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from anyinit._core.field import GRID, WEIGHT, Nodes, Signal, constant, from_table, materialize
from anyinit._core.tables import Layout, Table, align, build, collapse, conform
from anyinit._graph.ops import Normalize, Reduce, Reshape
from anyinit._rules.attention import alike, concentration, log_sum, weights_table
from anyinit._rules.base import Inputs, Site, adjoint, forward
from anyinit._rules.order import agreement, extreme, pair_correlation, ranked
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


@forward(Reduce)
def reduce(op: Reduce, inputs: Inputs, site: Site) -> Signal:
    """Sums and means by the table; extremes by order statistics of the independent entries."""
    x = inputs[0]
    x = materialize(x, ("m", site.id, 0))
    dims = op.dims
    small, table, count = averaged(x.layout, x.cov, dims)
    kind = op.kind
    if kind in {"sum", "mean"}:
        factor = float(count) if kind == "sum" else 1.0
        like = like_of_mean(x, _effective(x, dims))
        out = from_table(small, x.mean * factor, table * factor**2, site.id, like)
        plug = x.mean * factor
    elif kind in {"max", "min", "any", "all"}:
        out = _extreme(x, dims, small, kind in {"max", "any"}, site)
        plug = out.mean
    elif kind in {"norm", "var", "std"}:
        out, plug = _quadratic(kind, x, dims, small, op.correction, site)
    elif kind == "logsumexp":
        out, plug = _log_sum(x, dims, small, count, site)
    elif kind == "prod":
        out, plug = _product(x, dims, small, count, site)
    else:
        return _place(_shaped(small, site), count, site)
    roots = frozenset(x.keys) | x.lineage
    slope = {"var": 2.0, "prod": float(count)}.get(kind, 1.0)
    if kind == "logsumexp":
        slope = _log_slope(x, dims, count, out)
    noise = {k: slope * v for k, v in x.noise.items()} if slope != 1.0 else dict(x.noise)
    out = out.but(noise=noise, lineage=roots, plug=plug)
    return out if op.keepdims else _squeezed(out, site)


def _place(layout: Layout, count: int, site: Site) -> Signal:
    """The place of an extreme: uniform over the reduced entries, independent from one reduction to another."""
    alone = np.where(np.arange(1 << layout.groups) == 0, 1.0, 0.0)
    equal = np.where(alone > 0, 1.0, 1.0 / max(count, 1))
    if count < 2:
        return constant(layout, 0.0).but(equal=equal)
    nodes = np.minimum(np.floor(count * (np.cumsum(WEIGHT) - 0.5 * WEIGHT)), count - 1)
    return Signal(layout, nodes, (site.id,), (alone,), rigid=(0.0,), equal=equal)


def like_of_mean(x: Signal, n: float) -> Nodes | None:
    """Shape of the mean of about ``n`` independent entries: their own below three, log-normal for entries
    of one sign, Gaussian (None) otherwise."""
    if x.nodes.ndim != 1 or n < 3:
        return x.nodes if x.nodes.ndim == 1 else None
    if float(np.min(x.nodes)) < 0 or x.mean <= 0:
        return None
    s = math.sqrt(math.log1p(x.variance / (n * x.mean**2)))
    return np.exp(s * GRID - 0.5 * s * s)


def _extreme(x: Signal, dims: Sequence[int], small: Layout, largest: bool, site: Site) -> Signal:
    """Extreme of the reduced entries: order statistics of their latent field."""
    if not x.keys:
        return constant(small, x.mean)
    nodes, corr = ranked(x)
    _, every, count = averaged(x.layout, corr, dims)
    bits = sum({1 << g for d in dims for _, g in x.layout.dims[d]})
    fine, (a, b) = align([x.layout, small], x.layout.shape)
    paired = collapse(fine, corr[a & ~bits], b, small.groups)
    apart = (every - paired / count) / (1 - 1 / count) if count > 1 else every
    out = extreme(nodes, float(apart[0]), count, largest)
    return Signal(small, out, (site.id,), (pair_correlation(paired, apart, count),), rigid=(0.0,))


def _quadratic(
    kind: str, x: Signal, dims: Sequence[int], small: Layout, correction: int, site: Site
) -> tuple[Signal, float]:
    """Norm, variance or deviation: typical value, and its fluctuation to second order in that of the mean
    square (of Gaussian entries about their shared part)."""
    _, shared, count = averaged(x.layout, x.cov, dims)
    if kind == "norm":
        level = x.m2 * count
        _, pairs, _ = averaged(x.layout, x.square_cov / max(x.m2**2, 1e-300) - 1, dims)
    else:
        inside = max(x.m2 - float(shared[0]), 1e-300)
        level = inside * count / max(count - correction, 1)
        fine, (a, b) = align([x.layout, small], x.layout.shape)
        y = (x.cov[a] - shared[b]) / inside
        _, pairs, _ = averaged(fine, 2 * y * y, dims)
    pairs = np.maximum(pairs, 0.0)
    spread = math.sqrt(math.log1p(float(pairs[0])))  # log-normal: what stands under a division stays positive
    if kind == "var":
        like = np.exp(spread * GRID)
        return from_table(small, level, level**2 * (1 + pairs), site.id, like), level
    plug = math.sqrt(level)
    if pairs[0] < 1e-3:
        return constant(small, plug), plug
    first = plug * (1 - min(float(pairs[0]), 1.0) / 8)
    like = np.exp(spread / 2 * GRID)
    return from_table(small, first, level * (1 - (pairs[0] - pairs) / 4), site.id, like), first


def _log_sum(x: Signal, dims: Sequence[int], small: Layout, count: int, site: Site) -> tuple[Signal, float]:
    """``log sum e^x`` of Gaussian entries given their shared part (see the softmax)."""
    spread = x.cov - x.mean**2
    bits = sum({1 << g for d in dims for _, g in x.layout.dims[d]})
    fine, (a, b) = align([x.layout, small], x.layout.shape)
    shared, paired = (collapse(fine, spread[m], b, small.groups) for m in (a | bits, a & ~bits))
    within = max(float(paired[0] - shared[0]), 0.0)
    level, own = log_sum(within, count)
    rho = np.clip((paired - shared) / max(within, 1e-300), 0.0, 1.0)
    mean = x.mean + level
    return from_table(small, mean, mean**2 + shared + rho * own, site.id), mean


def _log_slope(x: Signal, dims: Sequence[int], count: int, out: Signal) -> float:
    """Growth of the log level of ``log sum e^x`` with that of ``x``."""
    bits = sum({1 << g for d in dims for _, g in x.layout.dims[d]})
    within = max(float(x.cov[0] - x.cov[bits]), 0.0)
    spread = out.m2 - out.mean**2
    rise = x.mean + within * (1 - concentration(round(math.sqrt(within), 3), count))
    return (out.mean * rise + spread) / out.m2 if out.m2 > 0 else 1.0


def _product(x: Signal, dims: Sequence[int], small: Layout, count: int, site: Site) -> tuple[Signal, float]:
    """Product of independent entries: products of their pairs, log-normal where they keep one sign."""
    bits = sum({1 << g for d in dims for _, g in x.layout.dims[d]})
    fine, (a, b) = align([x.layout, small], x.layout.shape)
    pair = collapse(fine, x.cov[a & ~bits], b, small.groups)
    mean = x.mean**count
    like = None
    if x.mean > 0 and x.keys:
        s = math.sqrt(count * math.log(max(x.m2 / x.mean**2, 1.0)))
        like = np.exp(min(s, 3.0) * GRID)
    return from_table(small, mean, np.sign(pair) ** count * np.abs(pair) ** count, site.id, like), mean


def _shaped(small: Layout, site: Site) -> Layout:
    return small if small.shape == site.shape else reshape_layout(small, site.shape)[0]


def _squeezed(x: Signal, site: Site) -> Signal:
    layout, masks = reshape_layout(x.layout, site.shape)
    return moved(x, layout, Reshape(site.shape), masks).but(lineage=x.lineage, plug=x.plug)


def _wide(output: Signal, grad: Table, dims: Sequence[int], like: Layout) -> Table:
    """A reduced gradient as a table over the input's layout (constant along ``dims``)."""
    shape = [1 if d in dims else n for d, n in enumerate(like.shape)]
    layout, masks = reshape_layout(output.layout, shape)
    small = grad if masks is None else grad[masks]
    fine, (a, b) = align([layout, like], like.shape)
    return collapse(fine, small[a], b, like.groups)


@adjoint(Reduce)
def reduce_adjoint(op: Reduce, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Sum and mean spread the gradient evenly; an extreme sends all of it to one entry in ``n``."""
    x = inputs[0]
    count = x.layout.size // max(output.layout.size, 1)
    table = _wide(output, grad, op.dims, x.layout)
    if op.kind == "sum":
        return (table,)
    if op.kind == "mean":
        return (table / count**2,)
    if op.kind in {"max", "min"}:
        return (_to_extreme(x, table, op.dims),)
    slopes = _slope_table(op, x, count)
    return (None,) if slopes is None else (table * slopes,)


def _slope_table(op: Reduce, x: Signal, count: int) -> Table | None:
    """``E[s_i s_j]`` by mask of the slopes of a smooth reduction; None for integers."""
    bits = sum({1 << g for d in op.dims for _, g in x.layout.dims[d]})
    masks = np.arange(x.cov.size)
    if op.kind == "norm":
        return x.cov / (max(x.m2, 1e-300) * count)
    if op.kind == "logsumexp":
        spread = x.cov - x.mean**2
        within = max(float(spread[0] - spread[bits]), 0.0)
        square = concentration(round(math.sqrt(within), 3), count)
        return weights_table(square, 1 / count, within, alike(spread, bits, within), bits, count)
    if op.kind == "prod":
        same = x.cov[masks & ~bits]
        one, two = np.abs(same) ** (count - 1), np.abs(same) ** max(count - 2, 0) * x.mean**2
        return np.where(masks & bits, two, one)
    if op.kind not in {"var", "std"}:
        return None
    small, shared, _ = averaged(x.layout, x.cov, op.dims)
    fine, (a, b) = align([x.layout, small], x.layout.shape)
    y = collapse(fine, x.cov[a] - shared[b], a, x.layout.groups)
    left = max(count - op.correction, 1)
    return 4 * y / left**2 if op.kind == "var" else y / (max(float(y[0]), 1e-300) * count * left)


def _to_extreme(x: Signal, table: Table, dims: Sequence[int]) -> Table:
    """All of a gradient at the extreme's place: never at two places of one reduction, at the same place of two
    reductions with the probability that they agree."""
    nodes_corr = ranked(x)[1] if len(x.corr) == 1 else np.eye(1, x.cov.size)[0]
    masks = np.arange(table.size)
    bits = sum({1 << g for d in dims for _, g in x.layout.dims[d]})
    _, every, count = averaged(x.layout, nodes_corr, dims)
    mean = (float(every[0]) - 1 / count) / (1 - 1 / count) if count > 1 else 0.0
    agree = agreement(nodes_corr[masks & ~bits], np.where(masks & ~bits, nodes_corr[masks | bits], mean), count)
    share = np.where(masks & bits, (1 - agree) / max(count * (count - 1), 1), agree / count)
    return table * share


@forward(Normalize)
def normalize(op: Normalize, inputs: Inputs, site: Site) -> Signal:
    """``(x - mean) / sqrt(var + eps)``: what the normalized axes share is removed, the level fixed."""
    x = inputs[0]
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
    left = op.eps / (level + op.eps)
    return out.but(noise={k: left * v for k, v in x.noise.items()} if left > 1e-3 else {}, rigid=(1.0,) * len(out.keys))


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
    entries = float(averaged(fine, 2 * y * y, op.dims)[1][0])
    r = entries + _finite_fan(x, op.dims)
    out[0] = max(float(out[0]), 0.0)
    r = min(r, 0.8)
    full = 1 / (1 - r)
    if op.center and math.prod(x.layout.shape[d] for d in op.dims) == 2:
        inside = sum({1 << b_ for d in op.dims for _, b_ in fine.dims[d]})
        left = y * along[_onto(fine, small)] * along_of_two(op.eps / level) / full
        out = out + np.where(own & ~inside, 0.0, left)
    table = collapse(fine, out, a, x.layout.groups) if fine.groups != x.layout.groups else out[own]
    # other norms fluctuate on their own where their entries do
    masks = np.arange(table.size)
    bits = sum({1 << g_ for d in op.dims for _, g_ in x.layout.dims[d]})
    alike = np.clip((x.cov - (0.0 if op.center else x.mean**2)) / level, -1.0, 1.0)[masks & ~bits] ** 2
    grown = np.where(masks & ~bits, (1 - r / 4) + (full - 1 + r / 4) * alike, full)
    return (table / (level + op.eps) * grown,)


def along_of_two(eps: float) -> float:
    """``(1 + e) E e^2/(z^2 + e)^3``, ``z`` standard normal: what the norm of two entries passes of a gradient, relative
    to ``1 / (1 + e)``. All of it lies along the normalized direction, where only ``e`` lets anything pass, and comes
    from the rare pairs that are nearly equal: about ``0.47 / sqrt(e)``."""
    u = np.sinh(np.linspace(-25.0, 25.0, 8001))  # of z = sqrt(e) u
    f = np.exp(-0.5 * eps * u * u) / (1 + u * u) ** 3 * np.sqrt(1 + u * u)
    return float((1 + eps) * f.sum() * (50.0 / 8000) / math.sqrt(2 * math.pi * eps)) if eps > 0 else 0.0


def unit_growth(op: Normalize, x: Signal) -> float:
    """Growth of a gradient through a norm that comes from the fluctuation of each unit's own weights: passed on
    through these weights it cancels, as a norm undoes their scale."""
    fan = _finite_fan(x, op.dims)
    if fan <= 0:
        return 1.0
    small, shared, _ = averaged(x.layout, x.cov, op.dims)
    level = max(x.m2 - float(shared[0]) if op.center else x.m2, 1e-300)
    fine, (a, b) = align([x.layout, small], x.layout.shape)
    y = (x.cov[a] - shared[b] if op.center else x.cov[a]) / level
    entries = float(averaged(fine, 2 * y * y, op.dims)[1][0])
    return (1 - min(entries, 0.8)) / (1 - min(entries + fan, 0.8))


def _finite_fan(x: Signal, dims: Sequence[int]) -> float:
    """What a finite fan-in adds to the relative variance of a unit's own variance, ``2 / fan`` for independent
    inputs, where each unit is normalized by itself (the axis of independent units is not among ``dims``)."""
    if not x.wobble or not x.corr:
        return 0.0
    inside = {g for d in dims for _, g in x.layout.dims[d]}
    units = [g for g in range(x.layout.groups) if g not in inside and abs(float(x.corr[0][1 << g])) < 1e-9]
    return 2 * sum(x.wobble) * math.prod(x.layout.sizes[g] for g in units) if units else 0.0


def _onto(fine: Layout, small: Layout) -> np.ndarray:
    """Masks of the reduced layout for every mask of the full one."""
    return align([fine, small], fine.shape)[1][1]

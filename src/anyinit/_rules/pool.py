"""Pooling and running sums: windows along single dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from anyinit._core.field import WEIGHT, Signal, constant, from_table, gaussian, materialize
from anyinit._core.tables import Layout, Table, conform
from anyinit._graph.ops import Cumulate, Pool
from anyinit._rules.axis import AxisMap, mapped, running, windows
from anyinit._rules.base import Inputs, Site, adjoint, forward
from anyinit._rules.order import agreement, extreme, pair_correlation, ranked
from anyinit._rules.reduce import like_of_mean

Maps = Sequence[tuple[int, AxisMap]]


def maps_of(op: Pool, before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[int, AxisMap]]:
    """One averaging map for each pooled dimension; only a counted padding takes part in an average."""
    real = op.kind != "avg" or not op.count_pad
    out: list[tuple[int, AxisMap]] = []
    for w in op.windows:
        n, m = before[w.dim], after[w.dim]
        out.append((w.dim, windows(w.size, w.stride, w.pad_low, w.dilation, n, m, real)))
    return out


def through(layout: Layout, table: Table, maps: Maps, paired: bool = False) -> tuple[Layout, Table]:
    """The maps one after another; ``paired`` keeps only terms from one entry met by both outputs."""
    for dim, by in maps:
        layout, table = mapped(layout, table, dim, by, paired)
    return layout, table


@forward(Pool)
def pool(op: Pool, inputs: Inputs, site: Site) -> Signal:
    """Average: windows as linear maps of each dimension, exact for pairs of overlapping windows.
    Maximum: order statistics of the entries' latent field."""
    x = materialize(inputs[0], ("m", site.id, 0))
    maps = maps_of(op, x.layout.shape, site.shape)
    gain = math.prod(by.mean for _, by in maps)
    if not x.keys:
        lone, _ = through(x.layout, x.cov, maps)
        size = math.sqrt(1 / max(math.prod(by.pairs()[0] for _, by in maps), 1e-300)) if op.kind == "lp" else 1.0
        return constant(lone, x.mean * (abs(gain) if op.kind == "avg" else size))
    if op.kind == "max":
        return _highest(x, maps, site)
    if op.kind == "lp":
        return _length(x, maps, site)
    layout, table = through(x.layout, x.cov, maps)
    mean = x.mean * gain
    _, spread = through(x.layout, x.cov - x.mean**2, maps)
    share = math.prod(by.rows / by.after for _, by in maps)
    like = like_of_mean(x, x.variance * share / max(float(spread[0]), 1e-300))
    return from_table(layout, mean, table, site.id, like).but(noise=dict(x.noise))


def _highest(x: Signal, maps: Maps, site: Site) -> Signal:
    nodes, corr = ranked(x)
    layout, paired, apart, n = _met(x.layout, corr, maps)
    out = extreme(nodes, float(apart[0]), n, True)
    return Signal(layout, out, (site.id,), (pair_correlation(paired, apart, n),), noise=dict(x.noise), rigid=(0.0,))


def _met(layout: Layout, corr: Table, maps: Maps) -> tuple[Layout, Table, Table, float]:
    """Layout of the windows; correlation of their entries at the same and at different places; entries of one
    window. Overlapping windows share some entries: those are met at the same place."""
    after, every = through(layout, corr, maps)
    _, paired = through(layout, corr, maps, True)
    _, met = through(layout, np.ones_like(corr), maps, True)
    n = 1 / max(float(met[0]), 1e-300)
    apart = (every - paired) / np.maximum(1 - met, 1e-9) if n > 1 + 1e-9 else every
    same = np.where(met > 1e-12, paired / np.maximum(met, 1e-300), apart)
    return after, apart + (same - apart) * np.minimum(met * n, 1.0), apart, n


def _length(x: Signal, maps: Maps, site: Site) -> Signal:
    """``sqrt(sum x^2)`` of a window, to second order in the fluctuation of the sum."""
    layout, mean = through(x.layout, x.square_cov, maps)
    n = 1 / math.prod(by.pairs()[0] for _, by in maps)
    level = x.m2 * n
    spread = np.maximum(mean * n * n - level**2, 0.0)
    table = level * (1 - (spread[0] - spread) / (4 * level**2))
    first = math.sqrt(level) * (1 - spread[0] / (8 * level**2))
    return from_table(layout, first, table, site.id).but(noise=dict(x.noise))


@adjoint(Pool)
def pool_adjoint(op: Pool, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Average: the transposed maps. Length: the same, times the entries' own direction. Maximum: a window's
    gradient goes to one entry."""
    x = inputs[0]
    maps = maps_of(op, x.layout.shape, output.layout.shape)
    layout, table = through(output.layout, grad, [(dim, by.transposed) for dim, by in maps])
    table = conform(layout, table, x.layout)
    if op.kind == "lp":
        n = 1 / math.prod(by.pairs()[0] for _, by in maps)
        return (table * n * x.cov / max(x.m2, 1e-300),)
    return (table if op.kind == "avg" else _to_winners(x, output, grad, maps, table),)


def _to_winners(x: Signal, output: Signal, grad: Table, maps: Maps, table: Table) -> Table:
    """Gradient of a maximum from that of an average: two windows at one place (of different samples, say)
    agree on the winner with some probability, a window with itself always, and two overlapping windows once
    in about ``1.5 n``."""
    _, corr = ranked(x) if len(x.corr) == 1 else (None, np.eye(1, x.cov.size)[0])
    back = [(dim, by.transposed) for dim, by in maps]
    layout, own = through(output.layout, grad, back, True)
    own = conform(layout, own, x.layout)
    masks = np.arange(table.size)
    bits = sum({1 << g for dim, _ in maps for _, g in x.layout.dims[dim]})
    _, _, apart, n = _met(x.layout, corr, maps)
    agree = agreement(corr[masks & ~bits], np.where(masks & ~bits, corr[masks | bits], apart[0]), n)
    factor = np.where(masks & bits, n * (1 - agree) / max(n - 1, 1e-9), n * agree)
    out = table + own * (factor - 1)
    out[0] = float(own[0]) * n + float(table[0] - own[0]) * n / 1.5
    return out * _slope_at_winners(x, n)


def _slope_at_winners(x: Signal, n: float) -> float:
    """Mean squared slope of the elementwise region before, at the entries that win, over that at all."""
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


@forward(Cumulate)
def cumulate(op: Cumulate, inputs: Inputs, site: Site) -> Signal:
    """Running sum: a linear map, levels averaged over positions. Running product: moments of a product
    of independent entries, averaged over positions."""
    x = materialize(inputs[0], ("m", site.id, 0))
    n = x.layout.shape[op.dim]
    if n == 1 or not x.keys and op.kind == "prod":
        return x.but(sources={})
    if op.kind == "prod":
        t = np.arange(1, n + 1)
        bits = sum({1 << g for _, g in x.layout.dims[op.dim]})
        masks = np.arange(x.cov.size)
        lower = np.minimum.outer(t, t)
        off = lower != np.maximum.outer(t, t)
        apart = x.mean ** np.abs(np.subtract.outer(t, t))[off]
        table = np.array([
            float(np.mean(x.cov[m & ~bits] ** lower[off] * apart)) if m & bits else float(np.mean(x.cov[m] ** t))
            for m in masks
        ])  # fmt: skip
        slope = float(np.sum(t * x.m2**t) / np.sum(x.m2**t))
        out = from_table(x.layout, float(np.mean(x.mean**t)), table, site.id)
        return out.but(noise={k: slope * v for k, v in x.noise.items()})
    layout, table = mapped(x.layout, x.cov, op.dim, running(n))
    return _uneven(x, op.dim, layout, table, site).but(noise=dict(x.noise))


def _uneven(x: Signal, dim: int, layout: Layout, table: Table, site: Site) -> Signal:
    """Gaussian sums whose variance grows along the axis: the kurtosis of their mixture."""
    n = x.layout.shape[dim]
    t = np.arange(1.0, n + 1)
    shared = float(x.cov[sum({1 << g for _, g in x.layout.dims[dim]})])
    level = t * (x.m2 - shared) + t * t * shared
    kurtosis = 3 * float(np.mean(level**2)) / max(float(np.mean(level)) ** 2, 1e-300)
    return gaussian(layout, x.mean * (n + 1) / 2, table, site.id, kurtosis)


@adjoint(Cumulate)
def cumulate_adjoint(op: Cumulate, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """A running sum from the other end; of a product, weighted by the product over the entry."""
    x = inputs[0]
    table = grad
    if op.kind == "prod":
        table = grad * output.cov / max(x.m2, 1e-300)
    layout, table = mapped(output.layout, table, op.dim, running(output.layout.shape[op.dim]))
    return (conform(layout, table, x.layout),)

"""Extremes and order statistics of entries that share part of their latent field.

Entries with latent correlation ``rho`` are ``sqrt(rho) U + sqrt(1 - rho) V_i``: the largest of ``n`` is
``sqrt(rho) U + sqrt(1 - rho) max V_i``, and a monotone function of the field commutes with it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import bdtr, betaln, log_ndtr, ndtr, ndtri

from anyinit._core.field import GRID, WEIGHT, Nodes, Signal, correlation_for, expect, quantiles
from anyinit._core.tables import Table
from anyinit._graph.ops import Sort
from anyinit._rules.base import Inputs, Site, adjoint, forward
from anyinit._rules.structure import moved, resized, spread_back

_U, _RAW = np.polynomial.hermite_e.hermegauss(24)
_UW = _RAW / _RAW.sum()
_Z = np.linspace(-8.5, 8.5, 341)


def ranked(x: Signal) -> tuple[Nodes, Table]:
    """Non-decreasing nodes with the value's marginal, and the latent correlations that go with them."""
    if bool(np.all(np.diff(x.nodes) >= 0)):
        return x.nodes, x.corr[0]
    if bool(np.all(np.diff(x.nodes) <= 0)):
        return x.nodes[::-1].copy(), x.corr[0]
    nodes = quantiles(x.nodes, WEIGHT)
    return nodes, correlation_for(nodes, x.cov)


@lru_cache(maxsize=2048)
def _largest(rho: float, n: float, k: int) -> Nodes:
    """Latent value, on the grid, of an entry drawn from the ``k`` largest of ``n`` (``n`` may be
    fractional for ``k = 1``): the quantile transform of its distribution function."""
    z = (_Z[:, None] - math.sqrt(rho) * _U[None]) / math.sqrt(max(1 - rho, 1e-12))
    if k == 1:
        below = np.exp(n * log_ndtr(z))
        above = -np.expm1(n * log_ndtr(z))
    else:
        tail = ndtr(-z)
        below = np.mean([bdtr(j, int(n), tail) for j in range(k)], axis=0)
        above = 1 - below
    low, high = below @ _UW, above @ _UW
    level = np.where(low < 0.5, ndtri(np.maximum(low, 1e-300)), -ndtri(np.maximum(high, 1e-300)))
    keep = np.isfinite(level) & (np.abs(level) < 8.2)
    level, at = level[keep], _Z[keep]
    order = np.concatenate([[True], np.diff(level) > 1e-9])
    level, at = level[order], at[order]
    inside = np.interp(GRID, level, at)
    # tails as straight lines through the last resolved points
    left, right = (at[1] - at[0]) / (level[1] - level[0]), (at[-1] - at[-2]) / (level[-1] - level[-2])
    inside = np.where(level[0] > GRID, at[0] + left * (GRID - level[0]), inside)
    out = np.where(level[-1] < GRID, at[-1] + right * (GRID - level[-1]), inside)
    out.setflags(write=False)
    return out


def largest(rho: float, n: float, k: int = 1) -> Nodes:
    """Cached by a correlation rounded to 1/500."""
    return _largest(round(min(max(rho, 0.0), 0.9999), 3) if rho < 0.998 else 0.9999, round(float(n), 3), k)


def spread_of(n: float) -> float:
    """Variance of the largest of ``n`` independent standard normals."""
    z = largest(0.0, n)
    return expect(z * z) - expect(z) ** 2


def extreme(nodes: Nodes, rho: float, n: float, top: bool, k: int = 1) -> Nodes:
    """Node values of an entry among the ``k`` largest (smallest) of ``n`` with latent correlation ``rho``."""
    z = largest(rho, n, k)
    return np.interp(z if top else -z[::-1], GRID, nodes)


def mean_of(n: float) -> float:
    """Mean of the largest of ``n`` independent standard normals."""
    return expect(largest(0.0, n))


def pair_correlation(paired: Table, apart: Table, n: float) -> Table:
    """Latent correlation of two extremes of ``n`` entries: from entries at the same place (``paired``) and at
    different places. Beyond what all entries share, extremes correlate by ``1 / (n v)`` of their entries'
    correlation to first order (``v`` the variance of an extreme), and fully where that is one."""
    v = spread_of(n)
    rest = max(1 - float(apart[0]), 1e-9)
    t = np.clip((paired - apart) / rest, -1.0, 1.0)
    slope = min(1 / (n * v), 1.0)
    shared = apart + v * rest * (slope * t + (1 - slope) * t * np.abs(t))
    out = np.clip(shared / max(float(shared[0]), 1e-12), -1.0, 1.0)
    out[0] = 1.0
    return out


def agreement(paired: Table, apart: Table, n: float) -> Table:
    """Probability that two sets of ``n`` entries have their extreme at the same place: ``1 / n`` when they are
    unrelated, ``m^2 / (n - 1)`` more to first order in their correlation (``m`` the mean extreme), one at one."""
    if n <= 1 + 1e-9:
        return np.ones_like(paired)
    t = np.clip((paired - apart) / max(1 - float(apart[0]), 1e-9), 0.0, 1.0)
    slope = min(mean_of(n) ** 2 / (n - 1), 1 - 1 / n)
    return 1 / n + slope * t + (1 - 1 / n - slope) * t**3


@lru_cache(maxsize=256)
def _rank_weights(n: int, k: int, top: bool) -> np.ndarray:
    """Rows: weight on the grid of the largest, second largest ... of ``n`` independent entries."""
    j = np.arange(1, k + 1)[:, None]
    up, down = log_ndtr(GRID)[None], log_ndtr(-GRID)[None]
    rows = np.exp((n - j) * up + (j - 1) * down - betaln(n - j + 1, j)) * WEIGHT[None]
    rows = rows / rows.sum(1, keepdims=True)
    return rows if top else rows[:, ::-1]


@forward(Sort)
def sort(op: Sort, inputs: Inputs, site: Site) -> Signal:
    """The ``k`` largest (smallest) of ``n``: marginal exact for entries equally correlated along ``dim``;
    different rows agree at the same rank as far as the means of the ranks do."""
    x = inputs[0]
    n, k = x.layout.shape[op.dim], op.k or x.layout.shape[op.dim]
    layout, masks = resized(x.layout, site.shape)
    if x.nodes.ndim != 1 or n == 1:
        return moved(x, layout, op, masks)
    bits = sum({1 << g for _, g in x.layout.dims[op.dim]})
    m = np.arange(1 << layout.groups) if masks is None else masks
    nodes, corr = ranked(x)
    rho = max(float(corr[bits]), 0.0)
    top = op.descending or k == n
    out = nodes if k == n else extreme(nodes, rho, n, top, k)
    if k == 1 or n > 64:
        return Signal(layout, out, (site.id,), (corr[m],), noise=dict(x.noise), rigid=(0.0,))
    table = np.array([_sorted_pair(x, nodes, corr, int(i), bits, _rank_weights(n, k, top)) for i in m])
    table[0] = expect(out * out)
    fitted = correlation_for(out, table)
    fitted[0] = 1.0
    return Signal(layout, out, (site.id,), (fitted,), noise=dict(x.noise), rigid=(0.0,))


def _sorted_pair(x: Signal, nodes: Nodes, corr: Table, mask: int, bits: int, weights: np.ndarray) -> float:
    """Second moment of two sorted entries: ``sqrt(c) W + sqrt(rho - c) U + sqrt(1 - rho) V``, where both rows
    share ``W``, a row shares ``U``, and ranks of ``V`` stand at their means and fluctuate about them."""
    k, rho = len(weights), max(float(corr[bits]), 0.0)
    own_row = mask & ~bits == 0
    if own_row and k == math.prod(n for g, n in enumerate(x.layout.sizes) if bits >> g & 1):
        return float(x.cov[bits])
    common = rho if own_row else min(max(float(corr[mask | bits]), 0.0), rho)
    w, ww = _U[4:-4:2], _UW[4:-4:2] / _UW[4:-4:2].sum()
    z = math.sqrt(common) * w[:, None, None] + math.sqrt(rho - common) * w[None, :, None]
    values = np.interp(z + math.sqrt(1 - rho) * GRID, GRID, nodes)
    means = np.einsum("wug,u,kg->wk", values, ww, weights)
    square, total = float(ww @ (means**2).mean(1)), float(ww @ means.sum(1) ** 2)
    own = x.variance * (1 - rho) * float(np.mean(weights @ GRID**2 - (weights @ GRID) ** 2))
    if own_row:
        return (total - k * square) / (k * max(k - 1, 1)) + 0.6 * own
    t = min(max((float(corr[mask & ~bits]) - common) / max(1 - rho, 1e-9), 0.0), 1.0)
    return square + t * own if mask & bits == 0 else (total - k * square) / (k * max(k - 1, 1)) + 0.6 * t * own


@adjoint(Sort)
def sort_adjoint(op: Sort, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Gradients go back to where the entries came from: two of one row are both kept with probability
    ``k(k-1)/n(n-1)``, and ranks are met at unrelated places in different rows."""
    x = inputs[0]
    n, k = x.layout.shape[op.dim], op.k or x.layout.shape[op.dim]
    table = spread_back(output, grad, x, op.dim)
    bits = sum({1 << g for _, g in x.layout.dims[op.dim]})
    if not bits or n == 1:
        return (table,)
    masks = np.arange(table.size)
    corr = ranked(x)[1] if len(x.corr) == 1 else np.zeros(table.size)
    met = agreement(corr[masks & ~bits], np.where(masks & ~bits, corr[masks | bits], corr[bits]), n)
    agree = np.clip((met - 1 / n) / (1 - 1 / n), 0.0, 1.0)
    same, apart = table[masks & ~bits] * n / k, table[masks | bits] * n * (n - 1) / max(k * (k - 1), 1)
    # two rows rank their entries alike or independently
    loose = (k / n) ** 2 * (same / k + apart * (1 - 1 / k))
    here = agree * same * k / n + (1 - agree) * loose
    there = agree * apart * k * (k - 1) / (n * (n - 1)) + (1 - agree) * loose
    return (np.where(masks & ~bits, np.where(masks & bits, there, here), table),)

"""Softmax: how concentrated the weights of a row are decides what passes through them.

For logits that are independent Gaussian given their row mean, with variance ``s^2`` within a row of
``n`` visible entries, ``E sum p^2 = n int_0^inf t A(t) B(t)^(n-1) dt`` with ``A = E e^{2L} exp(-t e^L)``
and ``B = E exp(-t e^L)``; rows sum to one, which fixes the covariance within a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anyinit._core.field import GRID, WEIGHT, Nodes, Signal, constant, from_table, materialize
from anyinit._core.tables import Table, conform
from anyinit._graph.ops import Softmax
from anyinit._rules.base import Inputs, Site, adjoint, forward


@lru_cache(maxsize=8192)
def concentration(sd: float, n: int) -> float:
    """``E sum_s p_s^2`` of a softmax over ``n`` independent N(0, sd^2) logits; 1/n at sd = 0."""
    if n <= 1:
        return 1.0
    if sd < 1e-4:
        return 1.0 / n
    log_e = np.minimum(sd * GRID, 700.0)
    e = np.exp(log_e)
    # t in log space around 1 / (n E e^L); the integrand is smooth there
    u = np.linspace(-14.0 - sd * sd, 10.0 + 6 * sd, 600) - math.log(n)
    t = np.exp(u)
    damp = np.exp(-np.minimum(np.multiply.outer(t, e), 745.0))
    b = damp @ WEIGHT
    a = damp @ (WEIGHT * e * e)
    f = t * t * a * np.exp((n - 1) * np.log(np.maximum(b, 1e-300)))
    value = n * float(np.trapezoid(f, u))
    return float(np.clip(value, 1.0 / n, 1.0))


@lru_cache(maxsize=8192)
def passed(sd: float, n: int) -> float:
    """``n E[p^2 (1 - 2 p + sum p^2)]``: what a softmax over ``n`` N(0, sd^2) logits passes back of unit
    independent gradients, summed over the row. From 512 fixed quasi-random rows (error about 2 %)."""
    if n <= 1:
        return 0.0
    if n > 512:
        return concentration(sd, n)
    rng = np.random.Generator(np.random.Philox(key=n))
    e = np.exp(sd * rng.standard_normal((max(512, 16384 // n), n)))
    p = e / e.sum(1, keepdims=True)
    square = (p * p).sum(1, keepdims=True)
    return float((p * p * (1 - 2 * p + square)).sum(1).mean())


def _rows(x: Signal, dim: int) -> tuple[NDArray[np.float64], float]:
    """Visible entries of each row of the mask, and the mean overlap of two different rows' weights."""
    n = x.layout.shape[dim]
    if x.kept is None:
        return np.array([float(n)]), 1.0 / n
    mask = np.broadcast_to(x.kept, (*((1,) * (len(x.layout.shape) - x.kept.ndim)), *x.kept.shape))
    mask = np.moveaxis(mask, dim, -1)
    if mask.shape[-1] == 1:
        return np.array([float(n)]), 1.0 / n
    flat = mask.reshape(-1, mask.shape[-1])
    if flat.shape[0] > 512:
        flat = flat[:: -(-flat.shape[0] // 512)]
    counts = flat.sum(1).astype(float)
    counts[counts == 0] = n
    p = flat / counts[:, None]
    rows = p.shape[0]
    total = p.sum(0)
    overlap = (float(total @ total) - float((p * p).sum())) / (rows * (rows - 1)) if rows > 1 else 1.0 / n
    return counts, overlap


@forward(Softmax)
def softmax(op: Softmax, inputs: Inputs, site: Site) -> Signal:
    """Weights of mean ``1/n``: level by :func:`concentration`, pairs in a row by the unit sum, pairs of
    rows by their overlap and the correlation of their logits (:func:`met`)."""
    x = materialize(inputs[0], ("m", site.id, 0))
    n = x.layout.shape[op.dim]
    bits, spread, within = _logits(x, op.dim)
    if op.log:
        return _log(x, op.dim, within, alike(spread, bits, within), bits, site.id)
    counts, overlap = _rows(x, op.dim)
    sd = math.sqrt(within)
    square = over_rows(counts, round(sd, 3), concentration)
    table = weights_table(square, overlap, within, alike(spread, bits, within), bits, n)
    out = from_table(x.layout, 1.0 / n, table, site.id, _shape(sd, n))
    return out.but(noise=_slope(x, counts, sd, square))


def _logits(x: Signal, dim: int) -> tuple[int, Table, float]:
    """Bit of the row, centred covariance, and the variance of logits within a row."""
    bits = sum({1 << g for _, g in x.layout.dims[dim]})
    spread = x.cov - x.mean**2
    return bits, spread, max(float(spread[0] - spread[bits]), 0.0) if bits else 0.0


def alike(spread: Table, bits: int, within: float) -> Table:
    """Correlation, by mask, of the parts of the logits that differ within a row."""
    masks = np.arange(spread.size)
    return np.clip((spread[masks & ~bits] - spread[masks | bits]) / max(within, 1e-300), 0.0, 1.0)


def met(square: float, overlap: float, within: float, rho: Table) -> Table:
    """``E sum_s p_s p'_s`` of two rows whose logits, of variance ``within``, correlate by ``rho``.

    The overlap of unrelated rows at 0, the concentration at 1; the slope at 0 is exact by Stein's identity,
    ``s^2 (1 - E sum p^2)^2 / (n - 1)``. What remains grows as the square (a little faster for large logits).
    """
    whole = max(square - overlap, 0.0)
    slope = min(within * (1 - square) ** 2 * overlap / max(1 - overlap, 1e-9), whole)
    return overlap + slope * rho + (whole - slope) * rho ** (2 + within / 30)


def weights_table(square: float, overlap: float, within: float, rho: Table, bits: int, n: int) -> Table:
    """``E p_s p'_r`` of softmax weights by mask; ``bits`` are the groups of the row, whose weights sum to one."""
    masks = np.arange(rho.size)
    same_column = np.where(masks & ~bits, met(square, overlap, within, rho), square)
    crossed = (1 - same_column) / max(n - 1, 1)
    return np.where((masks & bits) == 0, same_column, crossed[masks & ~bits]) / n


def log_sum(within: float, n: int) -> tuple[float, float]:
    """Mean and variance of ``log sum e^x`` of ``n`` independent normals of variance ``within``.

    The mean follows from ``dE/ds^2 = (1 - E sum p^2) / 2`` (Simpson); the variance is about ``E sum p^2 - 1/n``.
    """
    sizes = [concentration(round(math.sqrt(w), 3), n) for w in (0.0, within / 2, within)]
    return math.log(n) + within / 12 * (6 - sizes[0] - 4 * sizes[1] - sizes[2]), sizes[2] - 1 / n


def _log(x: Signal, dim: int, within: float, rho: Table, bits: int, key: Hashable) -> Signal:
    """``x - log sum e^x``; the logarithm's covariance with an entry is ``s^2 / n`` (Stein)."""
    n = x.layout.shape[dim]
    level, own = log_sum(within, n)
    masks = np.arange(rho.size)
    table = level**2 + rho * (np.where(masks & bits, 0.0, within) - 2 * within / n + own)
    if not x.keys:
        return constant(x.layout, -level)
    slope = within * (1 - 2 / n + level * (1 - own - 1 / n)) / float(table[0])
    return from_table(x.layout, -level, table, key, x.nodes).but(noise={k: slope * v for k, v in x.noise.items()})


def _slope(x: Signal, counts: NDArray[np.float64], sd: float, square: float) -> dict[int, float]:
    """Growth of the log level with the log level of the logits, at the middle row."""
    if not x.noise or sd < 1e-3:
        return {}
    n = int(np.median(counts))
    up = concentration(round(1.1 * sd, 3), n) / concentration(round(sd, 3), n)
    slope = math.log(max(up, 1.0)) / (2 * math.log(1.1))
    return {k: slope * v for k, v in x.noise.items()}


def over_rows(counts: NDArray[np.float64], sd: float, f: Callable[[float, int], float]) -> float:
    """Mean over rows of a function of their number of visible entries; interpolated when many differ."""
    knots = np.unique(counts)
    if knots.size > 16:
        knots = np.unique(np.round(np.geomspace(max(knots[0], 1), knots[-1], 16)))
    values = np.array([f(sd, int(k)) * k for k in knots])
    return float((np.interp(np.log(counts), np.log(knots), values) / counts).mean())


@lru_cache(maxsize=1024)
def _shaped(sd: float, n: int) -> Nodes:
    """``e^L / (e^L + c)``, with ``c`` for a mean of ``1/n``: one weight against the sum of the others."""
    logits = sd * GRID
    low, high = -2.0, math.log(n) + 0.5 * sd * sd + 2.0
    for _ in range(40):
        c = 0.5 * (low + high)
        mean = float(WEIGHT @ (1 / (1 + np.exp(np.clip(c - logits, -700, 700)))))
        low, high = (c, high) if mean > 1 / n else (low, c)
    return 1 / (1 + np.exp(np.clip(0.5 * (low + high) - logits, -700, 700)))


def _shape(sd: float, n: int) -> Nodes:
    return _shaped(round(min(max(sd, 1e-2), 12.0), 2), n)


@adjoint(Softmax)
def softmax_adjoint(op: Softmax, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """``p_s (g_s - sum_r p_r g_r)``: gradient differences within a row, weighted by the weights."""
    x = inputs[0]
    g = conform(output.layout, grad, x.layout)
    bits = sum({1 << b for _, b in x.layout.dims[op.dim]})
    masks = np.arange(g.size)
    n = x.layout.shape[op.dim]
    _, spread, within = _logits(x, op.dim)
    counts, overlap = _rows(x, op.dim)
    sd, rho = round(math.sqrt(within), 3), alike(spread, bits, within)
    square = over_rows(counts, sd, concentration)
    if op.log:
        return (_log_adjoint(g, bits, n, np.where(masks & ~bits, met(square, overlap, within, rho), square)),)
    share = over_rows(counts, sd, passed)
    apart = np.where(bits > 0, g[masks | bits], 0.0)
    inner = np.maximum(g[masks & ~bits] - apart, 0.0)
    # p_s p'_s (1 - p_s - p'_s + sum p p'): exact for unrelated rows and for one row, linear between
    unrelated, one = (1 - square) ** 2 / max(1 - overlap, 1e-9), share / max(square, 1e-300)
    crossed = met(square, overlap, within, rho) * (unrelated + (one - unrelated) * rho)
    table = np.where(masks & ~bits, crossed, share) * inner / n
    return (np.where((masks & bits) == 0, table, -table[masks & ~bits] / max(n - 1, 1)),)


def _log_adjoint(g: Table, bits: int, n: int, met_: Table) -> Table:
    """``g_s - p_s sum_r g_r``, the weights ``p`` independent of the gradient."""
    masks = np.arange(g.size)
    row = g[masks & ~bits] + (n - 1) * g[masks | bits]
    other = (1 - met_) / max(n - 1, 1)
    return g - 2 * row / n + row * np.where(masks & bits, other[masks & ~bits], met_)

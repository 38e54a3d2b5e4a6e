"""Softmax: how concentrated the weights of a row are decides what passes through them.

For logits that are independent Gaussian given their row mean, with variance ``s^2`` within a row of
``n`` visible entries, ``E sum p^2 = n int_0^inf t A(t) B(t)^(n-1) dt`` with ``A = E e^{2L} exp(-t e^L)``
and ``B = E exp(-t e^L)``; rows sum to one, which fixes the covariance within a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anyinit._core.field import GRID, WEIGHT, Nodes, Signal, constant, expect, from_table
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
    rows by their overlap and the covariance of their logits (log-normal, to leading order)."""
    x = inputs[0]
    if len(x.keys) > 1:
        from anyinit._core.field import materialize

        x = materialize(x, ("m", site.id, 0))
    n = x.layout.shape[op.dim]
    bits = sum({1 << g for _, g in x.layout.dims[op.dim]})
    spread = x.cov - x.mean**2
    within = max(float(spread[0] - spread[bits]), 0.0) if bits else 0.0
    if op.log:
        shift = math.log(n) + 0.5 * within
        return Signal(x.layout, x.nodes - x.mean - shift, x.keys, x.corr, noise={}, rigid=(0.0,) * len(x.keys)) if x.keys else constant(x.layout, -math.log(n))
    counts, overlap = _rows(x, op.dim)
    sd = math.sqrt(within)
    square = over_rows(counts, round(sd, 3), concentration)
    masks = np.arange(x.cov.size)
    m2 = square / n
    in_row = (1 - square) / (n * max(n - 1, 1))
    gain = np.exp(np.clip(spread - spread[masks | bits], -30, within + 1))
    other = overlap * gain / n
    ceiling = m2
    table = np.where(masks == 0, m2, np.where(masks & ~bits == 0, in_row, 0.0))
    rows = (masks & ~bits) != 0
    same_column = np.minimum(other, ceiling)
    sum_same = same_column * n
    crossed = (1 - np.minimum(sum_same, 1.0)) / (n * max(n - 1, 1))
    lone = (masks & bits) == 0
    table = np.where(rows & lone, same_column, table)
    table = np.where(rows & ~lone, crossed[masks & ~bits], table) if bits else np.where(rows, same_column, table)
    return from_table(x.layout, 1.0 / n, table, site.id, _shape(sd)).but(noise={})


def over_rows(counts: NDArray[np.float64], sd: float, f: Callable[[float, int], float]) -> float:
    """Mean over rows of a function of their number of visible entries; interpolated when many differ."""
    knots = np.unique(counts)
    if knots.size > 16:
        knots = np.unique(np.round(np.geomspace(max(knots[0], 1), knots[-1], 16)))
    values = np.array([f(sd, int(k)) * k for k in knots])
    return float((np.interp(np.log(counts), np.log(knots), values) / counts).mean())


def _shape(sd: float) -> Nodes:
    s = min(max(sd, 1e-3), 3.0)
    return np.exp(s * GRID - 0.5 * s * s)


@adjoint(Softmax)
def softmax_adjoint(op: Softmax, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """``p_s (g_s - sum_r p_r g_r)``: gradient differences within a row, weighted by the weights."""
    x = inputs[0]
    g = conform(output.layout, grad, x.layout)
    bits = sum({1 << b for _, b in x.layout.dims[op.dim]})
    masks = np.arange(g.size)
    if op.log:
        n = x.layout.shape[op.dim]
        return (np.where(masks == 0, g[0] - g[bits] / n, g),)
    n = x.layout.shape[op.dim]
    spread = x.cov - x.mean**2
    sd = math.sqrt(max(float(spread[0] - spread[bits]), 0.0)) if bits else 0.0
    share = over_rows(_rows(x, op.dim)[0], round(sd, 3), passed) / n
    apart = np.where(bits > 0, g[masks | bits], 0.0)
    inner = np.maximum(g[masks & ~bits] - apart, 0.0)
    p = conform(output.layout, output.cov, x.layout)
    # other rows share columns as far as their weights do
    table = share * inner * np.where((masks & ~bits) == 0, 1.0, p[masks & ~bits] / max(float(p[0]), 1e-300))
    cross = -table[masks & ~bits] / max(n - 1, 1)
    return (np.where((masks & bits) == 0, table, cross),)


__all__ = ["concentration", "expect"]

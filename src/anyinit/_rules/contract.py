"""Contractions of two operands, weights or activations alike, with sliding windows.

For ``z = sum_k a_k b_k`` with ``a`` and ``b`` independent, two output entries that differ in the
groups ``S`` have second moment ``sum over pairs (k, k')`` of ``C_a[S_a + T] C_b[S_b + T]``, where
``T`` are the contracted groups in which ``k`` and ``k'`` differ. A fresh weight has ``C_b = 0`` off
the diagonal, which leaves ``fan * var_w * C_a[S_a]`` (Glorot & Bengio 2010; He et al. 2015, eq. 6).
The adjoint is the same sum with the roles of the operands exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from anyinit._core.field import Signal, constant, gaussian
from anyinit._core.tables import Factor, Layout, Table, align, build, conform, lift, refine, separate
from anyinit._graph.ops import Contract, Window
from anyinit._rules.base import Inputs, Site, adjoint, forward

Side = Literal["a", "tap", "out"]


@dataclass(frozen=True, slots=True)
class Taps:
    """How many (space, tap, out) triples of a window are real: total, and shares kept by pairs."""

    total: int
    same: float
    apart: float


@lru_cache(maxsize=4096)
def taps(window: Window, n_in: int, n_out: int, side: Side) -> Taps:
    """Valid triples of a window, seen from the side that stays (``side``'s index is kept).

    ``same`` is the mean number of valid terms per kept index, ``apart`` the mean number of taps
    (terms) valid at both of two different kept indices.
    """
    o, t = np.arange(n_out), np.arange(window.size)
    at = o[:, None] * window.stride + t[None, :] * window.dilation - window.pad_low
    ok = (at >= 0) & (at % window.spread == 0) & (at // window.spread < n_in)
    total = int(ok.sum())
    if side == "out":
        rows = ok.astype(float)
    elif side == "tap":
        rows = ok.T.astype(float)
    else:
        rows = np.zeros((n_in, window.size))
        np.add.at(rows, (at[ok] // window.spread, np.broadcast_to(t, at.shape)[ok]), 1.0)
    n = rows.shape[0]
    column = rows.sum(0)
    apart = float((column @ column - (rows * rows).sum()) / (n * (n - 1))) if n > 1 else 0.0
    return Taps(total, total / n, apart)


@dataclass(frozen=True)
class Operand:
    """A table with its layout and dimension labels."""

    layout: Layout
    table: Table
    labels: tuple[int, ...]


@dataclass
class _Plan:
    dims: list[list[Factor]]
    touch_a: dict[Hashable, int]
    touch_b: dict[Hashable, int]
    contracted: list[tuple[int, int, int]]  # (count, mask in a, mask in b)
    windows: list[tuple[float, float, int, float]]  # same, apart, mask of kept groups in out keys, size


def bilinear(
    a: Operand,
    b: Operand,
    out: tuple[int, ...],
    windows: Sequence[tuple[int, int, int, Taps, int]] = (),
    sizes: dict[int, int] | None = None,
) -> tuple[Layout, Table]:
    """Layout and second-moment table of a contraction of two independent operands.

    windows: ``(label in a, label in b, label in out, taps, size of the out label)``.
    """
    in_a = {lab: a.layout.dims[i] for i, lab in enumerate(a.labels)}
    in_b = {lab: b.layout.dims[i] for i, lab in enumerate(b.labels)}
    size_a = {lab: a.layout.shape[i] for i, lab in enumerate(a.labels)}
    touch_a: dict[Hashable, int] = {}
    touch_b: dict[Hashable, int] = {}
    slid = {w[2]: w for w in windows}
    hidden = {w[0] for w in windows} | {w[1] for w in windows}
    dims: list[list[Factor]] = []
    for lab in out:
        if lab in slid:
            wa, _, _, _, n = slid[lab]
            mask = _bits(in_a[wa])
            key: Hashable = ("w", lab, mask)
            touch_a[key] = mask
            dims.append([(n, key)])
            continue
        dims.append(_factors(lab, in_a.get(lab), in_b.get(lab), touch_a, touch_b))
    layout, keys = build(dims)
    to_a, to_b = lift(layout, keys, touch_a), lift(layout, keys, touch_b)
    classes: list[tuple[float, int, int]] = []
    for lab in a.labels:
        if lab in in_b and lab not in out and lab not in hidden:
            scratch_a: dict[Hashable, int] = {}
            scratch_b: dict[Hashable, int] = {}
            for n, key in _factors(lab, in_a[lab], in_b[lab], scratch_a, scratch_b):
                classes.append((n, scratch_a.get(key, 0), scratch_b.get(key, 0)))
            if size_a[lab] == 1:
                continue
    table = _sum_pairs(a.table, b.table, to_a, to_b, _join(classes), windows, in_a, in_b, keys, layout)
    return layout, table


def _bits(factors: Sequence[tuple[int, int]]) -> int:
    out = 0
    for _, g in factors:
        out |= 1 << g
    return out


def _factors(
    lab: int,
    fa: tuple[tuple[int, int], ...] | None,
    fb: tuple[tuple[int, int], ...] | None,
    touch_a: dict[Hashable, int],
    touch_b: dict[Hashable, int],
) -> list[Factor]:
    """Factors of one label with keys that say which group of each operand they belong to."""
    lists = [f for f in (fa, fb) if f]
    if not lists:
        return []
    refined = refine(lists)
    if refined is None:
        key: Hashable = ("whole", lab)
        touch_a[key], touch_b[key] = _bits(fa or ()), _bits(fb or ())
        return [(math.prod(n for n, _ in lists[0]), key)]
    out: list[Factor] = []
    for n, groups in refined:
        it = iter(groups)
        ga = next(it) if fa else None
        gb = next(it) if fb else None
        key = ("f", ga, gb)
        touch_a[key] = 0 if ga is None else 1 << ga
        touch_b[key] = 0 if gb is None else 1 << gb
        out.append((n, key))
    return out


def _join(classes: list[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
    joined: dict[tuple[int, int], float] = {}
    for n, ma, mb in classes:
        joined[ma, mb] = joined.get((ma, mb), 1.0) * n
    return [(n, ma, mb) for (ma, mb), n in joined.items() if n > 1]


def _sum_pairs(
    ta: Table, tb: Table, to_a: np.ndarray, to_b: np.ndarray, classes: list[tuple[float, int, int]],
    windows: Sequence[tuple[int, int, int, Taps, int]], in_a: dict[int, tuple[tuple[int, int], ...]],
    in_b: dict[int, tuple[tuple[int, int], ...]], keys: list[Hashable], layout: Layout,
) -> Table:  # fmt: skip
    """Sum over equal and different contracted indices, with the share of windows that is real."""
    terms: list[tuple[np.ndarray | float, int, int]] = [(1.0, 0, 0)]
    for n, ma, mb in classes:
        terms = [(c * n, xa, xb) for c, xa, xb in terms] + [(c * n * (n - 1), xa | ma, xb | mb) for c, xa, xb in terms]
    masks = np.arange(layout.pairs.size)
    for wa, wb, wout, count, _ in windows:
        ma, mb = _bits(in_a[wa]), _bits(in_b[wb])
        bit = next((1 << i for i, k in enumerate(keys) if k == ("w", wout, ma)), 0)
        moved = (masks & bit) != 0
        same = np.where(moved, count.apart, count.same)
        # two different terms of one window: counted as independent of the border
        other = count.same * max(count.same - 1.0, 0.0)
        terms = [(c * same, xa, xb) for c, xa, xb in terms] + [(c * other, xa | ma, xb | mb) for c, xa, xb in terms]
    out = np.zeros(masks.size)
    for c, xa, xb in terms:
        out = out + c * ta[to_a | xa] * tb[to_b | xb]
    return out


def _windows(op: Contract, a: tuple[int, ...], out: tuple[int, ...], side: Side) -> list[tuple[int, int, int, Taps, int]]:
    """Windows for the forward sum (``out``), the gradient of ``a`` or of ``b`` (``tap``)."""
    found: list[tuple[int, int, int, Taps, int]] = []
    for w in op.windows:
        n_in, n_out = a[op.a.index(w.a)], out[op.out.index(w.out)]
        count = taps(w, n_in, n_out, side)
        if side == "out":
            found.append((w.a, w.tap, w.out, count, n_out))
        elif side == "a":
            found.append((w.out, w.tap, w.a, count, n_in))
        else:
            found.append((w.out, w.a, w.tap, count, w.size))
    return found


@forward(Contract)
def contract(op: Contract, inputs: Inputs, site: Site) -> Signal:
    """``z = sum_k a_k b_k``: second moments by the bilinear sum, Gaussian marginal.

    Excess kurtosis of ``z`` given by the fluctuation of ``sum_k a_k^2 b_k^2`` from entry to entry.
    """
    a, b = inputs
    windows = _windows(op, a.layout.shape, site.shape, "out")
    layout, table = bilinear(Operand(a.layout, a.cov, op.a), Operand(b.layout, b.cov, op.b), op.out, windows)
    mean = a.mean * b.mean * terms(op, a.layout.shape, site.shape)
    noise = dict(a.noise)
    for k, v in b.noise.items():
        noise[k] = noise.get(k, 0.0) + v
    if not a.keys and not b.keys:
        return constant(layout, mean)
    if mean * mean > table[0] or abs(mean) < 1e-9 * math.sqrt(abs(table[0])):
        mean = 0.0 if mean * mean <= table[0] else math.copysign(math.sqrt(table[0]), mean)
    z = gaussian(layout, mean, table, site.id, kurtosis=3.0 * (1 + _spread(op, a, b, site)))
    return z.but(noise=noise, wobble=(_wobble(op, a, layout, site),) if b.affine() else ())


def _wobble(op: Contract, a: Signal, layout: Layout, site: Site) -> float:
    """Variance of the sample kernel ``sum_k a_k a'_k / n`` averaged over pairs of outputs of one unit:
    what a finite fan-in adds to the squared correlation, ``(E a^2 a'^2 - C^2) / n`` by mask."""
    if a.m2 <= 0 or not a.keys:
        return 0.0
    n = max(terms(op, a.layout.shape, site.shape), 1.0)
    kernel = float(a.layout.pairs @ np.maximum(a.square_cov - a.cov**2, 0.0)) / a.m2**2 / n
    units = math.prod(layout.shape[i] for i, lab in enumerate(op.out) if lab in op.b)
    return kernel / max(units, 1)


def _spread(op: Contract, a: Signal, b: Signal, site: Site) -> float:
    """Relative variance, from entry to entry, of the conditional variance ``sum_k a_k^2 E b_k^2``."""
    total = 0.0
    for s, labels, own in ((a, op.a, 1.0), (b, op.b, 0.0)):
        if s.m2 <= 0 or not s.keys:
            continue
        hidden = {w.a for w in op.windows} | {w.tap for w in op.windows}
        summed = [i for i, lab in enumerate(labels) if lab not in op.out or lab in hidden]
        n, mask = 1.0, 0
        for i in summed:
            lab = labels[i]
            n *= next((w.size for w in op.windows if lab in (w.a, w.tap)), s.layout.shape[i])
            mask |= _bits(s.layout.dims[i])
        four = s.square_cov
        # a Gaussian second operand leaves z Gaussian given the first: only its common part counts
        share = own if b.affine() else 1.0
        value = (four[0] / n * share + (1 - share / n) * four[mask]) / s.m2**2 - 1
        if value > 0.003:
            total += value
    return min(total, 2.0)


def terms(op: Contract, a: tuple[int, ...], out: tuple[int, ...]) -> float:
    """Mean number of terms summed for one output entry (padding excluded)."""
    count = 1.0
    hidden = {w.a for w in op.windows}
    for i, lab in enumerate(op.a):
        if lab not in op.out and lab not in hidden:
            count *= a[i]
    for w in op.windows:
        count *= taps(w, a[op.a.index(w.a)], out[op.out.index(w.out)], "out").same
    return count


@adjoint(Contract)
def contract_adjoint(op: Contract, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Gradients contract with the other operand: ``G_a = sum_o G C_b``, ``G_b = sum G C_a``."""
    a, b = inputs
    shape = output.layout.shape
    g = Operand(output.layout, grad, op.out)
    wa = _windows(op, a.layout.shape, shape, "a")
    lay, table = bilinear(g, Operand(b.layout, b.cov, op.b), op.a, wa)
    to_a = conform(_sized(lay, a.layout), table, a.layout)
    wb = _windows(op, a.layout.shape, shape, "tap")
    lay, table = bilinear(g, Operand(a.layout, a.cov, op.a), op.b, wb)
    to_b = conform(_sized(lay, b.layout), table, b.layout)
    return to_a, to_b


def _sized(layout: Layout, like: Layout) -> Layout:
    if layout.shape != like.shape:
        raise ValueError(f"adjoint layout {layout.shape} against {like.shape}")
    return layout


__all__ = ["Operand", "align", "bilinear", "contract", "contract_adjoint", "separate", "taps", "terms"]

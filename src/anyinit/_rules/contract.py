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
from anyinit._core.tables import Factor, Layout, Masks, Table, build, conform, lift, refine
from anyinit._graph.ops import Contract, Window
from anyinit._rules.base import Inputs, Site, adjoint, forward

Side = Literal["a", "tap", "out"]
Factors = dict[int, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class Taps:
    """How often pairs of a window's real (space, tap, out) triples agree, seen from the side that stays.

    same: mean number of triples at one kept index. For two triples of one kept index, neither of the other
    indices agrees: ``other``. For triples of two different kept indices, ``apart`` counts those that agree in
    the second operand's index, ``crossed`` in the first's and ``free`` in neither.
    """

    total: int
    same: float
    other: float
    apart: float
    crossed: float
    free: float


@lru_cache(maxsize=4096)
def taps(window: Window, n_in: int, n_out: int, side: Side) -> Taps:
    """Valid triples of a window. Operands in the order of the sum: ``(a, tap)`` for side ``out``,
    ``(out, tap)`` for ``a`` and ``(out, a)`` for ``tap``."""
    o, t = np.arange(n_out), np.arange(window.size)
    at = o[:, None] * window.stride + t[None, :] * window.dilation - window.pad_low
    ok = (at >= 0) & (at % window.spread == 0) & (at // window.spread < n_in)
    total = int(ok.sum())
    counts = {
        "out": ok.sum(1).astype(float),
        "tap": ok.sum(0).astype(float),
        "a": np.bincount(at[ok] // window.spread, minlength=n_in).astype(float),
    }
    kept, first, second = {"out": ("out", "a", "tap"), "a": ("a", "out", "tap"), "tap": ("tap", "out", "a")}[side]
    squares = {k: float(v @ v) for k, v in counts.items()}
    n = len(counts[kept])
    pairs = max(n * (n - 1), 1)
    apart, crossed = (squares[second] - total) / pairs, (squares[first] - total) / pairs
    free = (total**2 - squares[kept] - squares[first] - squares[second] + 2 * total) / pairs
    return Taps(total, total / n, (squares[kept] - total) / n, apart, crossed, free)


Sliding = tuple[int, int, int, Taps, int]  # labels in both operands and in the result, counts, size of the result


@dataclass(frozen=True)
class Operand:
    """A table with its layout and dimension labels."""

    layout: Layout
    table: Table
    labels: tuple[int, ...]


def bilinear(
    a: Operand,
    b: Operand,
    out: tuple[int, ...],
    windows: Sequence[Sliding] = (),
    sizes: dict[int, int] | None = None,
) -> tuple[Layout, Table]:
    """Layout and second-moment table of a contraction of two independent operands.

    windows: ``(label in a, label in b, label in out, taps, size of the out label)``.
    """
    in_a = {lab: a.layout.dims[i] for i, lab in enumerate(a.labels)}
    in_b = {lab: b.layout.dims[i] for i, lab in enumerate(b.labels)}
    touch_a: dict[Hashable, int] = {}
    touch_b: dict[Hashable, int] = {}
    slid = {w[2]: w for w in windows}
    hidden = {w[0] for w in windows} | {w[1] for w in windows}
    dims: list[list[Factor]] = []
    for lab in out:
        if lab in slid:
            n = slid[lab][4]
            dims.append([(n, ("w", lab))])
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
    table = _sum_pairs(a.table, b.table, to_a, to_b, _join(classes), windows, in_a, in_b, keys)
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
    ta: Table, tb: Table, to_a: Masks, to_b: Masks, classes: list[tuple[float, int, int]],
    windows: Sequence[Sliding], in_a: Factors, in_b: Factors, keys: list[Hashable],
) -> Table:  # fmt: skip
    """Sum over equal and different contracted indices, with the share of windows that is real."""
    masks = np.arange(to_a.size)
    terms: list[tuple[Table | float, int, int]] = [(1.0, 0, 0)]
    for n, ma, mb in classes:
        some = bool(ta[_above(ta, ma)].any() and tb[_above(tb, mb)].any())
        more = [(c * n * (n - 1), xa | ma, xb | mb) for c, xa, xb in terms] if some else []
        terms = [(c * n, xa, xb) for c, xa, xb in terms] + more
    for wa, wb, wout, count, _ in windows:
        ma, mb = _bits(in_a[wa]), _bits(in_b[wb])
        a_moves, b_moves = bool(ta[_above(ta, ma)].any()), bool(tb[_above(tb, mb)].any())
        bit = next((1 << i for i, k in enumerate(keys) if k == ("w", wout)), 0)
        moved = (masks & bit) != 0
        cases: list[tuple[Table, int, int]] = [(np.where(moved, 0.0, count.same), 0, 0)]
        if a_moves and bit:
            cases.append((np.where(moved, count.apart, 0.0), ma, 0))
        if b_moves and bit:
            cases.append((np.where(moved, count.crossed, 0.0), 0, mb))
        if a_moves and b_moves:
            cases.append((np.where(moved, count.free, count.other), ma, mb))
        terms = [(c * k, xa | ya, xb | yb) for c, xa, xb in terms for k, ya, yb in cases]
    out = np.zeros(masks.size)
    for c, xa, xb in terms:
        out = out + c * ta[to_a | xa] * tb[to_b | xb]
    return out


def _above(table: Table, bits: int) -> Masks:
    """Masks in which all groups of ``bits`` differ."""
    masks = np.arange(table.size)
    return masks[(masks & bits) == bits]


def _windows(op: Contract, a: tuple[int, ...], out: tuple[int, ...], side: Side) -> list[Sliding]:
    """Windows for the forward sum (``out``), the gradient of ``a`` or of ``b`` (``tap``)."""
    found: list[Sliding] = []
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
    """Relative variance, from entry to entry, of the conditional variance ``sum_k a_k^2 E b_k^2``.

    Beside a constant operand, of a sum of ``n`` entries: a third of their excess kurtosis over ``n``.
    """
    total = 0.0
    hidden = {w.a for w in op.windows} | {w.tap for w in op.windows}
    inside = terms(op, a.layout.shape, site.shape)
    for s, other, labels, own in ((a, b, op.a, 1.0), (b, a, op.b, 0.0)):
        if s.m2 <= 0 or not s.keys:
            continue
        if not other.keys:
            return 0.0 if s.affine() else min(max(float(s.square_cov[0]) / s.m2**2 / 3 - 1, 0.0) / inside, 2.0)
        mask = 0
        for i, lab in enumerate(labels):
            mask |= _bits(s.layout.dims[i]) if lab not in op.out or lab in hidden else 0
        four = s.square_cov
        # a Gaussian second operand leaves z Gaussian given the first: only its common part counts
        share = own if b.affine() else 1.0
        value = (four[0] / inside * share + (1 - share / inside) * four[mask]) / s.m2**2 - 1
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
    if any(b.layout.shape[op.b.index(w.tap)] != w.size for w in op.windows):
        return to_a, None  # a kernel of which only part is drawn: its gradient is the full convolution's
    wb = _windows(op, a.layout.shape, shape, "tap")
    lay, table = bilinear(g, Operand(a.layout, a.cov, op.a), op.b, wb)
    to_b = conform(_sized(lay, b.layout), table, b.layout)
    return to_a, to_b


def _sized(layout: Layout, like: Layout) -> Layout:
    if layout.shape != like.shape:
        raise ValueError(f"adjoint layout {layout.shape} against {like.shape}")
    return layout

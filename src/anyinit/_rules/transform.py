"""Linear maps of whole axes: interpolation, Fourier transforms, explicit windows, triangles; and the
rule for operations nobody knows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from anyinit._core.field import Signal, constant, correlation_for, from_table, gaussian, materialize, measured
from anyinit._core.tables import Factor, Layout, Table, build, conform, lift, separate
from anyinit._graph.ops import Opaque, Resize, Spectral, Triangle, Unfold
from anyinit._rules.axis import AxisMap, alone, by_pairs, interpolation, mapped
from anyinit._rules.base import Inputs, Site, adjoint, forward
from anyinit._rules.merge import blended


@forward(Resize)
def resize(op: Resize, inputs: Inputs, site: Site) -> Signal:
    """A linear map of each dimension; the nearest entry keeps the marginal."""
    x = materialize(inputs[0], ("m", site.id, 0))
    layout, table = x.layout, x.cov
    gain = 1.0
    for d, by in _resampled(op, x.layout.shape):
        layout, table = mapped(layout, table, d, by)
        gain *= by.mean
    if not x.keys:
        return constant(layout, x.mean * gain)
    return from_table(layout, x.mean * gain, table, site.id, x.nodes).but(noise=dict(x.noise))


def _resampled(op: Resize, before: Sequence[int]) -> list[tuple[int, AxisMap]]:
    return [(d, interpolation(op.kind, before[d], n)) for d, n in zip(op.dims, op.sizes, strict=True)]


@adjoint(Resize)
def resize_adjoint(op: Resize, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Every input entry collects the outputs made from it: the transposed maps."""
    x = inputs[0]
    layout, table = output.layout, grad
    for d, by in _resampled(op, x.layout.shape):
        layout, table = mapped(layout, table, d, by.transposed)
    return (conform(layout, table, x.layout),)


@forward(Spectral)
def spectral(op: Spectral, inputs: Inputs, site: Site) -> Signal:
    """Parseval: ``E |X_k|^2 = n E x^2`` averaged over frequencies (``norm`` backward). Different frequencies of
    exchangeable entries are uncorrelated; a half spectrum holds the constant part more than once in ``n``."""
    x = materialize(inputs[0], ("m", site.id, 0))
    layout, table = x.layout, x.cov
    for d, n in zip(op.dims, op.sizes, strict=True):
        layout, table = by_pairs(layout, table, d, site.shape[d], _frequencies(op, x.layout.shape[d], n, site.shape[d]))
    first = x.mean / math.prod(op.sizes) if op.kind in {"ifft", "irfft"} and op.norm == "backward" else 0.0
    out = gaussian(layout, first, table, site.id)
    return out.but(noise=dict(x.noise), phase=op.kind != "irfft")


def _frequencies(op: Spectral, before: int, n: int, after: int) -> tuple[float, float, float, float]:
    """Weights of pairs for ``before`` entries (zero-padded or cut to ``n``) and ``after`` frequencies."""
    inverse = op.kind in {"ifft", "irfft"}
    power = {"backward": 2.0 * inverse, "ortho": 1.0, "forward": 2.0 * (not inverse)}[op.norm] * math.log(n)
    scale = math.exp(-power)
    if op.kind == "irfft" and before != n:
        return scale * n, 0.0, 0.0, 0.0
    used = min(before, n)
    # all pairs at the constant frequency, their share of a zero sum elsewhere
    return scale * used, scale * used * (used - 1) * (n - after) / (max(n - 1, 1) * after), 0.0, 0.0


@adjoint(Spectral)
def spectral_adjoint(op: Spectral, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The transform back. A real entry takes the real part, half of the power of a complex gradient
    (``E |g|^2``); so it is for ``fft``, whose input is taken as real, and ``rfft``."""
    x = inputs[0]
    layout, table = output.layout, grad * (0.5 if op.kind in {"fft", "rfft"} and not x.phase else 1.0)
    for d, n in zip(op.dims, op.sizes, strict=True):
        before, after = x.layout.shape[d], output.layout.shape[d]
        a = _frequencies(op, before, n, after)[0] * after / max(min(before, n), 1)
        share = min(before, n) / before
        apart = (n - after) / max(n - 1, 1) / after * a
        layout, table = by_pairs(layout, table, d, before, (a * share, 0.0, apart * share, 0.0))
    return (conform(layout, table, x.layout),)


def _incidence(n: int, windows: int, size: int, step: int) -> tuple[float, float]:
    """Pairs of (window, offset) that differ in both and meet one entry, and ``windows * size``."""
    at = np.arange(windows)[:, None] * step + np.arange(size)[None]
    count = np.bincount(at.ravel(), minlength=n).astype(float)
    return float(count @ count) - at.size, float(at.size)


@forward(Unfold)
def unfold(op: Unfold, inputs: Inputs, site: Site) -> Signal:
    """Overlapping windows made explicit: two places that differ in window and offset may be one entry."""
    x = materialize(inputs[0], ("m", site.id, 0))
    layout, table = x.layout, x.cov
    for d, size, step in op.windows:
        layout, table, bit = alone(layout, table, d)
        n, count = x.layout.shape[d], site.shape[d]
        dims: list[list[Factor]] = [list(f) for f in layout.dims]
        dims[d] = [(count, "window")]
        layout, keys = build([*dims, [(size, "offset")]])
        low = lift(layout, keys, {g: 1 << g for g in range(table.size.bit_length() - 1)})
        met, _ = _incidence(n, count, size, step)
        p = met / max(count * (count - 1) * size * (size - 1), 1)
        bits = [1 << keys.index(k) if k in keys else 0 for k in ("window", "offset")]
        masks = np.arange(low.size)
        differs = [(masks & b) != 0 if b else np.zeros(masks.size, bool) for b in bits]
        apart = np.where(differs[0] & differs[1], p * table[low] + (1 - p) * table[low | bit], table[low | bit])
        table = np.where(differs[0] | differs[1], apart, table[low])
    if not x.keys:
        return constant(layout, x.mean)
    corr = correlation_for(x.nodes, table)
    corr[0] = 1.0
    return Signal(layout, x.nodes, (site.id,), (corr,), noise=dict(x.noise), rigid=x.rigid)


@adjoint(Unfold)
def unfold_adjoint(op: Unfold, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Every entry collects the windows it stands in."""
    x = inputs[0]
    layout, table = output.layout, grad
    for d, size, step in reversed(op.windows):
        layout, table, window = alone(layout, table, d)
        layout, table, offset = alone(layout, table, len(layout.dims) - 1)
        _, _, window = alone(layout, table, d)
        n, count = x.layout.shape[d], output.layout.shape[d]
        dims: list[list[Factor]] = [list(f) for f in layout.dims[:-1]]
        dims[d] = [(n, "entry")]
        layout, keys = build(dims)
        low = lift(layout, keys, {g: 1 << g for g in range(table.size.bit_length() - 1)})
        met, total = _incidence(n, count, size, step)
        both, here = table[low | window | offset], table[low]
        same = (total * here + met * both) / n
        apart = count * size * (size - 1) * table[low | offset] + size * count * (count - 1) * table[low | window]
        apart = apart + (count * (count - 1) * size * (size - 1) - met) * both
        bit = 1 << keys.index("entry") if "entry" in keys else 0
        moved_ = (np.arange(low.size) & bit) != 0
        table = np.where(moved_, apart / max(n * (n - 1), 1), same)
    return (conform(layout, table, x.layout),)


@forward(Triangle)
def triangle(op: Triangle, inputs: Inputs, site: Site) -> Signal:
    """Zeros on one side of a diagonal: pairs by the chance that both are kept."""
    x = materialize(inputs[0], ("m", site.id, 0))
    if x.data is not None:
        return measured(np.triu(x.data, op.diagonal) if op.upper else np.tril(x.data, op.diagonal), site.id)
    layout, table, kept = _kept(op, x.layout, x.cov)
    share = float(kept[0])
    if share >= 1:
        return x.but(sources={})
    zero = Signal(layout, np.asarray(0.0))
    return blended([(x, share), (zero, 1 - share)], layout, table * kept, site.id)


def _kept(op: Triangle, layout: Layout, table: Table) -> tuple[Layout, Table, Table]:
    """Layout with rows and columns in groups of their own, its table, and the probability by mask that two
    entries are kept."""
    rank = len(layout.dims)
    for d in (rank - 2, rank - 1):
        layout, table, _ = alone(layout, table, d)
    bits = [sum({1 << g for _, g in layout.dims[d]}) for d in (rank - 2, rank - 1)]
    h, w = layout.shape[-2:]
    ones = np.ones((h, w))
    keep = np.triu(ones, op.diagonal) if op.upper else np.tril(ones, op.diagonal)
    total, rows, columns = float(keep.sum()), keep.sum(1), keep.sum(0)
    r, c = float(rows @ rows) - total, float(columns @ columns) - total
    masks = np.arange(table.size)
    row, column = (masks & bits[0]) != 0, (masks & bits[1]) != 0
    both = (total**2 - r - c - total) / max(h * (h - 1) * w * (w - 1), 1)
    one = np.where(row, c / max(h * (h - 1) * w, 1), r / max(h * w * (w - 1), 1))
    return layout, table, np.where(row & column, both, np.where(row | column, one, total / (h * w)))


@adjoint(Triangle)
def triangle_adjoint(op: Triangle, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The same zeros again."""
    layout, table, kept = _kept(op, output.layout, grad)
    return (conform(layout, table * kept, inputs[0].layout),)


@forward(Opaque)
def opaque(op: Opaque, inputs: Inputs, site: Site) -> Signal:
    """Unknown: assumed to keep the level of its first floating input, flagged as not certified."""
    x = next((s for s in inputs if s.keys), None)
    layout = separate(site.shape)
    cov = np.zeros(1 << layout.groups)
    cov[0] = x.m2 if x is not None else 1.0
    return gaussian(layout, 0.0, cov, site.id).but(noise={} if x is None else dict(x.noise), approx=("opaque",))


@adjoint(Opaque)
def opaque_adjoint(op: Opaque, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Level kept."""
    out: list[Table | None] = []
    for x in inputs:
        table = np.zeros(1 << x.layout.groups)
        table[0] = float(grad[0]) * output.layout.size / max(x.layout.size, 1)
        out.append(table if x.keys else None)
    return tuple(out)

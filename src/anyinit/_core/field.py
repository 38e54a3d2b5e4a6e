"""Signals: what is known of a value before any weight is drawn.

A value is modelled as a function of at most two latent standard Gaussian fields (a Gaussian copula):
its marginal is given by node values on a fixed quadrature grid, its dependence between entries by
the latent correlation ``R[S]`` for every set ``S`` of axis groups in which two entries differ. An
elementwise operation is then one NumPy call on the nodes and leaves ``R`` alone; second moments
between entries follow from the Hermite expansion, ``C[S] = sum_k c_k^2 R[S]^k`` (Mehler 1866).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from anyinit._core.tables import Layout, Table

Nodes = NDArray[np.float64]

_EDGES = (-9.0, -7.0, -5.5, -4.5, -3.5, -2.75, -2.0, -1.25, -0.6, 0.0, 0.6, 1.25, 2.0, 2.75, 3.5, 4.5, 5.5, 7.0, 9.0)
_ORDER = 7
DEGREE = 28


def _grid() -> tuple[Nodes, Nodes]:
    x, w = np.polynomial.legendre.leggauss(_ORDER)
    nodes: list[Nodes] = []
    weights: list[Nodes] = []
    for a, b in pairwise(_EDGES):
        z = 0.5 * (b - a) * x + 0.5 * (a + b)
        nodes.append(z)
        weights.append(0.5 * (b - a) * w * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))
    g, p = np.concatenate(nodes), np.concatenate(weights)
    return g, p / p.sum()


GRID, WEIGHT = _grid()
_COARSE = 4  # the two-field grid uses merged panels


def _hermite(degree: int) -> Nodes:
    rows = [np.ones_like(GRID), GRID.copy()]
    for k in range(1, degree - 1):
        rows.append((GRID * rows[k] - math.sqrt(k) * rows[k - 1]) / math.sqrt(k + 1))
    return np.array(rows[:degree])


HERMITE = _hermite(DEGREE)
PROJECT = HERMITE * WEIGHT
WEIGHT2 = np.outer(WEIGHT, WEIGHT)
_CUMULATIVE = ndtr(GRID)


@dataclass(frozen=True, slots=True)
class Source:
    """The value a fused elementwise region starts from, seen from inside the region.

    deriv: derivative of the region's value with respect to the source's value, on the grid.
    nodes: the source's own node values, on the same grid.
    noise: log-level noise of the source.
    """

    deriv: Nodes
    nodes: Nodes
    noise: Mapping[int, float]


@dataclass(frozen=True)
class Signal:
    """Statistics of one value.

    layout: axis groups. nodes: values on the grid of ``len(keys)`` latent fields (0-d when constant).
    keys: identity of each latent field; equal keys are the same field entry by entry.
    corr: latent correlation by mask, one table per field.
    sources: by value id, the region's sources with derivatives (for the adjoint walk).
    noise: sensitivity of the log level to named noise sources, each of the variance the walk keeps.
    rigid: share of the level fluctuation that is suppressed (orthogonal draw, fixed norm), per field.
    wobble: mean squared fluctuation, over draws and pairs, of the correlation itself (finite fan-in).
    lineage, plug: the fields this reduction came from and the value it stands for when it meets them.
    equal: for integers, the probability by mask that two entries are equal.
    data: the values themselves where known. kept: boolean mask of entries a softmax may see.
    phase: complex entries of uniform phase; nodes then hold ``E |x|^2``, half of it in the real part.
    """

    layout: Layout
    nodes: Nodes
    keys: tuple[Hashable, ...] = ()
    corr: tuple[Table, ...] = ()
    sources: Mapping[int, Source] = field(default_factory=dict[int, Source])
    noise: Mapping[int, float] = field(default_factory=dict[int, float])
    rigid: tuple[float, ...] = ()
    wobble: tuple[float, ...] = ()
    lineage: frozenset[Hashable] = frozenset()
    plug: float | None = None
    equal: Table | None = None
    data: NDArray[np.generic] | None = None
    kept: NDArray[np.bool_] | None = None
    approx: tuple[str, ...] = ()
    phase: bool = False

    @cached_property
    def mean(self) -> float:
        """Mean over entries and draws."""
        return expect(self.nodes)

    @cached_property
    def m2(self) -> float:
        """Second moment."""
        return expect(self.nodes * self.nodes)

    @cached_property
    def variance(self) -> float:
        """Variance of one entry, never negative."""
        return max(self.m2 - self.mean**2, 0.0)

    @cached_property
    def cov(self) -> Table:
        """``C[S]`` for every mask."""
        return pair_table(self.nodes, self.corr, self.layout.groups)

    @cached_property
    def square_cov(self) -> Table:
        """``E[x_i^2 x_j^2]`` by mask, with the level part suppressed where draws are rigid."""
        return pair_table(self.nodes * self.nodes, self.corr, self.layout.groups, self.rigid)

    def fluctuation(self) -> float:
        """Relative variance over draws of the mean square over all entries, given the sources."""
        if not self.keys or self.m2 <= 0:
            return 0.0
        square = self.nodes * self.nodes
        extra = 0.0
        for axis, wobble in enumerate(self.wobble):
            held = self.rigid[axis] if self.rigid else 0.0
            extra += wobble * (1 - held) * _second(square, axis) ** 2
        return max((float(self.layout.pairs @ self.square_cov) + extra) / self.m2**2 - 1.0, 0.0)

    def affine(self) -> bool:
        """Whether the value is Gaussian: one field, linear in it."""
        if len(self.keys) != 1:
            return not self.keys
        c = PROJECT @ self.nodes
        return bool(c[0] ** 2 + c[1] ** 2 >= (1 - 1e-9) * self.m2)

    def but(self, **changes: object) -> Signal:
        """A copy with fields replaced. Statistics that were computed stay where they do not depend on these."""
        if not changes.keys() <= _FIELDS:
            raise TypeError(f"A signal has no {', '.join(sorted(changes.keys() - _FIELDS))}.")
        out = object.__new__(Signal)
        held = out.__dict__
        held.update(self.__dict__)
        if not _SHAPING.isdisjoint(changes):
            for name in _COMPUTED if changes.keys() & _SHAPING != {"rigid"} else ("square_cov",):
                held.pop(name, None)
        held.update(changes)
        return out


_FIELDS = frozenset(f.name for f in fields(Signal))
_SHAPING = frozenset({"layout", "nodes", "corr", "rigid"})  # what the statistics below are made of
_COMPUTED = ("mean", "m2", "variance", "cov", "square_cov")


def _second(nodes: Nodes, axis: int) -> float:
    """Coefficient of the second Hermite polynomial along one field."""
    if nodes.ndim == 1:
        return float(PROJECT[2] @ nodes)
    return float(PROJECT[2] @ nodes @ WEIGHT) if axis == 0 else float(WEIGHT @ nodes @ PROJECT[2])


def expect(nodes: Nodes) -> float:
    """Expectation over the latent fields."""
    if nodes.ndim == 0:
        return float(nodes)
    if nodes.ndim == 1:
        return float(WEIGHT @ nodes)
    return float(WEIGHT @ nodes @ WEIGHT)


def pair_table(nodes: Nodes, corr: tuple[Table, ...], groups: int, rigid: tuple[float, ...] = ()) -> Table:
    """``E[f f']`` for two entries at latent correlation ``corr``, by Hermite expansion.

    What the truncated expansion misses is put at the first missing degree, so the value at
    correlation one is exact and the rest is bounded by the missing mass.
    """
    if nodes.ndim == 0:
        return np.full(1 << groups, float(nodes) ** 2)
    if nodes.ndim == 1:
        held = rigid[0] if rigid else 0.0
        return _one_field(nodes.tobytes(), np.asarray(corr[0], dtype=np.float64).tobytes(), held).copy()
    total = expect(nodes * nodes)
    power = (PROJECT @ nodes @ PROJECT.T) ** 2
    rest = max(total - float(power.sum()), 0.0)
    if rigid:
        power[2, 0] *= 1 - rigid[0]
        power[0, 2] *= 1 - rigid[1]
    a, b = corr
    k = np.arange(DEGREE)
    pa, pb = np.power(a[:, None], k), np.power(b[:, None], k)
    out = np.einsum("sj,jk,sk->s", pa, power, pb)
    return out + rest * np.abs(a * b) ** (DEGREE // 2)


@lru_cache(maxsize=8192)
def _one_field(values: bytes, correlations: bytes, held: float) -> Table:
    """The table of one field: repeated blocks ask for the same one again and again."""
    nodes, corr = np.frombuffer(values), np.frombuffer(correlations)
    total = expect(nodes * nodes)
    power = (PROJECT @ nodes) ** 2
    rest = max(total - float(power.sum()), 0.0)
    if held:
        power[2] *= 1 - held
    out = np.asarray(np.polynomial.polynomial.polyval(corr, np.append(power, rest)), dtype=np.float64)
    if not held:
        out[corr >= 1 - 1e-12] = total
        out[corr <= 1e-12 - 1] = expect(nodes * nodes[::-1])
    return out


def correlation_for(nodes: Nodes, cov: Table) -> Table:
    """Latent correlation that gives second moments ``cov`` for a one-field value with ``nodes``."""
    power = (PROJECT @ nodes) ** 2
    mean2, total = float(power[0]), expect(nodes * nodes)
    variance = total - mean2
    if variance <= 1e-14 * max(total, 1e-300):
        return np.ones_like(cov)
    if power[1] >= (1 - 1e-9) * variance:
        return np.clip((cov - mean2) / variance, -1.0, 1.0)
    return np.interp(cov, _moments(nodes.tobytes()), _RHO)


@lru_cache(maxsize=1024)
def _moments(values: bytes) -> Nodes:
    """Second moment between entries at every latent correlation in ``_RHO``, made monotone."""
    nodes = np.frombuffer(values)
    power = (PROJECT @ nodes) ** 2
    rest = max(expect(nodes * nodes) - float(power.sum()), 0.0)
    return np.maximum.accumulate(np.polynomial.polynomial.polyval(_RHO, np.append(power, rest)))


_RHO = np.sin(np.linspace(-np.pi / 2, np.pi / 2, 801))


_CUBIC = np.linspace(0.0, 0.6, 61)
# of g + c h_3(g), h_3 the normalized cubic Hermite polynomial: variance 1 + c^2
_KURTOSIS = np.array([float(WEIGHT @ (GRID + c * HERMITE[3]) ** 4) / (1 + c * c) ** 2 for c in _CUBIC])


def gaussian(
    layout: Layout, mean: float, cov: Table, key: Hashable, kurtosis: float = 3.0, rigid: float = 0.0
) -> Signal:
    """A Gaussian (or mildly heavy-tailed) value with mean and second-moment table ``cov``.

    kurtosis: E x^4 / (E x^2)^2 of the centred value; above 3 the nodes follow ``g + c h_3(g)``
    with ``c`` chosen for that fourth moment (up to 9), rescaled to the exact variance.
    """
    variance = float(cov[0]) - mean * mean
    if variance <= 1e-13 * max(abs(float(cov[0])), 1e-300):
        return Signal(layout, np.asarray(mean if mean else 0.0))
    shape = GRID
    if kurtosis > 3.01:
        shape = GRID + float(np.interp(kurtosis, _KURTOSIS, _CUBIC)) * HERMITE[3]
        shape = shape / math.sqrt(expect(shape * shape))
    nodes = mean + math.sqrt(variance) * shape
    corr = correlation_for(nodes, cov)
    corr[0] = 1.0
    return Signal(layout, nodes, (key,), (corr,), rigid=(rigid,))


def quantiles(values: Nodes, weights: Nodes) -> Nodes:
    """Node values of a one-field marginal with the distribution of weighted ``values``.

    Mean and second moment of the result are made exact.
    """
    flat, w = values.ravel(), weights.ravel()
    order = np.argsort(flat, kind="stable")
    flat, w = flat[order], w[order]
    total = w.sum()
    level = (np.cumsum(w) - 0.5 * w) / total
    nodes = np.interp(_CUMULATIVE, level, flat)
    product = w * flat  # no BLAS: its threads cost more than 16,000 products
    mean, m2 = float(product.sum()) / total, float((product * flat).sum()) / total
    got = expect(nodes)
    spread = expect((nodes - got) ** 2)
    if spread <= 0:
        return np.full_like(GRID, mean)
    return mean + (nodes - got) * math.sqrt(max(m2 - mean * mean, 0.0) / spread)


def materialize(signal: Signal, key: Hashable) -> Signal:
    """One new latent field in place of two: marginal and second moments kept, the joint lost."""
    if len(signal.keys) < 2:
        return signal
    nodes = quantiles(signal.nodes, WEIGHT2)
    corr = correlation_for(nodes, signal.cov)
    corr[0] = 1.0
    share = float(np.mean(signal.rigid)) if signal.rigid else 0.0
    wobble = (sum(signal.wobble),) if signal.wobble else ()
    return signal.but(nodes=nodes, keys=(key,), corr=(corr,), rigid=(share,), wobble=wobble, sources={})


def constant(layout: Layout, value: float) -> Signal:
    """The same number everywhere."""
    return Signal(layout, np.asarray(float(value)))


def from_table(layout: Layout, mean: float, cov: Table, key: Hashable, like: Nodes | None = None) -> Signal:
    """A value whose marginal has the shape of ``like`` (Gaussian when None), mean and table given."""
    if like is None or like.ndim != 1:
        return gaussian(layout, mean, cov, key)
    spread = expect((like - expect(like)) ** 2)
    variance = float(cov[0]) - mean * mean
    if variance <= 1e-13 * max(float(cov[0]), 1e-300) or spread <= 0:
        return constant(layout, mean)
    nodes = mean + (like - expect(like)) * math.sqrt(variance / spread)
    corr = correlation_for(nodes, cov)
    corr[0] = 1.0
    return Signal(layout, nodes, (key,), (corr,), rigid=(0.0,))


def measured(array: NDArray[np.generic], key: Hashable, *, sample_groups: bool = True) -> Signal:
    """Statistics of known numbers: marginal quantiles and exact averages over pairs of entries.

    One group per dimension larger than one (at most six; further ones share the last group).
    """
    from anyinit._core.tables import separate, single

    x = np.asarray(array)
    layout = separate(x.shape) if sum(n > 1 for n in x.shape) <= 6 and sample_groups else single(x.shape)
    if np.iscomplexobj(x):
        x = np.abs(x)
    flat = np.asarray(x, dtype=np.float64)
    if flat.size == 0 or float(np.ptp(flat)) == 0.0:
        return Signal(layout, np.asarray(float(flat.flat[0]) if flat.size else 0.0), data=array)
    cov = _pair_averages(flat, layout)
    sample = flat.ravel()
    if sample.size > 20000:
        sample = np.sort(sample)[:: max(sample.size // 20000, 1)]
    nodes = quantiles(sample, np.ones_like(sample))
    mean = float(flat.mean())
    nodes = mean + (nodes - expect(nodes)) * math.sqrt(
        max(cov[0] - mean * mean, 0) / max(expect((nodes - expect(nodes)) ** 2), 1e-300)
    )
    corr = correlation_for(nodes, cov)
    corr[0] = 1.0
    return Signal(layout, nodes, (key,), (corr,), rigid=(1.0,), data=array)


def _pair_averages(x: NDArray[np.float64], layout: Layout) -> Table:
    groups = layout.groups
    if groups == 1 and sum(n > 1 for n in x.shape) > 1:
        n, s, s2 = x.size, float(x.sum()), float((x * x).sum())
        return np.array([s2 / n, (s * s - s2) / (n * (n - 1))])
    x = x.reshape([n for n in x.shape if n > 1])
    within = np.empty(1 << groups)
    for mask in range(1 << groups):
        axes = tuple(g for g in range(groups) if mask >> g & 1)
        within[mask] = float(np.mean(np.mean(x, axis=axes) ** 2)) if axes else float(np.mean(x * x))
    # within[mask] averages over pairs that may differ in mask; take out those that do not
    out = within.copy()
    for g, n in enumerate(layout.sizes):
        bit = 1 << g
        masks = np.arange(out.size)
        low = masks[(masks & bit) == 0]
        out[low | bit] = (n * out[low | bit] - out[low]) / (n - 1)
    return out

"""Expectations of one-variable functions under Gaussians: the only place that integrates.

``x = mean + sqrt(variance) z``. The line of ``z`` is cut into panels at every kink and jump of the function
(found, see ``breaks``) and into halves wherever it is not a polynomial to rounding, with 20 Gauss-Legendre
nodes on each (``quadrature``; ``pairs`` for two variables). Moments, the derivative, Hermite coefficients and
correlations of any activation come out near machine precision, with a bound on what is left.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from anyinit._core import pairs, quadrature
from anyinit._core.breaks import Break, BreakMap
from anyinit._core.probe import Guard, check, scalar_function
from anyinit._core.quadrature import DENSITY, EPS, Array, Function, Table
from anyinit.errors import ActivationError, ConfigError

DEGREES = 512
_REACH = (13.0, 19.0, 25.0, 31.0, 37.0)  # half-widths in z, in the order in which they are tried
_SHOWN = 16.0

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of ``f(x)`` for ``x ~ N(mean, variance)``.

    mean: ``E f``. m2: ``E f^2``. m4: ``E f^4`` (infinite where a Gaussian cannot carry it). grad2: ``E f'^2``,
    the delta functions at jumps left out (infinite where it diverges). slope: ``d E f^2 / d log variance``,
    jumps included. error: absolute bound that holds for mean, m2, m4 and variance together. errors: the bound
    of each by name.
    """

    mean: float
    m2: float
    m4: float
    grad2: float
    slope: float
    error: float
    errors: dict[str, float] = field(compare=False, repr=False)

    @property
    def variance(self) -> float:
        """``Var f = E f^2 - (E f)^2``."""
        return max(self.m2 - self.mean * self.mean, 0.0)

    @property
    def kurtosis(self) -> float:
        """``E f^4 / (E f^2)^2``."""
        return self.m4 / (self.m2 * self.m2) if self.m2 > 0 else math.nan


class Unresolved(ActivationError):
    """The function is too rough at this width for its moments to be computed."""


class Integrand:
    """A function of one real variable with its breaks, integrated against any Gaussian.

    Args:
        fn: vectorized and elementwise; takes a float64 array and returns one of the same shape.
        label: how messages call it.
        guard: context manager that restores random state while ``fn`` is checked.
        trusted: skip the checks (for functions composed of known elementwise operations).
    Raises:
        ActivationError: the function is random, not elementwise or NaN.
    """

    def __init__(
        self, fn: Callable[..., object], label: str = "function", guard: Guard = nullcontext, trusted: bool = False
    ) -> None:
        self.label = label
        self.f: Function = scalar_function(fn, label)
        if not trusted:
            check(self.f, label, guard)
        self._map: BreakMap | None = None
        self._tables: OrderedDict[tuple[float, float], Table] = OrderedDict()
        self._moments: OrderedDict[tuple[float, float], Moments] = OrderedDict()
        self._hermite: OrderedDict[tuple[float, float], Array] = OrderedDict()

    @property
    def breaks(self) -> BreakMap:
        """Where the function is not smooth; searched on first use."""
        if self._map is None:
            self._map = BreakMap(self.f)
        return self._map

    @property
    def kinks(self) -> tuple[float, ...]:
        """Points where the derivative jumps, within 16 of zero."""
        return tuple(b.at for b in self.breaks.within(-_SHOWN, _SHOWN) if b.kind == "kink")

    @property
    def jumps(self) -> tuple[float, ...]:
        """Points where the value jumps, within 16 of zero."""
        return tuple(b.at for b in self.breaks.within(-_SHOWN, _SHOWN) if b.kind == "jump")

    def moments(self, mean: float = 0.0, variance: float = 1.0) -> Moments:
        """Mean, second and fourth moment, ``E f'^2`` and the level's slope, with error bounds.

        Raises:
            ConfigError: ``mean`` or ``variance`` is not finite, or the variance negative.
            ActivationError: NaN within reach of the Gaussian, or ``E f^2`` diverges.
        """
        key = checked(mean, variance)
        if key not in self._moments:
            _remember(self._moments, key, self._at_point(key[0]) if key[1] == 0 else self._integrate(*key), 4096)
        return self._moments[key]

    def power(self, p: int, mean: float = 0.0, variance: float = 1.0) -> float:
        """``E f^p`` for a whole ``p >= 0``; infinite where it diverges."""
        mean, variance = checked(mean, variance)
        if variance == 0:
            return float(self.f(np.array([mean]))[0] ** p)
        if p <= 4:
            table = self.table(mean, variance)
            return float(np.sum(table.weight * table.y**p)) if table.end_share((1, 1, 2, 4, 4)[p]) < 1e-12 else math.inf
        raised = Integrand(lambda x: self.f(x) ** (p / 2 if p % 2 == 0 else p), self.label, trusted=True)
        raised._map = self.breaks
        table = raised._build(mean, math.sqrt(variance), 2 if p % 2 == 0 else 1)
        if table.end_share(2 if p % 2 == 0 else 1) > 1e-12:
            return math.inf
        return table.total(2) if p % 2 == 0 else float(np.sum(table.weight * table.y))

    def hermite(self, mean: float = 0.0, variance: float = 1.0, degrees: int = 64) -> Array:
        """Coefficients ``c_k = E f(x) h_k(z)``, ``k < degrees <= 512``, ``h_k`` the orthonormal Hermite polynomials.

        ``E f(u) f(v) = sum c_k^2 rho^k`` for two such variables of correlation ``rho`` (Mehler's formula).
        """
        key = checked(mean, variance)
        if not 1 <= degrees <= DEGREES:
            raise ConfigError("The number of Hermite coefficients must lie in 1-512", value=degrees)
        if key[1] == 0:
            return np.concatenate([self.f(np.array([key[0]])), np.zeros(degrees - 1)])
        known = self._hermite.get(key)
        if known is None or known.size < degrees:
            known = quadrature.hermite(self.table(*key), 64 if degrees <= 64 else DEGREES)
            _remember(self._hermite, key, known, 1024)
        return known[:degrees].copy()

    def table(self, mean: float = 0.0, variance: float = 1.0) -> Table:
        """Nodes, values and weights under ``N(mean, variance)``, variance positive."""
        key = checked(mean, variance)
        if key not in self._tables:
            _remember(self._tables, key, self._build(key[0], math.sqrt(key[1])), 64)
        return self._tables[key]

    def cuts(self, mean: float, sd: float, reach: float) -> list[Break]:
        """Breaks within ``reach`` standard deviations."""
        return self.breaks.within(mean - reach * sd, mean + reach * sd)

    def _build(self, mean: float, sd: float, p: int = 2) -> Table:
        table: Table | None = None
        for reach in _REACH:
            at = [*(b.at for b in self.cuts(mean, sd, reach)), *_octaves(sd)]
            cuts = [(x - mean) / sd for x in at if abs(x - mean) < reach * sd]
            table = quadrature.build(lambda z: self._values(mean, sd, z), sd, cuts, reach, self.breaks.noise)
            if table.end_share(p) < 1e-26 and table.end_share(2 * p) < 1e-18:
                return table
        assert table is not None
        if not table.end_share(p) < 1e-12:
            raise ActivationError(
                f"The activation {self.label} grows faster than a Gaussian can carry: E f(x)^2 has no finite value",
                value=f"x ~ N({mean:.4g}, {sd * sd:.4g})",
                remedy="Bound its growth (clamp the argument) or lower the variance before it.",
            )
        return table

    def _values(self, mean: float, sd: float, z: Array) -> Array:
        x = mean + sd * z
        y = self.f(x)
        if np.isnan(y).any():
            raise ActivationError(
                f"The activation {self.label} gives NaN",
                value=f"f({x.reshape(-1)[int(np.isnan(y).argmax())]:.6g}) = nan",
                remedy=f"It is needed for arguments distributed as N({mean:.4g}, {sd * sd:.4g}); clamp its argument.",
            )
        return y

    def _at_point(self, x: float) -> Moments:
        y = float(self._values(x, 0.0, np.zeros(1))[0])
        step = 1e-3 * max(1.0, abs(x))
        around = self.f(x + step * np.array([-2.0, -1.0, 1.0, 2.0]))
        slope = float(around @ np.array([1.0, -8.0, 8.0, -1.0])) / (12 * step)
        errors = {name: 8 * EPS * abs(y) ** p for name, p in (("mean", 1), ("m2", 2), ("m4", 4), ("variance", 2))}
        return Moments(y, y * y, y**4, slope * slope, 0.0, max(errors.values()), errors)

    def _integrate(self, mean: float, variance: float) -> Moments:
        t, sd = self.table(mean, variance), math.sqrt(variance)
        first, second = float(np.sum(t.weight * t.y)), t.total(2)
        fourth = t.total(4) if t.end_share(4) < 1e-12 else math.inf
        with np.errstate(all="ignore"):
            slope = 0.5 * float(np.sum((np.sqrt(t.weight) * t.y) ** 2 * (t.z * t.z - 1.0)))
        errors = quadrature.bounds(t, mean, sd, self._jump_errors(mean, sd))
        errors["variance"] = errors["m2"] + 2 * abs(first) * errors["mean"]
        if second > 0 and not errors["m2"] < 1e-3 * second:
            raise Unresolved(
                f"E f(x)^2 of the activation {self.label} cannot be computed: it has a pole or is rough everywhere",
                value=f"relative error {errors['m2'] / second:.2g} for x ~ N({mean:.4g}, {variance:.4g})",
                remedy="Bound it near its pole, or make it smooth between finitely many kinks and jumps.",
            )
        worst = max(e for n, e in errors.items() if n != "m4" or math.isfinite(fourth))
        return Moments(first, second, fourth, quadrature.gradient(t), slope, worst, errors)

    def _jump_errors(self, mean: float, sd: float) -> tuple[float, ...]:
        """Change of each moment when every jump is misplaced by one unit in the last place."""
        at = np.array([b.at for b in self.cuts(mean, sd, _REACH[0]) if b.kind == "jump"])
        if not at.size:
            return (0.0, 0.0, 0.0)
        step = 2 * EPS * np.maximum(np.abs(at), 1e-3)
        density = DENSITY * np.exp(-0.5 * ((at - mean) / sd) ** 2) / sd * step
        left, right = np.abs(self.f(at - step)), np.abs(self.f(at + step))
        with np.errstate(all="ignore"):
            return tuple(float(np.sum(density * (left**p + right**p))) for p in (1, 2, 4))


def pair(
    f: Integrand,
    g: Integrand,
    rho: float,
    mean: tuple[float, float] = (0.0, 0.0),
    variance: tuple[float, float] = (1.0, 1.0),
) -> tuple[float, float]:
    """``E f(u) g(v)`` for jointly Gaussian ``u, v`` of correlation ``rho``, and a bound on its error.

    Hermite series where its remainder is at rounding level, one-dimensional quadrature at ``|rho| = 1``,
    else two-dimensional quadrature with the panels of ``v`` cut at the breaks of ``g`` for every ``u``.

    Raises:
        ConfigError: ``rho`` is not in [-1, 1], or a mean or variance is unusable.
    """
    if not -1.0 <= rho <= 1.0:
        raise ConfigError("A correlation lies in [-1, 1]", value=rho)
    return pairs.expectation(f, g, float(rho), checked(mean[0], variance[0]), checked(mean[1], variance[1]))


def checked(mean: float, variance: float) -> tuple[float, float]:
    """Mean and variance as finite floats; a mean below any precision next to the deviation is zero.

    Raises:
        ConfigError: one is not finite, or the variance is negative.
    """
    mean, variance = float(mean), float(variance)
    if not (math.isfinite(mean) and math.isfinite(variance) and variance >= 0):
        raise ConfigError(
            "A Gaussian needs a finite mean and a finite variance of at least 0", value=f"N({mean}, {variance})"
        )
    return (0.0 if abs(mean) < 1e-100 * math.sqrt(variance) else mean), variance


def _octaves(sd: float) -> list[float]:
    """Panel borders that keep features of unit width in sight when the Gaussian is much wider."""
    return [sign * 2.0**k for k in range(math.ceil(math.log2(sd))) for sign in (-1.0, 1.0)] if sd > 2.0 else []


def _remember(cache: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    cache[key] = value
    if len(cache) > limit:
        cache.popitem(last=False)

"""Homogeneity, self-consistent levels and roots along the edge of chaos."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anyinit._core.gaussian import Integrand, Unresolved
from anyinit.errors import ActivationError

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

_GRID = (0.0, 2.0, 4.0, 8.0, 12.0, 20.0, 26.0)  # |log variance| looked at
_STRIDE = 4.0


def degree(f: Function) -> float | None:
    """``d`` with ``f(c x) = c^d f(x)`` for ``c > 0`` to rounding, else ``None`` (also for the zero function)."""
    x = np.array([-5.3, -2.7, -1.1, -0.43, -0.071, 0.0, 0.093, 0.31, 1.3, 2.9, 4.7])
    y = f(x)
    used = y != 0
    if not (np.isfinite(y).all() and used.any()):
        return None
    found: float | None = None
    for c in (2.0, 0.37, 5.9):
        scaled = f(c * x)
        if not np.isfinite(scaled).all() or (scaled[~used] != 0).any() or (scaled[used] * y[used] <= 0).any():
            return None
        exponents = np.log(scaled[used] / y[used]) / math.log(c)
        mine = float(exponents.mean()) if found is None else found
        if np.abs(exponents - mine).max() > 1e-10 * max(1.0, abs(mine)):
            return None
        found = mine
    assert found is not None
    return round(found * 12) / 12 if abs(found * 12 - round(found * 12)) < 1e-8 else found


def unit_level(f: Integrand, homogeneous: float | None) -> tuple[float | None, tuple[float, float] | None]:
    """``sigma`` with ``E f(sigma z)^2 = 1``, else the range of ``E f^2`` over variances.

    The solution nearest to unit variance in the direction of the slope there; ``None`` with a range when there is
    none, and also for functions whose level does not depend on the variance.
    """
    at_one = f.moments().m2
    if homogeneous is not None:
        if homogeneous <= 0 or at_one <= 0:
            return None, (at_one, at_one)
        return at_one ** (-0.5 / homogeneous), None

    root = _newton(f)
    levels = {} if root is not None else _scan(f)
    bracket = _bracket(levels)
    if root is None and bracket is not None:
        root = solve(lambda t: _level(f, t)[0] - 1.0, *bracket)
    if root is not None:
        return math.exp(0.5 * root), None
    return None, (min(levels.values()), max(levels.values()))


def _newton(f: Integrand) -> float | None:
    """Log variance of unit level by Newton steps on ``log E f^2`` from variance 1; ``None`` when it saturates."""
    t = 0.0
    for _ in range(12):
        m2, slope = _level(f, t)
        if not (0 < m2 < math.inf and slope > 0.02):
            return None
        step = math.log(m2) / slope
        t -= min(max(step, -_STRIDE), _STRIDE)
        if abs(step) < 1e-9:  # converges quadratically: what is left is rounding
            return t
        if abs(t) > _GRID[-1]:
            return None
    return None


def _level(f: Integrand, t: float) -> tuple[float, float]:
    """``E f^2`` and its relative slope at log variance ``t``; infinite where a Gaussian cannot carry it."""
    try:
        at = f.moments(0.0, math.exp(t))
    except Unresolved:
        return math.nan, math.nan
    except ActivationError:
        return math.inf, math.nan
    return at.m2, at.slope / at.m2 if at.m2 > 0 else math.nan


def _scan(f: Integrand) -> dict[float, float]:
    """``E f^2`` by log variance, outward from 0 until it stops changing or cannot be computed."""
    levels = {0.0: f.moments().m2, -64.0: _level(f, -64.0)[0]}
    for sign in (1.0, -1.0):
        before = levels[0.0]
        for t in _GRID[1:]:
            level = _level(f, sign * t)[0]
            if math.isnan(level):
                break
            levels[sign * t] = level
            if not math.isfinite(level) or abs(level - before) <= 1e-12 * level:
                break
            before = level
    return levels


def _bracket(levels: dict[float, float]) -> tuple[float, float] | None:
    """Neighbouring log variances, nearest to 0, between which the level passes 1."""
    known = sorted(t for t in levels if t > -64.0)
    pairs = [(a, b) for a, b in pairwise(known) if (levels[a] > 1.0) != (levels[b] > 1.0)]
    return min(pairs, key=lambda ab: abs(ab[0] + ab[1]), default=None)


def solve(g: Callable[[float], float], low: float, high: float) -> float:
    """A root of ``g`` in a bracket to rounding: false position that halves the weight of a stale end (Illinois)."""
    a, b = low, high
    ga, gb = g(a), g(b)
    for _ in range(200):
        if ga == 0 or gb == 0 or abs(b - a) <= 2e-15 * max(1.0, abs(a)):
            break
        middle = b - gb * (b - a) / (gb - ga)
        if not min(a, b) < middle < max(a, b):
            middle = 0.5 * (a + b)
        value = g(middle)
        if (value > 0) != (gb > 0) or value == 0:
            a, ga = b, gb
        else:
            ga *= 0.5
        b, gb = middle, value
    return a if abs(ga) < abs(gb) and ga == 0 else b


def edge_level(bias: Callable[[float], float], target: float) -> float | None:
    """Smallest level ``q > 0`` with ``bias(q) = target``; 0 when ``target`` is the limit there."""

    def excess(t: float) -> float:
        return bias(math.exp(t)) - target

    grid = np.arange(-23.0, 23.5, 0.5).tolist()
    last: tuple[float, float] | None = None
    for t in grid:
        try:
            value = excess(t)
        except ActivationError:
            last = None
            continue
        noise = 1e-13 * math.exp(t)
        if last is not None and (value > noise) != (last[1] > noise) and abs(value) > noise:
            return math.exp(solve(excess, last[0], t))
        last = (t, value)
    if target == 0 and abs(bias(math.exp(-23.0))) < 1e-9 * math.exp(-23.0):
        return 0.0
    return None

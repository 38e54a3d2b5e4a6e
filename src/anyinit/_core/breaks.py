"""Find where a function of one real variable is not smooth, from its values alone.

Every panel of the line is interpolated at 17 Chebyshev points. A panel whose last coefficients are not at
rounding level is cut into eight, until the parts are smooth (their common parent then brackets a kink, or a
break of a higher derivative) or as narrow as two neighbouring numbers (a jump).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

_N = 16
_ANGLES = np.pi * np.arange(_N + 1) / _N
_POINTS = -np.cos(_ANGLES)
_POINTS[_N // 2] = 0.0


def _chebyshev() -> Array:
    """Matrix from values at ``_POINTS`` to the last three Chebyshev coefficients."""
    k = np.arange(_N - 2, _N + 1)
    matrix = 2.0 / _N * np.cos(np.outer(np.pi - _ANGLES, k))
    matrix[[0, -1]] *= 0.5
    matrix[:, -1] *= 0.5
    return matrix


_TAIL = _chebyshev()
_EPS = 2.0**-52
_RESOLVED = 2.0**-48
_CORE = 16.0372918  # half-width of the first scan; its multiples meet no number a person would write
_CUTS = np.array([0.0, 0.1213, 0.2471, 0.3719, 0.4937, 0.6203, 0.7459, 0.8731, 1.0])  # uneven: no cut falls on 0
_SPLIT = len(_CUTS) - 1
_CAP = 6000  # panels at one level: more means noise or a function that is rough everywhere
_NARROW = 2.0**-7  # a bracket wider than this was steep, not broken


@dataclass(frozen=True, slots=True)
class Break:
    """A point where the function is not smooth.

    at: position. size: jump of the value. slope: jump of the derivative. kind: ``jump`` (the value is
    discontinuous), ``kink`` (the derivative is) or ``soft`` (a higher derivative is).
    """

    at: float
    kind: str
    size: float
    slope: float


@dataclass(slots=True)
class BreakMap:
    """The breaks of ``f``, searched once and farther out on demand.

    noise: relative rounding noise of ``f`` where it exceeds that of float64, else 0.
    rough: half-width beyond which no breaks were resolved (infinite when everything was).
    """

    f: Function
    scale: float = 0.0
    noise: float = 0.0
    rough: float = np.inf
    reach: float = 0.0
    breaks: list[Break] = field(default_factory=list[Break])

    def __post_init__(self) -> None:
        centre = self.f(np.linspace(-4.03, 4.07, 65))
        self.scale = float(np.max(np.abs(centre[np.isfinite(centre)]), initial=1e-300))
        self._extend(np.linspace(-_CORE, _CORE, 68), _CORE)

    def within(self, lo: float, hi: float) -> list[Break]:
        """All breaks in the open interval, sorted; scans farther first if it must."""
        while self.reach < max(-lo, hi) and self.reach < 1e15:
            shell = np.linspace(self.reach, 2.0 * self.reach, 18)
            self._extend(shell, 2.0 * self.reach, mirror=True)
        return [b for b in self.breaks if lo < b.at < hi]

    def _extend(self, edges: Array, reach: float, mirror: bool = False) -> None:
        lo, hi = edges[:-1], edges[1:]
        if mirror:
            lo, hi = np.concatenate([-edges[:0:-1], lo]), np.concatenate([-edges[-2::-1], hi])
        brackets = self._search(lo, hi, max(_RESOLVED, self.noise)) if self.reach < self.rough else None
        if brackets is None:
            self.rough = min(self.rough, self.reach)
        else:
            self.breaks = sorted([*self.breaks, *self._classify(brackets)], key=lambda b: b.at)
        self.reach = reach

    def _search(self, lo: Array, hi: Array, tolerance: float, retry: bool = True) -> Array | None:
        """Brackets (k, 2) of the breaks in the panels ``[lo, hi]``; ``None`` when there are too many."""
        found: list[Array] = []
        jumps: list[Array] = []
        first = True
        while lo.size:
            if lo.size > (_CAP if self.reach < 512 else _CAP // 4):
                return self._noisy(lo, hi) if retry else None
            bad, _, jump = self._judge(lo, hi, tolerance)
            if not first:
                family = bad.reshape(-1, _SPLIT)
                a, b = lo[::_SPLIT], hi[_SPLIT - 1 :: _SPLIT]
                healed = ~family.any(axis=1) & (b - a < _NARROW * np.maximum(1.0, np.abs(a)))
                found.append(np.stack([a[healed], b[healed]], axis=1))
            narrow = bad & (hi - lo <= 4.0 * _EPS * np.maximum(np.abs(lo), 1e-4))
            found.append(np.stack([lo[narrow], hi[narrow]], axis=1))
            jumps.append(np.stack([lo[jump & ~narrow], hi[jump & ~narrow]], axis=1))
            lo, hi = _cut(lo[bad & ~narrow & ~jump], hi[bad & ~narrow & ~jump])
            first = False
        return np.concatenate([*found, self._sharpen(np.concatenate(jumps or [np.empty((0, 2))]))])

    def _noisy(self, lo: Array, hi: Array) -> Array | None:
        """Repeat the search of these panels' span above the noise level they show."""
        _, ratio, _ = self._judge(lo, hi, 0.0)
        level = float(np.quantile(ratio, 0.9))
        if level > 1e-4:
            return None
        self.noise = max(self.noise, 8.0 * level)
        edges = np.linspace(lo.min(), hi.max(), 68)
        return self._search(edges[:-1], edges[1:], self.noise, retry=False)

    def _judge(self, lo: Array, hi: Array, tolerance: float) -> tuple[NDArray[np.bool_], Array, NDArray[np.bool_]]:
        """Per panel: not smooth; last coefficients over the local scale; holds a jump."""
        x = 0.5 * (hi + lo)[:, None] + 0.5 * (hi - lo)[:, None] * _POINTS
        y = self.f(x)
        usable = np.logical_and.reduce(np.isfinite(y), axis=1)
        y = np.where(usable[:, None], y, 0.0)
        tail = np.abs(y @ _TAIL).max(axis=1)
        width = (hi - lo) / np.maximum(1.0, np.abs(lo))
        local = np.abs(y).max(axis=1) + self.scale
        step = np.abs(y[:, 1:] - y[:, :-1])
        with np.errstate(all="ignore"):
            slope = np.median(step / (x[:, 1:] - x[:, :-1]), axis=1)
        slope = np.where(np.isfinite(slope), slope, 0.0)
        bad = tail > tolerance * local + 4.0 * _EPS * np.abs(x).max(axis=1) * slope
        ordered: Array = np.partition(step, -2, axis=1)
        second, largest = ordered[:, -2], ordered[:, -1]
        sudden = (largest > 64.0 * second) & (largest > 0.01 * local) & (width < 2.0**-20)
        return bad, tail / local, bad & sudden

    def _sharpen(self, brackets: Array) -> Array:
        """Shrink brackets of jumps to neighbouring numbers, by sixteenths."""
        lo, hi = brackets[:, 0], brackets[:, 1]
        rows = np.arange(lo.size)
        for _ in range(20 if lo.size else 0):
            x = lo[:, None] + (hi - lo)[:, None] * np.linspace(0.0, 1.0, 17)
            x[:, -1] = hi
            at = np.abs(np.diff(self.f(x), axis=1)).argmax(axis=1)
            lo, hi = x[rows, at], x[rows, at + 1]
        return np.stack([lo, hi], axis=1)

    def _classify(self, brackets: Array) -> list[Break]:
        brackets = _merge(brackets)
        if not len(brackets):
            return []
        at = np.array([_simplest(a, b) for a, b in brackets])
        gap = np.diff(at, prepend=-np.inf, append=np.inf)
        reach = 0.25 * np.minimum(np.minimum(gap[:-1], gap[1:]), 0.04 * np.maximum(1.0, np.abs(at)))
        before, after = brackets[:, 0] - 2 * _EPS * np.abs(at), brackets[:, 1] + 2 * _EPS * np.abs(at)
        left, right = self.f(before), self.f(after)
        slope = self._slope(at, after, reach) - self._slope(at, before, -reach)
        with np.errstate(all="ignore"):
            size = right - left
        scale = np.abs(left) + np.abs(right) + self.scale
        narrow = (brackets[:, 1] - brackets[:, 0]) / np.maximum(1.0, np.abs(at))
        loose = max(1e-8, 100 * self.noise)
        near = np.abs(at[:, None] - at) < 50.0 * (brackets[:, 1] - brackets[:, 0])[:, None]
        steep = (near & (narrow[:, None] > 2.0 * narrow)).any(axis=1)  # part of a narrower singularity beside it
        jump = (narrow < 1e-12) & ~(np.abs(size) <= loose * scale)
        kink = (narrow < 1e-8) & ~steep & ~(np.abs(slope) <= 100 * loose * scale)
        kinds = np.where(jump, "jump", np.where(kink, "kink", "soft"))
        rows = zip(at, kinds, np.where(jump, size, 0.0), slope, strict=True)
        return [Break(float(p), str(k), float(j), float(s)) for p, k, j, s in rows]

    def _slope(self, at: Array, start: Array, reach: Array) -> Array:
        """Limit of the derivative at ``at`` from one side, by a quintic through six points."""
        x = start[:, None] + reach[:, None] * np.linspace(0.0, 1.0, 6)
        with np.errstate(all="ignore"):
            u = (x - at[:, None]) / reach[:, None]
            coefficients = np.linalg.solve(u[:, :, None] ** np.arange(6), self.f(x)[:, :, None])
            return coefficients[:, 1, 0] / reach


def _cut(lo: Array, hi: Array) -> tuple[Array, Array]:
    edges = lo[:, None] + (hi - lo)[:, None] * _CUTS
    edges[:, -1] = hi
    return edges[:, :-1].reshape(-1), edges[:, 1:].reshape(-1)


def _merge(brackets: Array) -> Array:
    """Unite brackets that touch or nearly do: one break seen from two panels."""
    out: list[list[float]] = []
    for a, b in brackets[np.lexsort((brackets[:, 1], brackets[:, 0]))]:
        if out and a <= out[-1][1] + 1e-12 * max(1.0, abs(a)):
            out[-1][1] = max(out[-1][1], float(b))
        else:
            out.append([float(a), float(b)])
    return np.array(out).reshape(-1, 2)


def _simplest(lo: float, hi: float) -> float:
    """The number with the fewest decimals in the bracket, else its middle."""
    for digits in range(16):
        candidate = round(0.5 * (lo + hi), digits)
        if lo <= candidate <= hi:
            return candidate + 0.0
    return 0.5 * (lo + hi)

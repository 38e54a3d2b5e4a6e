"""``E f(u) g(v)`` for two correlated Gaussian variables."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.polynomial import legendre

from anyinit._core.breaks import Break
from anyinit._core.quadrature import DENSITY, EPS, NODES, WEIGHTS, Array, Function, Table

_DEGREES = 512
_COARSE_NODES, _COARSE_WEIGHTS = legendre.leggauss(15)
_INNER = 9.5  # half-width of the inner integral in standard deviations; the mass beyond is 2e-21
_AROUND = np.array([-8.0, -6.0, -4.5, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.5, 6.0, 8.0])

Key = tuple[float, float]


class _Levels(Protocol):
    @property
    def mean(self) -> float: ...
    @property
    def m2(self) -> float: ...
    @property
    def errors(self) -> dict[str, float]: ...


class Integrable(Protocol):
    """What is needed of an integrand."""

    f: Function

    def moments(self, mean: float = 0.0, variance: float = 1.0) -> _Levels: ...
    def table(self, mean: float = 0.0, variance: float = 1.0) -> Table: ...
    def hermite(self, mean: float = 0.0, variance: float = 1.0, degrees: int = 64) -> Array: ...
    def cuts(self, mean: float, sd: float, reach: float) -> list[Break]: ...


def expectation(f: Integrable, g: Integrable, rho: float, kf: Key, kg: Key) -> tuple[float, float]:
    """Value and error bound; ``kf`` and ``kg`` are (mean, variance) of the two arguments."""
    a, b = f.moments(*kf), g.moments(*kg)
    root = math.sqrt(a.m2 * b.m2)
    floor = 32 * EPS * root + _relative(a) * root + _relative(b) * root
    if kf[1] == 0 or kg[1] == 0 or rho == 0.0:
        return a.mean * b.mean, floor
    if abs(rho) == 1.0:
        return _line(f, g, rho, kf, kg), floor
    for degrees in (64, _DEGREES):
        c, d = f.hermite(*kf, degrees), g.hermite(*kg, degrees)
        left = max(a.m2 - float(c @ c), 64 * EPS * a.m2) * max(b.m2 - float(d @ d), 64 * EPS * b.m2)
        remainder = abs(rho) ** degrees * math.sqrt(left)
        if remainder <= 64 * EPS * root:
            return float(np.sum(c * d * rho ** np.arange(degrees))), floor + remainder
    fine, coarse = (_plane(f, g, rho, kf, kg, *rule) for rule in ((NODES, WEIGHTS), (_COARSE_NODES, _COARSE_WEIGHTS)))
    return fine, abs(fine - coarse) + floor


def _relative(m: _Levels) -> float:
    return m.errors["m2"] / m.m2 if m.m2 > 0 else 0.0


def _line(f: Integrable, g: Integrable, sign: float, kf: Key, kg: Key) -> float:
    """Both arguments are functions of one ``z``: panels are cut where either function needs it."""
    edges = np.union1d(f.table(*kf).edges, np.sort(sign * g.table(*kg).edges))
    z, weight = _rule(edges[:-1], edges[1:], NODES, WEIGHTS)
    weight = weight * DENSITY * np.exp(-0.5 * z * z)
    u, v = kf[0] + math.sqrt(kf[1]) * z, kg[0] + sign * math.sqrt(kg[1]) * z
    return float(np.sum(weight * f.f(u) * g.f(v)))


def _plane(f: Integrable, g: Integrable, rho: float, kf: Key, kg: Key, nodes: Array, weights: Array) -> float:
    """``E f(u) F(u)`` with ``F(u) = E g(rho u + s w)``, ``s^2 = 1 - rho^2``, the inner panels cut for every ``u``."""
    s = math.sqrt((1.0 - rho) * (1.0 + rho))
    tf, tg = f.table(*kf), g.table(*kg)
    sd = math.sqrt(kg[1])
    breaks = np.array([(b.at - kg[0]) / sd for b in g.cuts(kg[0], sd, tg.reach)])
    edges = np.concatenate([tf.edges, tg.edges / rho, ((breaks[:, None] + s * _AROUND) / rho).reshape(-1)])
    edges = np.unique(edges[np.abs(edges) <= tf.reach])
    z, weight = _rule(edges[:-1], edges[1:], nodes, weights)
    weight = weight * DENSITY * np.exp(-0.5 * z * z)
    outer = weight * f.f(kf[0] + math.sqrt(kf[1]) * z)
    keep = np.abs(outer) > 1e-22 * np.abs(outer).max()
    inner = _smoothed(g, kg, rho * z[keep], s, breaks, tg, nodes, weights)
    return float(np.sum(outer[keep] * inner))


def _smoothed(
    g: Integrable, kg: Key, centre: Array, s: float, breaks: Array, tg: Table, nodes: Array, weights: Array
) -> Array:
    """``E_w g(centre + s w)`` in units of the standard deviation of ``v``, for every centre."""
    middle = np.abs(tg.z[:, 0]) < 3.0
    width = float(np.median(np.diff(tg.edges)[middle]))
    count = max(10, math.ceil(2 * _INNER * s / max(width, 1e-3)))
    grid = np.broadcast_to(np.linspace(-_INNER, _INNER, count + 1), (centre.size, count + 1))
    out = np.empty(centre.size)
    rows = max(1, 400_000 // ((count + breaks.size + 1) * nodes.size))
    for start in range(0, centre.size, rows):
        part = slice(start, start + rows)
        near = breaks[(breaks > centre[part].min() - s * _INNER) & (breaks < centre[part].max() + s * _INNER)]
        cuts = np.clip((near - centre[part, None]) / s, -_INNER, _INNER)
        edges = np.sort(np.concatenate([grid[part], cuts], axis=1), axis=1)
        w, weight = _rule(edges[:, :-1], edges[:, 1:], nodes, weights)
        weight = weight * DENSITY * np.exp(-0.5 * w * w)
        x = kg[0] + math.sqrt(kg[1]) * (centre[part, None, None] + s * w)
        out[part] = np.sum(weight * g.f(x), axis=(1, 2))
    return out


def _rule(lo: Array, hi: Array, nodes: Array, weights: Array) -> tuple[Array, Array]:
    half = 0.5 * (hi - lo)[..., None]
    return 0.5 * (lo + hi)[..., None] + half * nodes, half * weights

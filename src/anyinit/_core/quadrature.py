"""Gauss-Legendre panels for a function under a Gaussian, and sums over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
Evaluate = Callable[[Array], Array]

NODES, WEIGHTS = cast("tuple[Array, Array]", legendre.leggauss(20))
DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
EPS = 2.0**-52

_N = len(NODES)
_COEFFICIENTS: Array = (legendre.legvander(NODES, _N - 1) * WEIGHTS[:, None] * (np.arange(_N) + 0.5)).T
_TAIL = _COEFFICIENTS[-3:].T
_SLOPE: Array = (legendre.legvander(NODES, _N - 2) @ legendre.legder(np.eye(_N)) @ _COEFFICIENTS).T
_ROW = {1: 0, 2: 1, 4: 2}
_CAP = 3000  # bisections after which the rest is left to the error bound


@dataclass(frozen=True, slots=True)
class Table:
    """Quadrature of one function under one Gaussian: ``E g(z, f) = sum(weight * g(z, y))``.

    edges: panel borders in ``z``. z, y, dy, weight: nodes, values of ``f``, of ``df/dx`` and weights, one row a
    panel. tail: bound on the interpolation error of ``f`` per panel. parts: ``E |f|^p`` per panel for p = 1, 2, 4.
    reach: where the line of ``z`` ends.
    """

    edges: Array
    z: Array
    y: Array
    dy: Array
    weight: Array
    tail: Array
    parts: Array
    reach: float

    def total(self, p: int) -> float:
        """``E |f|^p`` for p = 1, 2, 4."""
        return float(self.parts[_ROW[p]].sum())

    def end_share(self, p: int) -> float:
        """Share of ``E |f|^p`` that comes from the outermost unit of ``z`` on either side."""
        total = self.total(p)
        if total == 0:
            return 0.0
        share = float(self.parts[_ROW[p], np.abs(self.z[:, 0]) > self.reach - 1.0].sum()) / total
        return share if math.isfinite(share) else math.inf


def _powers(weight: Array, y: Array) -> Array:
    """Sums of ``weight |y|^p`` per panel for p = 1, 2, 4, without overflow on the way."""
    size, half = np.abs(y), np.sqrt(weight)
    square = half * size
    square *= square
    fourth = np.sqrt(half) * size
    fourth *= fourth
    fourth *= fourth
    return np.stack([np.einsum("ij,ij->i", weight, size), square.sum(axis=1), fourth.sum(axis=1)])


def build(evaluate: Evaluate, sd: float, cuts: Sequence[float], reach: float, noise: float) -> Table:
    """Panels on ``[-reach, reach]``, cut at ``cuts`` and halved until ``f`` and ``f^2`` are resolved.

    Args:
        evaluate: values of ``f`` at nodes given in ``z``. sd: ``dx/dz``. noise: relative noise of ``f``.
    """
    edges = np.unique(np.concatenate([np.linspace(-reach, reach, int(2 * reach) + 1), cuts]))
    lo, hi = edges[:-1], edges[1:]
    before = np.full(lo.size, np.inf)
    done: list[tuple[Array, ...]] = []
    scale = np.zeros(3)
    count = 0
    with np.errstate(all="ignore"):
        while lo.size:
            half = 0.5 * (hi - lo)[:, None]
            z = 0.5 * (lo + hi)[:, None] + half * NODES
            y = evaluate(z)
            weight = half * WEIGHTS * (DENSITY * np.exp(-0.5 * z * z))
            parts = _powers(weight, y)
            scale = np.maximum(scale, parts.sum(axis=1))
            size = np.abs(y).max(axis=1)
            tail, rough = _tails(y, size)
            bad = _unresolved(rough, size, weight.sum(axis=1), scale, max(10 * EPS, noise))
            bad &= (rough < 0.6 * before) | (rough > 1e-9 * size)  # else halving meets only rounding noise
            bad &= hi - lo > 16 * EPS * np.maximum(np.maximum(np.abs(lo), np.abs(hi)), 1e-9)
            count += int(bad.sum())
            bad &= count < _CAP
            good = ~bad
            done.append((lo[good], hi[good], z[good], y[good], weight[good], tail[good], parts[:, good]))
            before = np.repeat(rough[bad], 2)
            lo, hi = _halve(lo[bad], hi[bad])
        return _assemble(done, sd, reach)


def _tails(y: Array, size: Array) -> tuple[Array, Array]:
    """Last Legendre coefficients of ``f`` per panel; the larger of these and those of ``f^2`` over ``max |f|``."""
    tail = np.abs(y @ _TAIL).max(axis=1)
    square = np.abs((y / size[:, None]) ** 2 @ _TAIL).max(axis=1) * size
    return tail, np.fmax(tail, np.where(size > 0, square, 0.0))


def _unresolved(rough: Array, size: Array, mass: Array, scale: Array, tolerance: float) -> NDArray[np.bool_]:
    """Panels whose interpolation error matters to ``E f``, ``E f^2`` or ``E f^4``."""
    quarter = np.sqrt(np.sqrt(mass))
    first = rough * mass > tolerance * math.sqrt(scale[1])
    second = rough * size * mass > tolerance * scale[1]
    fourth = (quarter * rough) * (quarter * size) ** 3 > tolerance * scale[2]
    return first | second | (fourth & np.isfinite(scale[2]))


def _halve(lo: Array, hi: Array) -> tuple[Array, Array]:
    middle = 0.5 * (lo + hi)
    return np.stack([lo, middle], axis=1).reshape(-1), np.stack([middle, hi], axis=1).reshape(-1)


def _assemble(done: list[tuple[Array, ...]], sd: float, reach: float) -> Table:
    *columns, parts = zip(*done, strict=True)
    lo, hi, z, y, weight, tail = (np.concatenate(c) for c in columns)
    order = np.argsort(lo, kind="stable")
    lo, hi, z, y, weight, tail = lo[order], hi[order], z[order], y[order], weight[order], tail[order]
    dy = y @ _SLOPE * (2.0 / (sd * (hi - lo)))[:, None]
    dy[(y == y[:, :1]).all(axis=1)] = 0.0
    return Table(np.append(lo, hi[-1]), z, y, dy, weight, tail, np.concatenate(parts, axis=1)[:, order], reach)


def gradient(t: Table) -> float:
    """``E f'^2``; infinite where ever smaller panels keep adding to it."""
    with np.errstate(all="ignore"):
        parts = np.sum(t.weight * t.dy * t.dy, axis=1)
    total = float(parts.sum())
    tiny = np.diff(t.edges) < 1e-6
    if not math.isfinite(total) or float(parts[tiny].sum()) > 1e-2 * total > 0:
        return math.inf
    return total


def bounds(t: Table, mean: float, sd: float, jump: Sequence[float]) -> dict[str, float]:
    """Absolute error bounds of ``E f``, ``E f^2`` and ``E f^4``: interpolation, rounding, ends, jumps.

    jump: what misplacing every jump by one unit in the last place changes in each.
    """
    mass, size = t.weight.sum(axis=1), np.abs(t.y).max(axis=1)
    out: dict[str, float] = {}
    with np.errstate(all="ignore"):
        sensitive = np.abs((mean + sd * t.z) * t.dy)  # how rounding of the argument shows
        for (name, p), jumped in zip((("mean", 1), ("m2", 2), ("m4", 4)), jump, strict=True):
            power = np.abs(t.y) ** (p - 1)
            cut = t.end_share(p) * t.total(p)
            interpolation = p * float(np.sum(mass * t.tail * size ** (p - 1)))
            rounding = EPS * float(np.sum(t.weight * power * ((4 + 4 * p) * np.abs(t.y) + 2 * p * sensitive)))
            out[name] = interpolation + rounding + cut + jumped
    return out


def hermite(t: Table, degrees: int) -> Array:
    """``E f(x) h_k(z)`` for ``k < degrees``, ``h_k`` the orthonormal Hermite polynomials."""
    z, root = t.z.reshape(-1), np.sqrt(t.weight).reshape(-1)
    values = np.empty((degrees, z.size))
    values[0] = root
    if degrees > 1:
        values[1] = z * root
    for k in range(2, degrees):
        values[k] = (z * values[k - 1] - math.sqrt(k - 1) * values[k - 2]) / math.sqrt(k)
    return values @ (root * t.y.reshape(-1))

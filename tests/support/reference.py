"""Gaussian expectations to 40 digits, by Gauss-Legendre panels in mpmath between declared breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import mpmath as mp

DIGITS = 40
_NODES = 32


@cache
def _rule() -> tuple[tuple[Any, Any], ...]:
    """Nodes and weights on [-1, 1], by Newton's method on the Legendre recurrence."""
    rule = []
    with mp.workdps(DIGITS + 10):
        for i in range(_NODES):
            x = mp.cos(mp.pi * (i + mp.mpf(3) / 4) / (_NODES + mp.mpf(1) / 2))
            for _ in range(8):
                p, before = x, mp.mpf(1)
                for k in range(2, _NODES + 1):
                    p, before = ((2 * k - 1) * x * p - (k - 1) * before) / k, p
                slope = _NODES * (x * p - before) / (x * x - 1)
                x -= p / slope
            rule.append((x, 2 / ((1 - x * x) * slope * slope)))
    return tuple(rule)


@dataclass(frozen=True)
class Exact:
    """``E f``, ``E f^2``, ``E f^4`` and ``E f'^2`` of ``f(x)``, ``x ~ N(mean, variance)``."""

    mean: Any
    m2: Any
    m4: Any
    grad2: Any


def expectations(
    f: Callable[[Any], Any], slope: Callable[[Any], Any], breaks: tuple[Any, ...], mean: float, variance: float
) -> Exact:
    """Moments of a function given with its derivative and its breaks, all in mpmath."""
    with mp.workdps(DIGITS):
        sd = mp.sqrt(mp.mpf(variance))
        inside = [(mp.mpf(b) - mp.mpf(mean)) / sd for b in breaks]
        edges = sorted({mp.mpf(k) for k in range(-15, 16)} | {b for b in inside if abs(b) < 15})
        totals = [mp.mpf(0)] * 4
        for a, b in pairwise(edges):
            for node, weight in _rule():
                z = (a + b) / 2 + (b - a) / 2 * node
                x = mp.mpf(mean) + sd * z
                w = weight * (b - a) / 2 * mp.exp(-z * z / 2)
                y, d = f(x), slope(x)
                for i, value in enumerate((y, y * y, y**4, d * d)):
                    totals[i] += w * value
        return Exact(*(t / mp.sqrt(2 * mp.pi) for t in totals))

"""How far the angle of two inputs strays from theory in a net of finite width."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anyinit._core.profile import Profile

Array = NDArray[np.float64]
NODES, _raw = np.polynomial.hermite_e.hermegauss(64)
WEIGHTS = _raw / _raw.sum()
STEP = 0.01
DEGREES = 64


class Spread:
    """Covariance of the log level ``s`` of a pair (mean of both) and of its cosine ``c``, layer by layer.

    Empirical second moments of ``n`` units stray from their means by ``1 / sqrt(n)``, independently in each layer, and
    what a layer got wrong passes the next one's map: ``P' = J P J^T + N / n`` with ``J`` the Jacobian of
    ``(log q, c) -> (log V, c')`` and ``N`` the covariance of one unit's contribution. First order in ``1 / n``
    (Hanin & Nica 2020 for levels; here with the angle beside it).
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.covariance = np.zeros((2, 2))

    def band(self, c: float, quantile: float) -> tuple[float, float]:
        """Quantiles of the cosine measured on the units of this layer: normal in ``artanh c`` (Fisher 1915)."""
        inside = max(1 - c * c, 1e-15)
        middle = math.atanh(min(max(c, -1 + 1e-15), 1 - 1e-15))
        s = math.sqrt(max(self.covariance[1, 1], 0.0) / inside**2 + 1 / self.width)
        return math.tanh(middle - quantile * s), math.tanh(middle + quantile * s)

    def step(self, profile: Profile, q: float, c: float) -> None:
        """One layer more: through the activation at level ``q`` and cosine ``c``."""
        jacobian = np.array([[profile.level_slope(q), 0.0], [_by_level(profile, q, c), _by_cosine(profile, q, c)]])
        self.covariance = jacobian @ self.covariance @ jacobian.T + _of_a_unit(profile, q, c) / self.width


def _by_cosine(profile: Profile, q: float, c: float) -> float:
    """Slope of the angle map; what degrees above 64 hold is seen at cosines near one only."""
    at = profile.moments(0.0, q)
    squares = profile.hermite(DEGREES, variance=q) ** 2
    k = np.arange(DEGREES)
    low = float(np.sum(k[1:] * squares[1:] * c ** (k[1:] - 1)))
    rest = max(q * at.grad2 - float(np.sum(k * squares)), 0.0) if math.isfinite(at.grad2) else 0.0
    return (low + rest * abs(c) ** (2 * DEGREES)) / at.m2


def _by_level(profile: Profile, q: float, c: float) -> float:
    """Slope of the next cosine in the log level of both inputs."""

    def cosine(log_q: float) -> float:
        there = q * math.exp(log_q)
        squares = profile.hermite(DEGREES, variance=there) ** 2
        m2 = profile.moments(0.0, there).m2
        rest = max(m2 - float(squares.sum()), 0.0)
        return float(np.polynomial.polynomial.polyval(c, squares) + rest * abs(c) ** (2 * DEGREES)) / m2

    return (cosine(STEP) - cosine(-STEP)) / (2 * STEP)


def _of_a_unit(profile: Profile, q: float, c: float) -> Array:
    """Covariance of ``(f(u)^2 + f(v)^2) / 2`` and ``f(u) f(v) - c' (f(u)^2 + f(v)^2) / 2`` over the second moment."""
    u = np.broadcast_to(NODES[:, None], (len(NODES), len(NODES)))
    v = c * NODES[:, None] + math.sqrt(max(1 - c * c, 0.0)) * NODES[None, :]
    weight = WEIGHTS[:, None] * WEIGHTS[None, :]
    f, g = profile(math.sqrt(q) * u), profile(math.sqrt(q) * v)
    square = (f * f + g * g) / 2
    m2 = float(np.sum(weight * square))
    turned = f * g - float(np.sum(weight * f * g)) / m2 * square
    parts = np.stack([square - m2, turned]) / m2
    return np.einsum("aij,bij,ij->ab", parts, parts, weight)

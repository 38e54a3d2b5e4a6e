"""Roots of monotone functions. SciPy's optimizers are imported on first use: they cost more than a small plan."""

from __future__ import annotations

from collections.abc import Callable


def crossing(excess: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Where a function changes sign between ``low`` and ``high`` (Brent 1973).

    Raises:
        ValueError: it has one sign at both ends.
    """
    from scipy.optimize import root_scalar

    return float(root_scalar(excess, bracket=(low, high), xtol=tolerance).root)

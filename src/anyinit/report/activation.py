"""A picture of one activation: the function and its moment map."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anyinit._core.profile import Profile
from anyinit.report import style

REACH = 4.0
"""Of the function's abscissa, both ways."""


def draw(profile: Profile, ax: Any = None) -> tuple[Any, Any]:
    """Figure and two axes: ``f`` with its kinks and jumps, and ``E f^2`` over the variance of the argument.

    Raises:
        BackendUnavailableError: Matplotlib is not installed. ConfigError: ``ax`` holds another number of axes.
    """
    figure, axes = style.panels(2, 1, ax=ax, what="Profile.plot()")
    columns = data(profile)
    with style.drawing():
        _function(axes[0], profile, columns)
        _map(axes[1], profile, columns)
    return figure, axes


def data(profile: Profile) -> dict[str, list[float]]:
    """What :func:`draw` shows: ``x``, ``f``, ``variance`` and ``level``; ``f`` is NaN next to a jump."""
    x = np.linspace(-REACH, REACH, 801)
    f = profile(x)
    for jump in profile.jumps:
        f[np.abs(x - jump) <= REACH / 800] = math.nan
    variance = np.geomspace(1e-2, 1e2, 41)
    level = [profile.moments(0.0, float(v)).m2 for v in variance]
    return {"x": x.tolist(), "f": f.tolist(), "variance": variance.tolist(), "level": level}


def _function(ax: Any, profile: Profile, columns: dict[str, list[float]]) -> None:
    ax.plot(columns["x"], columns["f"], color=style.PREDICTED, label=style.short(profile.label, 40))
    for label, points, marker in (("kink", profile.kinks, "o"), ("jump", profile.jumps, "s")):
        inside = [p for p in points if abs(p) <= REACH]
        if inside:
            ax.plot(inside, profile(np.array(inside)), marker, color=style.ALARM, label=label)
    style.label(ax, x="x", y="f(x)")
    style.legend(ax)


def _map(ax: Any, profile: Profile, columns: dict[str, list[float]]) -> None:
    ax.plot(columns["variance"], columns["level"], color=style.PREDICTED)
    ax.axhline(1.0, color=style.NEUTRAL, linestyle=":", label="unit level")
    star = profile.diagnostics.sigma_star
    if star is not None and columns["variance"][0] <= star * star <= columns["variance"][-1]:
        said = f"operating point, chi {profile.chi:.3g}"
        ax.plot([star * star], [1.0], "o", color=style.MEASURED, label=said)
    ax.set_xscale("log")
    style.scale(ax, columns["level"])
    style.label(ax, x="variance of x", y="level $E[f^2]$")
    style.legend(ax)

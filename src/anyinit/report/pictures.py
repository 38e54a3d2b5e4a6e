"""Pictures of one activation: its moment map with kinks, and its phases in the plane of weight and bias variance."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._core.profile import Profile
from anyinit.errors import ActivationError
from anyinit.report import style

Array = NDArray[np.float64]
SPAN = (1e-2, 1e2)
"""Levels shown."""
LEVELS = np.geomspace(1e-5, 1e4, 220)
"""Levels at which moments are tabled for the search of fixed points."""
GRID = 121


def operating(profile: Profile) -> tuple[float, float]:
    """Level before the activation and weight variance that hold a unit level behind it, or unit level before it."""
    q = profile.operating_variance
    return q, q / profile.moments(0.0, q).m2


def map_data(profile: Profile) -> dict[str, Any]:
    """Columns of :func:`draw_map`."""
    q, sigma_w2 = operating(profile)
    levels = np.geomspace(*SPAN, 121)
    m2, steep = _tabled(profile, levels)
    reach = max(3.0, *(abs(b) + 1 for b in (*profile.kinks, *profile.jumps) if abs(b) <= 7), 0.0)
    x = np.linspace(-reach, reach, 401)
    return {
        "q": levels.tolist(), "next_q": (sigma_w2 * m2).tolist(), "chi_1": (sigma_w2 * steep).tolist(),
        "x": x.tolist(), "f": profile(x).tolist(), "kinks": list(profile.kinks), "jumps": list(profile.jumps),
        "operating": {"q": q, "sigma_w2": sigma_w2, "chi": profile.chi, "chi_1": profile.chi_1},
    }  # fmt: skip


def draw_map(profile: Profile, ax: Any = None) -> tuple[Any, Any]:
    """Level map, gradient gain and function, one above the other."""
    found = map_data(profile)
    figure, axes = style.panels(3, 1, ax=ax, least=1, size=(style.WIDTH, 1.65), what="plot_map()")
    with style.drawing():
        _level_panel(axes[0], profile, found)
        if len(axes) > 1:
            _gradient_panel(axes[1], found)
        if len(axes) > 2:
            _function_panel(axes[2], profile, found)
    return figure, axes


def phase_data(
    profile: Profile, point: tuple[float, float] | None = None, limits: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Grids and edge of :func:`draw_phase`."""
    at = point or (operating(profile)[1], 0.0)
    widest = limits or (max(4.0, 1.5 * at[0]), max(1.0, 1.5 * at[1]))
    w, b = np.linspace(widest[0] / GRID, widest[0], GRID), np.linspace(0.0, widest[1], GRID)
    m2, steep = _tabled(profile, LEVELS)
    q, chi_1 = _held(w, b, m2, steep)
    with np.errstate(all="ignore"):
        sigma_w2 = 1 / steep
        edge = np.stack([sigma_w2, LEVELS - sigma_w2 * m2, LEVELS], axis=1)
    inside = (
        np.isfinite(edge).all(1)
        & (edge[:, 1] >= -1e-9)
        & (edge[:, 1] <= 1.5 * widest[1])
        & (edge[:, 0] <= 1.5 * widest[0])
    )
    return {"sigma_w2": w, "sigma_b2": b, "q": q, "chi_1": chi_1, "edge": edge[inside], "point": at}


def draw_phase(
    profile: Profile,
    ax: Any = None,
    point: tuple[float, float] | None = None,
    limits: tuple[float, float] | None = None,
) -> tuple[Any, Any]:
    """Phases by colour and hatch, levels by contours, the edge of chaos by a line, the operating point by a marker."""
    found = phase_data(profile, point, limits)
    figure, axes = style.panels(1, 1, ax=ax, size=(style.WIDTH, 2.5), what="plot_phase()")
    one = axes[0]
    with style.drawing():
        _phases(one, found)
        _contours(one, found)
        edge = found["edge"]
        if len(edge) > 1 and np.ptp(edge[:, :2]) > 1e-3:  # one point for a homogeneous function
            one.plot(edge[:, 0], edge[:, 1], color="black", lw=1.6, label=r"$\chi_1 = 1$")
        one.plot(*found["point"], marker="*", ms=9, color=style.MEASURED, mec="white", mew=0.6, ls="none",
                 label="operating point", clip_on=False, zorder=5)  # fmt: skip
        one.set_xlim(0, found["sigma_w2"][-1])
        one.set_ylim(0, found["sigma_b2"][-1])
        style.label(one, rf"$\sigma_w^2$ = fan_in · Var w    ({style.short(profile.label, 30)})", r"$\sigma_b^2$")
        style.legend(one)
        one.grid(False)
    return figure, axes


def _tabled(profile: Profile, levels: Array) -> tuple[Array, Array]:
    """``E f^2`` and ``E f'^2`` at each level; infinite from where they diverge."""
    rows: list[tuple[float, float]] = []
    for q in levels:
        try:
            at = profile.moments(0.0, float(q))
            rows.append((at.m2, at.grad2))
        except ActivationError:
            rows.append((math.inf, math.inf))
    return np.array([r[0] for r in rows]), np.array([r[1] for r in rows])


def _held(w: Array, b: Array, m2: Array, steep: Array) -> tuple[Array, Array]:
    """Level and ``chi_1`` at the lowest attracting fixed point of ``q -> sigma_w^2 E f^2 + sigma_b^2``.

    Infinite where there is none. Without biases a level may fall to zero: the smallest one tabled stands for it.
    """
    shape = (len(b), len(w))
    q, chi = np.full(shape, math.inf), np.full(shape, math.inf)
    for j, weight in enumerate(w):
        excess = weight * m2[None, :] + b[:, None] - LEVELS[None, :]
        falls = excess[:, :-1] > 0
        crossing = falls & (excess[:, 1:] <= 0)
        low = excess[:, 0] <= 0
        for i in range(len(b)):
            if low[i]:
                q[i, j], chi[i, j] = LEVELS[0], weight * steep[0]
            elif crossing[i].any():
                k = int(crossing[i].argmax())
                t = excess[i, k] / (excess[i, k] - excess[i, k + 1])
                q[i, j] = math.exp((1 - t) * math.log(LEVELS[k]) + t * math.log(LEVELS[k + 1]))
                chi[i, j] = weight * ((1 - t) * steep[k] + t * steep[k + 1])
    return q, chi


def _level_panel(ax: Any, profile: Profile, found: dict[str, Any]) -> None:
    at = found["operating"]
    ax.loglog(found["q"], found["q"], color=style.FAINT, ls=":", label="held")
    ax.loglog(found["q"], found["next_q"], color=style.PREDICTED, label=f"slope {at['chi']:.3g}")
    ax.plot(at["q"], at["q"], marker="*", ms=8, color=style.MEASURED, ls="none", label=f"q = {at['q']:.3g}")
    style.label(ax, "level before, $q$", f"next level, {style.short(profile.label, 16)}")
    style.legend(ax)


def _gradient_panel(ax: Any, found: dict[str, Any]) -> None:
    at = found["operating"]
    ax.axhline(1.0, color=style.FAINT, ls=":", label="held")
    ax.plot(found["q"], found["chi_1"], color=style.GRADIENT, ls="--", label=r"$\chi_1$")
    ax.plot(at["q"], at["chi_1"], marker="*", ms=8, color=style.MEASURED, ls="none", label=f"{at['chi_1']:.3g}")
    ax.set_xscale("log")
    known = [v for v in found["chi_1"] if math.isfinite(v)]
    if known and max(known) > 100 * max(min(known), 1e-300):
        ax.set_yscale("log")
    else:
        ax.set_ylim(0, 1.5 * max([1.0, *known]))
    style.label(ax, "level before, $q$", r"gradient gain $\chi_1$")
    style.legend(ax)


def _function_panel(ax: Any, profile: Profile, found: dict[str, Any]) -> None:
    ax.plot(found["x"], found["f"], color="black", label="f(x)")
    for points, marker, name in ((found["kinks"], "o", "kink"), (found["jumps"], "D", "jump")):
        seen = [p for p in points if found["x"][0] <= p <= found["x"][-1]]
        if seen:
            ax.plot(seen, profile(seen), ls="none", marker=marker, mfc="none", mec=style.ALARM, ms=6, label=name)
    std = math.sqrt(found["operating"]["q"])
    ax.axvspan(-std, std, color=style.PREDICTED, alpha=0.12, lw=0, label="one deviation")
    style.label(ax, "$x$", "$f(x)$")
    style.legend(ax)


def _phases(ax: Any, found: dict[str, Any]) -> None:
    chi = found["chi_1"]
    phase = np.where(np.isinf(chi), 2.0, np.where(chi > 1, 1.0, 0.0))
    x, y = found["sigma_w2"], found["sigma_b2"]
    colours = ["#DCEBF5", "#F9E3D3", "#DDDDDD"]
    ax.contourf(x, y, phase, levels=[-0.5, 0.5, 1.5, 2.5], colors=colours, hatches=["", "", "..."])
    for value, name in enumerate(("ordered", "chaotic", "no level held")):
        where = np.argwhere(phase == value)
        if len(where) > 0.04 * phase.size:
            i, j = np.median(where, axis=0).astype(int)
            if phase[i, j] == value:
                box = {"facecolor": colours[value], "edgecolor": "none", "pad": 1.0}
                ax.text(x[j], y[i], name, ha="center", va="center", fontsize=7, bbox=box, zorder=4)


def _contours(ax: Any, found: dict[str, Any]) -> None:
    q = np.where(np.isfinite(found["q"]), found["q"], np.nan)
    known = q[np.isfinite(q)]
    if known.size < 4 or known.max() <= known.min():
        return
    levels = [v for v in (0.3, 1.0, 3.0) if known.min() < v < known.max()]
    if levels:
        drawn = ax.contour(found["sigma_w2"], found["sigma_b2"], q, levels=levels, colors=style.NEUTRAL, linewidths=0.6)
        ax.clabel(drawn, fmt=lambda v: f"q*={v:g}", fontsize=6)


Profile._pictures = sys.modules[__name__]  # pyright: ignore[reportPrivateUsage]

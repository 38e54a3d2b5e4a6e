"""Levels and gradients of a report as a picture, and the same as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anyinit.errors import ConfigError
from anyinit.report import style
from anyinit.report.diagnosis import outside
from anyinit.report.records import Layer

COLUMNS = ("predicted", "measured", "predicted_grad", "measured_grad")


def data(layers: Sequence[Layer]) -> dict[str, list[Any]]:
    """What :func:`draw` shows, column by column in the order of the weights; missing numbers are NaN.

    ``name``; ``predicted``, ``low``, ``high`` and ``measured`` levels (second moments where the target holds, 5 and
    95 % quantiles of one draw; at the weight's own output where only that was measured); ``predicted_grad`` and
    ``measured_grad``.
    """
    out: dict[str, list[Any]] = {"name": [r.name for r in layers], "low": [], "high": []}
    out |= {column: [] for column in COLUMNS}
    for r in layers:
        own = r.predicted is None or (r.measured is None and r.measured_output is not None)
        level, band, seen = (
            (r.predicted_output, r.output_band, r.measured_output) if own else (r.predicted, r.band, r.measured)
        )
        low, high = band or (None, None)
        row = (level, seen, r.predicted_grad, r.measured_grad)
        for column, value in zip((*COLUMNS, "low", "high"), (*row, low, high), strict=True):
            out[column].append(float("nan") if value is None else float(value))
    return out


def draw(layers: Sequence[Layer], ax: Any = None) -> tuple[Any, Any]:
    """Figure and array of axes: levels with their bands, gradients below.

    A measured level beyond its band, widened for the number of layers as the verdict does, has a ring.

    Raises:
        BackendUnavailableError: Matplotlib is not installed.
        ConfigError: there is nothing to plot, or ``ax`` holds more than two axes.
    """
    if not layers:
        raise ConfigError("The report holds no weight, so there is nothing to plot.")
    columns = data(layers)
    figure, axes = style.panels(2, 1, ax=ax, least=1, sharex=True)
    with style.drawing():
        _levels(axes[0], columns)
        if len(axes) > 1:
            _gradients(axes[1], columns)
        style.named(axes[-1], columns["name"])
    return figure, axes


def _levels(ax: Any, columns: dict[str, list[Any]]) -> None:
    at = np.arange(len(columns["name"]))
    low, high = (np.asarray(columns[c]) for c in ("low", "high"))
    _band(ax, at, low, high)
    ax.plot(at, columns["predicted"], color=style.PREDICTED, marker=".", label="predicted")
    measured = np.asarray(columns["measured"])
    if np.isfinite(measured).any():
        ax.plot(at, measured, color=style.MEASURED, marker="x", ls="none", label="measured")
        tests = int(np.isfinite(measured).sum())
        missed = [
            i for i in at if np.isfinite([measured[i], low[i]]).all() and outside(measured[i], (low[i], high[i]), tests)
        ]
        if missed:
            ring = {"mfc": "none", "mec": style.ALARM, "ms": 8, "mew": 1.2, "marker": "o", "ls": "none"}
            ax.plot(missed, measured[missed], label="out of its band", **ring)
    style.scale(ax, [v for c in ("predicted", "measured", "low", "high") for v in columns[c]])
    style.label(ax, y="level $E[x^2]$")
    style.legend(ax)


def _band(ax: Any, at: Any, low: Any, high: Any) -> None:
    """The band as a ribbon; a weight without neighbours that have one gets an error bar."""
    ax.fill_between(at, low, high, color=style.PREDICTED, alpha=0.2, lw=0, label="90 % of draws")
    known = np.isfinite(low)
    alone = known & ~np.r_[False, known[:-1]] & ~np.r_[known[1:], False]
    if alone.any():
        middle = np.sqrt(np.maximum(low * high, 0))[alone]
        reach = (np.maximum(middle - low[alone], 0), np.maximum(high[alone] - middle, 0))
        ax.errorbar(at[alone], middle, reach, color=style.PREDICTED, alpha=0.35, lw=4, ls="none", capsize=0)


def _gradients(ax: Any, columns: dict[str, list[Any]]) -> None:
    at = np.arange(len(columns["name"]))
    predicted, measured = columns["predicted_grad"], columns["measured_grad"]
    ax.plot(at, predicted, color=style.GRADIENT, marker=".", ls="--", label="predicted")
    if np.isfinite(measured).any():
        ax.plot(at, measured, color=style.MEASURED, marker="x", ls="none", label="measured")
    if not np.isfinite([*predicted, *measured]).any():
        ax.text(0.5, 0.5, "no gradient predicted", transform=ax.transAxes, ha="center", va="center")
    style.scale(ax, [*predicted, *measured])
    style.label(ax, y="gradient $E[g^2]$")
    style.legend(ax)

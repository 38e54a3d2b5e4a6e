"""Levels and gradients as a picture. The only file that imports Matplotlib, and only when called."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from anyinit.errors import BackendUnavailableError, ConfigError
from anyinit.report.records import Layer

# Okabe and Ito's palette: told apart under every common colour-vision deficiency.
PREDICTED, MEASURED, GRADIENT = "#0072B2", "#D55E00", "#009E73"
NAMED = 16


def draw(layers: Sequence[Layer], ax: Any = None) -> tuple[Any, Any]:
    """Figure and array of axes: levels with their bands, gradients below; both on logarithmic axes.

    Raises:
        BackendUnavailableError: Matplotlib is not installed.
        ConfigError: there is nothing to plot, or ``ax`` holds more than two axes.
    """
    if not layers:
        raise ConfigError("The report holds no weight, so there is nothing to plot.")
    figure, axes = _axes(ax)
    _levels(axes[0], layers)
    if len(axes) > 1:
        _gradients(axes[1], layers)
    _label(axes[-1], layers)
    return figure, axes


def _axes(ax: Any) -> tuple[Any, Any]:
    if ax is None:
        try:
            pyplot = importlib.import_module("matplotlib.pyplot")
        except ImportError as error:
            remedy = "Install it with: pip install 'anyinit[plot]'"
            raise BackendUnavailableError("plot() needs Matplotlib, which is not installed.", remedy=remedy) from error
        return pyplot.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    axes = np.ravel(np.asarray(ax, dtype=object))
    if not 1 <= axes.size <= 2:
        raise ConfigError("plot() draws on one or two axes.", value=int(axes.size))
    return axes[0].figure, axes


def _levels(ax: Any, layers: Sequence[Layer]) -> None:
    at = np.arange(len(layers))
    bands = [r.band or r.output_band or (np.nan, np.nan) for r in layers]
    ax.fill_between(at, *np.asarray(bands, dtype=float).T, color=PREDICTED, alpha=0.2, lw=0, label="90 % of draws")
    ax.plot(at, _numbers(layers, "predicted"), color=PREDICTED, marker=".", label="predicted")
    measured = _numbers(layers, "measured")
    if np.isfinite(measured).any():
        ax.plot(at, measured, color=MEASURED, marker="x", ls="none", label="measured")
    _finish(ax, "second moment", [*_numbers(layers, "predicted"), *measured])


def _gradients(ax: Any, layers: Sequence[Layer]) -> None:
    at = np.arange(len(layers))
    predicted, measured = _numbers(layers, "predicted_grad"), _numbers(layers, "measured_grad")
    ax.plot(at, predicted, color=GRADIENT, marker=".", label="predicted gradient")
    if np.isfinite(measured).any():
        ax.plot(at, measured, color=MEASURED, marker="x", ls="none", label="measured gradient")
    _finish(ax, "second moment of the gradient", [*predicted, *measured])


def _finish(ax: Any, ylabel: str, values: Sequence[float]) -> None:
    known = [v for v in values if np.isfinite(v)]
    if known and min(known) > 0:
        ax.set_yscale("log")
    ax.set_ylabel(ylabel)
    ax.grid(True, alpha=0.3)
    ax.legend(frameon=False)


def _label(ax: Any, layers: Sequence[Layer]) -> None:
    if len(layers) <= NAMED:
        ax.set_xticks(range(len(layers)), [r.name for r in layers], rotation=40, ha="right")
    else:
        ax.set_xlabel("weight, in order of use")


def _numbers(layers: Sequence[Layer], name: str) -> list[float]:
    return [np.nan if (v := getattr(r, name)) is None else float(v) for r in layers]

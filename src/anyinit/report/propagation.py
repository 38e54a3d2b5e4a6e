"""What :func:`anyinit.propagate` returns: curves of norm and angle as data, text, HTML and picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anyinit import _notebook
from anyinit._solve.study import Curves
from anyinit.errors import ConfigError
from anyinit.report import style


class Propagation:
    """Norm and angle of pairs of inputs after every layer of one or more nets.

    ``curves``: one record per net with arrays ``norm``, ``cosine`` (layer, pair), ``predicted_norm``,
    ``predicted_cosine`` ``norm_band`` and ``cosine_band`` (5 and 95 % quantiles of single draws, to first order in
    1 / width; of the cosine in nets of independent Gaussian weights, NaN elsewhere).
    """

    def __init__(self, curves: Sequence[Curves]) -> None:
        self.curves = tuple(curves)

    def rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """Net, norm at the first and last layer, predicted last norm, cosine at the first and last layer."""
        return [
            (
                c.title,
                _number(c.norm[0].mean()),
                _number(c.norm[-1].mean()),
                _number(c.predicted_norm[-1, 0]),
                _number(np.nanmean(c.cosine[0])),
                _number(c.cosine[-1].mean()),
            )
            for c in self.curves
        ]

    def __repr__(self) -> str:
        table = [HEADINGS, *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
        lines = (
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return _notebook.view("Norms and angles through depth", _notebook.table(HEADINGS, self.rows()))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, fit for JSON (NaN and infinity become None)."""
        names = ("norm", "cosine", "predicted_norm", "predicted_cosine", "norm_band", "cosine_band")
        return {
            "curves": [
                {"title": c.title, "layers": list(c.layers), "gain": c.gain}
                | {name: _plain(getattr(c, name).tolist()) for name in names}
                for c in self.curves
            ]
        }

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """One panel per net: cosines on the left axis, norms on the right one; lines measured, dashes predicted.

        Args:
            ax: as many axes as there are nets, to draw on instead of a new figure.
        Returns:
            figure and axes (left ones).
        Raises:
            BackendUnavailableError: Matplotlib is not installed.
            ConfigError: nothing to plot, or ``ax`` holds another number of axes.
        """
        n = len(self.curves)
        if not n or any(not c.layers for c in self.curves):
            raise ConfigError("No layer was observed, so there is nothing to plot.")
        columns = 1 if n == 1 else 2 if n < 5 else 3
        rows = math.ceil(n / columns)
        figure, axes = style.panels(rows, columns, ax=ax, least=n, size=(style.WIDTH if n == 1 else 2.4, 1.7))
        with style.drawing():
            for spare in axes[n:]:
                spare.remove()
            for one, curve in zip(axes, self.curves, strict=False):
                _draw(one, curve)
        return figure, axes[:n]


HEADINGS = ("net", "first norm", "last norm", "predicted", "first cosine", "last cosine")


def _number(x: Any) -> str:
    return "-" if not math.isfinite(float(x)) else f"{float(x):.3g}"


def _plain(x: Any) -> Any:
    if isinstance(x, list):
        return [_plain(y) for y in x]  # pyright: ignore[reportUnknownVariableType]
    return x if math.isfinite(x) else None


def _draw(ax: Any, c: Curves) -> None:
    layers = np.arange(len(c.layers))
    right = ax.twinx()
    right.spines["right"].set_visible(True)
    right.grid(False)
    ax.plot(layers, c.cosine, color=style.MEASURED, linewidth=0.9)
    ax.plot(layers, c.predicted_cosine, color=style.MEASURED, linestyle="--", linewidth=0.9)
    ax.fill_between(layers, *c.cosine_band[:, 0].T, color=style.MEASURED, alpha=0.15, linewidth=0)
    right.plot(layers, c.norm, color=style.PREDICTED, linewidth=0.9)
    right.plot(layers, c.predicted_norm[:, 0], color=style.PREDICTED, linestyle="--", linewidth=0.9)
    right.fill_between(
        layers, c.norm_band[:, 0, 0], c.norm_band[:, 0, 1], color=style.PREDICTED, alpha=0.2, linewidth=0
    )
    ax.set_ylim(min(-0.05, float(np.nanmin(c.cosine)) - 0.05), 1.05)
    style.scale(right, [float(v) for v in c.norm.ravel()])
    style.label(ax, "layer", "cosine", c.title)
    style.label(right, y="norm")
    ax.yaxis.label.set_color(style.MEASURED)
    right.yaxis.label.set_color(style.PREDICTED)

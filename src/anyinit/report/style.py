"""One look for every picture: colours, sizes, names on an axis. The only file that imports Matplotlib, when called.

Figures are made for half the width of a page (3.4 inches), with type of 7 to 8 points. Colours are Okabe and Ito's
(2008), told apart under every common colour-vision deficiency; what a colour says is also said by a marker or a dash.
A figure on axes handed in keeps their fonts and sizes.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from anyinit.errors import BackendUnavailableError, ConfigError

PREDICTED, MEASURED, GRADIENT, ALARM = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
NEUTRAL, FAINT = "#555555", "#BBBBBB"
CYCLE = (PREDICTED, MEASURED, GRADIENT, ALARM, "#E69F00", "#56B4E9", "#000000", "#F0E442")
DASHES = ("-", "--", "-.", ":")
WIDTH = 3.4
"""Inches: half a page."""
NAMED, NAME_WIDTH = 16, 22
"""At most so many names on an axis, of at most so many characters."""

LOOK: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.4,
    "figure.dpi": 144,
    "savefig.dpi": 200,
}


def pyplot(what: str = "plot()") -> Any:
    """Matplotlib's pyplot.

    Raises:
        BackendUnavailableError: it is not installed; ``what`` says what needed it.
    """
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        remedy = "Install it with: pip install 'anyinit[plot]'"
        raise BackendUnavailableError(f"{what} needs Matplotlib, which is not installed.", remedy=remedy) from error


def panels(
    rows: int = 1,
    columns: int = 1,
    *,
    ax: Any = None,
    least: int | None = None,
    size: tuple[float, float] | None = None,
    sharex: bool = False,
    what: str = "plot()",
) -> tuple[Any, Any]:
    """Figure and flat array of ``rows * columns`` axes in the look of this library, or the axes handed in.

    Args:
        rows, columns: of the grid.
        ax: the caller's axes (one, a list or an array) to draw on instead, between ``least`` and ``rows * columns``.
        least: fewest axes accepted in ``ax``; all of them by default.
        size: of one panel in inches; 3.4 by 1.7 by default.
        sharex: whether panels share their abscissa.
        what: the call, for messages.

    Raises:
        BackendUnavailableError: Matplotlib is not installed.
        ConfigError: ``ax`` holds another number of axes.
    """
    if ax is not None:
        given = np.ravel(np.asarray(ax, dtype=object))
        fewest, most = rows * columns if least is None else least, rows * columns
        if not fewest <= given.size <= most:
            number = "one" if most == 1 else f"{fewest} to {most}" if fewest < most else f"{most}"
            raise ConfigError(f"{what} draws on {number} axes.", value=int(given.size))
        return given[0].figure, given
    plt = pyplot(what)
    width, height = size or (WIDTH, 1.7)
    with plt.rc_context(LOOK):
        made, axes = plt.subplots(
            rows, columns, sharex=sharex, squeeze=False, figsize=(width * columns, height * rows), layout="constrained"
        )
        for one in np.ravel(axes):
            one.grid(True)
            one.set_axisbelow(True)
    return made, np.ravel(axes)


def drawing() -> Any:
    """A context in which artists made have this library's line widths and type sizes."""
    return pyplot().rc_context(LOOK)


def label(ax: Any, x: str = "", y: str = "", title: str = "") -> None:
    """Axis labels and title; an empty one is left as it is."""
    if x:
        ax.set_xlabel(x)
    if y:
        ax.set_ylabel(y)
    if title:
        ax.set_title(title)


def legend(ax: Any, *, above: bool = True, **where: Any) -> None:
    """A legend if anything has a label: above the axes, where it hides nothing, in as many columns as fit.

    ``above=False`` leaves the place to Matplotlib or to ``where``.
    """
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    if above:
        columns = max(1, min(len(labels), 56 // (max(map(len, labels)) + 7)))
        where = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": columns, "borderaxespad": 0.2, **where}
    ax.legend(handles, labels, frameon=False, **where)


def scale(ax: Any, values: Iterable[float], axis: str = "y") -> None:
    """A logarithmic axis where every finite value is positive and they span more than a factor of 10."""
    known = [v for v in values if math.isfinite(v)]
    if known and min(known) > 0 and max(known) > 10 * min(known):
        (ax.set_yscale if axis == "y" else ax.set_xscale)("log")


def named(ax: Any, names: Sequence[str], order: str = "weight, in order of use") -> None:
    """Names below the places 0, 1, ... of an axis, shortened; numbers and ``order`` where there are too many.

    What all names begin with is said once, below. A figure of our own grows by the height of the names.
    """
    if len(names) <= NAMED:
        shown, start = distinct(names)
        ax.set_xticks(range(len(names)), shown, rotation=45, ha="right", rotation_mode="anchor")
        order = f"{order}\nin {short(start, 40)}" if start else order
        if ax.figure.get_layout_engine() is not None:
            width, height = ax.figure.get_size_inches()
            ax.figure.set_size_inches(width, height + 0.04 * max(map(len, shown), default=0))
    else:
        ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlim(-0.5, max(len(names), 1) - 0.5)
    ax.set_xlabel(order)


def distinct(names: Sequence[str], width: int = NAME_WIDTH) -> tuple[list[str], str]:
    """Names without the path they share, each of at most ``width`` characters, and that path.

    A path is only taken off where names are too long to be shown with it.
    """
    if max(map(len, names), default=0) <= width or len(names) < 2:
        return [short(n, width) for n in names], ""
    pieces = [n.split(".") for n in names]
    shared = 0
    while all(len(p) > shared + 1 and p[shared] == pieces[0][shared] for p in pieces):
        shared += 1
    return [short(".".join(p[shared:]), width) for p in pieces], ".".join(pieces[0][:shared])


def short(name: str, width: int = NAME_WIDTH) -> str:
    """A name of at most ``width`` characters, its middle left out; dollar signs escaped."""
    if len(name) > width:
        tail = (width - 1) // 2
        name = f"{name[: width - 1 - tail]}…{name[-tail:]}"
    return name.replace("$", r"\$")

"""Whether the words of a figure can be read: none on another, none cut off."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


def overlaps(figure: Any, slack: float = 1.0) -> list[str]:
    """Pairs of texts whose (rotated) boxes cross, and texts that leave the figure, in words."""
    from matplotlib.text import Text

    figure.canvas.draw()
    hidden = _undrawn(figure)
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and id(t) not in hidden]
    corners = [_corners(t, figure.canvas.get_renderer()) for t in texts]
    width, height = figure.canvas.get_width_height()
    found = [
        f"{texts[i].get_text()!r} leaves the figure"
        for i, box in enumerate(corners)
        if box.min() < -slack or box[:, 0].max() > width + slack or box[:, 1].max() > height + slack
    ]
    for i, j in itertools.combinations(range(len(texts)), 2):
        if _cross(corners[i], corners[j], slack):
            found.append(f"{texts[i].get_text()!r} on {texts[j].get_text()!r}")
    return found


def _undrawn(figure: Any) -> set[int]:
    """Tick labels outside the limits of their axis: kept by Matplotlib but not drawn."""
    out: set[int] = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.majorTicks, *axis.minorTicks):
                if not low <= tick.get_loc() <= high:
                    out |= {id(tick.label1), id(tick.label2)}
    return out


def _corners(text: Any, renderer: Any) -> np.ndarray:
    """Corners of the box around the words, turned with them."""
    angle = np.deg2rad(text.get_rotation())
    tight = text.get_window_extent(renderer)
    text_angle, text.__dict__["_rotation"] = text.get_rotation(), 0.0
    flat = text.get_window_extent(renderer)
    text.__dict__["_rotation"] = text_angle
    centre = np.array([(tight.x0 + tight.x1) / 2, (tight.y0 + tight.y1) / 2])
    half = np.array([flat.width, flat.height]) / 2
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.array([centre + turn @ (half * sign) for sign in ((-1, -1), (1, -1), (1, 1), (-1, 1))])


def _cross(one: np.ndarray, two: np.ndarray, slack: float) -> bool:
    """Whether two rectangles share more than ``slack`` pixels (separating axes)."""
    for box in (one, two):
        for a, b in ((0, 1), (1, 2)):
            along = (box[b] - box[a]) / max(float(np.hypot(*(box[b] - box[a]))), 1e-9)
            u, v = one @ along, two @ along
            if min(u.max(), v.max()) - max(u.min(), v.min()) < slack:
                return False
    return True

"""Masks of attention logits: what is hidden, and statistics of what stays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anyinit._core.field import Signal, measured
from anyinit._graph.ops import Pointwise
from anyinit._rules.base import Inputs, Site

BLOCKED = -50.0  # what lies this far below the rest, with nothing between, is hidden from a softmax (e^-50)


def masked(op: Pointwise, inputs: Inputs, site: Site) -> Signal | None:
    """Masking of logits: statistics of the visible entries, with the mask beside them."""
    if op.fn not in {"add", "where"} or len(inputs) > 3 or not inputs:
        return None
    if op.fn == "add" and len(inputs) == 2:
        for x, m in (inputs, inputs[::-1]):
            visible = _visible(m.data) if m.data is not None and x.keys else None
            if m.data is not None and visible is not None:
                bias = float(np.mean(m.data.real[visible].astype(np.float64))) if visible.any() else 0.0
                return x.but(nodes=x.nodes + bias, kept=visible if x.kept is None else x.kept & visible)
    if op.fn == "where" and op.args[0] is None and inputs[0].data is not None:
        cond = np.asarray(inputs[0].data).astype(bool)
        rest = list(inputs[1:])
        yes = rest.pop(0) if op.args[1] is None else op.args[1]
        no = rest.pop(0) if op.args[2] is None else op.args[2]
        for x, other, visible in ((yes, no, cond), (no, yes, ~cond)):
            level = other.mean if isinstance(other, Signal) and not other.keys else other
            if isinstance(x, Signal) and isinstance(level, float) and level <= BLOCKED:
                if x.keys:
                    return x.but(kept=visible if x.kept is None else x.kept & visible)
                if x.data is None and x.mean > BLOCKED:  # a bias that starts constant: a mask in numbers
                    return measured(np.where(visible, x.mean, level), ("mask", site.id))
    return None


def _visible(numbers: NDArray[np.generic]) -> NDArray[np.bool_] | None:
    """Entries of an additive mask that are not hidden; None where the numbers are no mask: a slope of distances
    has no gap between what it leaves and what it hides."""
    if numbers.dtype == bool or not numbers.size or float(np.min(numbers.real)) > BLOCKED:
        return None
    values = np.unique(numbers.real.astype(np.float64))
    gaps = np.flatnonzero(np.diff(values) >= -BLOCKED)
    if not gaps.size:
        return np.zeros(numbers.shape, bool) if values[-1] <= 200 * BLOCKED else None
    return np.asarray(numbers.real > values[gaps[-1]])

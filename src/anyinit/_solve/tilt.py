"""Where along a value's distribution its gradient sits.

A gradient that has passed a rectifier is zero where the rectifier is: in a residual stream the same
entries are let through again by the next one, which an average slope does not know. A profile holds the
gradient's energy over the value's latent fields, so the slopes before it are averaged where the
gradient is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anyinit._core.field import WEIGHT, WEIGHT2, Nodes, Signal, quantiles

FLAT = 1e-6  # range of a tilt below which it is none


def _mean(x: Nodes) -> float:
    return float((WEIGHT2 * x).sum()) if x.ndim == 2 else float(WEIGHT @ x)


def _normal(x: Nodes) -> Nodes | None:
    mean = _mean(x)
    return x / mean if mean > 0 else None


@dataclass
class Tilts:
    """Energy profiles of gradients by value, on the grid of the value's latent fields."""

    profile: dict[int, Nodes] = field(default_factory=dict[int, Nodes])

    def add(self, i: int, signal: Signal, energy: float, tilt: Nodes | None = None, nodes: Nodes | None = None) -> None:
        """Add a contribution of mean ``energy``; ``tilt`` (mean one, flat when None) belongs to the values
        ``nodes``, the value as its reader saw it (one field even where the signal has two)."""
        if signal.nodes.ndim == 0:
            return
        shape: Nodes = np.ones_like(signal.nodes)
        if tilt is not None and tilt.shape == signal.nodes.shape:
            shape = tilt
        elif tilt is not None and nodes is not None and nodes.shape == tilt.shape:
            order = np.argsort(nodes, kind="stable")
            shape = np.interp(signal.nodes, nodes[order], tilt[order])
            shape = shape / max(_mean(shape), 1e-300)
        self.profile[i] = self.profile.get(i, np.zeros_like(shape)) + energy * shape

    def tilt(self, i: int) -> Nodes | None:
        """The profile of mean one; None where it is not known."""
        found = self.profile.get(i)
        return None if found is None else _normal(found)

    def through(self, y: Signal, at: int, slope: Nodes, source: Nodes) -> tuple[float, Nodes | None, Nodes | None]:
        """A region's slope at one source: factor on the energy that passes, tilt at the source on its own
        field, and the source's values there."""
        if y.nodes.ndim == 0:
            return 1.0, None, None
        square = np.broadcast_to(np.asarray(slope * slope), y.nodes.shape)
        flat, tilt = _mean(square), self.tilt(at)
        if flat <= 0:
            return 1.0, None, None
        local = square if tilt is None or tilt.shape != square.shape else square * tilt
        factor = _mean(local) / flat
        if y.nodes.ndim == 1:
            return factor, _normal(local), source if source.ndim == 1 else None
        if source.ndim != 2 or 1 not in source.shape or source.size == 1:
            return factor, None, None
        along = local @ WEIGHT if source.shape[1] == 1 else WEIGHT @ local
        return factor, _normal(along), source.ravel()

    def of_sum(self, at: int, total: Signal, one: Signal, other: Signal, sign: float) -> tuple[Nodes, Nodes] | None:
        """Tilt at an operand of a sum, with the operand's values: the sum's tilt averaged over the other."""
        tilt = self.tilt(at)
        if tilt is None or total.nodes.ndim != 1 or one.nodes.ndim == 0 or float(np.ptp(tilt)) < FLAT:
            return None
        order = np.argsort(total.nodes, kind="stable")
        mine, theirs = _line(one), _line(other)
        values = mine.reshape(-1, 1) + sign * theirs.reshape(1, -1)
        weights = WEIGHT if theirs.size == WEIGHT.size else np.ones(1)
        local = _normal(np.interp(values, total.nodes[order], tilt[order]) @ weights)
        return None if local is None else (local, mine)


def _line(x: Signal) -> Nodes:
    """Node values on one field (one number for a constant)."""
    return quantiles(x.nodes, WEIGHT2) if x.nodes.ndim == 2 else np.atleast_1d(x.nodes)

"""Residual networks without normalization whose stream passes an activation: which weights can be mirrored together.

A stream ``x <- f(x + branch)`` of sign twins is read as a linear function of what came before, as a plain chain is
(Balduzzi et al. 2017), so signals and gradients do not depend on which units happen to be on. All weights that
write to or read from the stream must agree on the pairs; one that cannot leaves the network to independent draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anyinit._core.field import GRID, WEIGHT, Nodes, Signal, gaussian
from anyinit._core.tables import separate
from anyinit._graph.graph import Node
from anyinit._graph.ops import Contract, Dropout, Pointwise, Pool, Reduce
from anyinit._rules.pointwise import as_source
from anyinit._solve.propagate import Walk
from anyinit._solve.regions import STRAIGHT, Region, region
from anyinit._solve.roles import MOVES, Uses
from anyinit._solve.streams import Streams

ODD = 0.03  # share of the odd part's second moment that may be nonlinear in a mirrored chain


def odd_is_linear(nodes: Nodes) -> bool:
    """Whether ``f(z) - f(-z) = c z`` nearly, for values of ``f`` on the grid, and ``f`` is not linear itself."""
    square_mean, mean = float(WEIGHT @ (nodes * nodes)), float(WEIGHT @ nodes)
    odd = 0.5 * (nodes - nodes[::-1])
    slope, square = float(WEIGHT @ (odd * GRID)), float(WEIGHT @ (odd * odd))
    if square < 0.05 * square_mean or slope**2 < (1 - ODD) * square:
        return False
    return float(WEIGHT @ np.square(nodes - slope * GRID - mean)) / max(square_mean, 1e-300) > 1e-4


@dataclass(frozen=True, slots=True)
class Member:
    """One weight of a mirrored residual network; ``mode`` as in :class:`~anyinit._solve.policy.Style`."""

    leaf: int
    node: Node
    place: Region
    mode: str


@dataclass(frozen=True, slots=True)
class Questions:
    """What the walk asks of the policy: the weight a contraction applies to a value, whether it is plain, and a
    Gaussian field of sign pairs at its output."""

    weight: Callable[[Node, int], int | None]
    plain: Callable[[int, Node], bool]
    probe: Callable[[Node], Signal]


def residual_members(
    leaf: int, node: Node, place: Region, uses: Uses, walk: Walk, streams: Streams, ask: Questions
) -> list[Member] | None:
    """Weights to mirror together with the one at ``node``, whose activation starts a residual stream.

    None where there is no such stream, or something on it breaks the pairs: a normalization, a grouped, shared
    or kept weight, an odd width, a sum with a value that has no pairs, an activation whose odd part bends.
    """
    if not place.curved or not ask.plain(leaf, node) or not _starts(streams, place):
        return None
    with walk.aside():
        return _Search(uses, walk, streams, ask).members(leaf, node, place)


def _starts(streams: Streams, place: Region) -> bool:
    return any(place.end in (r.skip, r.source) for r in streams.residuals.values())


@dataclass
class _Search:
    uses: Uses
    walk: Walk
    streams: Streams
    ask: Questions

    def members(self, leaf: int, first: Node, place: Region) -> list[Member] | None:
        found, paired = [Member(leaf, first, place, "rows")], {first.output}
        signals = self.walk.signals
        signals[first.output] = as_source(self.ask.probe(first), first.output)
        for at in range(self.uses.producer[first.output] + 1, len(self.uses.graph.nodes)):
            node = self.uses.graph.nodes[at]
            live = [i for i in node.inputs if i in self.uses.live]
            mine = [i for i in live if i in paired]
            if not mine:
                continue
            if isinstance(node.op, Contract):
                member = self._weight(node, mine[0])
                if member is None:
                    return None
                found.append(member)
                if member.mode == "both":
                    paired.add(node.output)
                    signals[node.output] = as_source(self.ask.probe(node), node.output)
                continue
            if len(mine) != len(live) or not self._keeps_pairs(node, at, live):
                return None
            self.walk.step(node)
            paired.add(node.output)
        return found

    def _weight(self, node: Node, data: int) -> Member | None:
        leaf = self.ask.weight(node, data)
        if leaf is None or not self._twins_lead(node, data):
            return None
        place = region(self.uses, node.output)
        if not place.curved and not self._to_a_sum(place.end):
            return Member(leaf, node, place, "cols")
        return Member(leaf, node, place, "both") if self.ask.plain(leaf, node) else None

    def _twins_lead(self, node: Node, data: int) -> bool:
        """Whether the axis of twins is the outermost factor of the first contracted dimension, and of no other."""
        op = node.op
        assert isinstance(op, Contract)
        layout = self.walk.signals[data].layout
        labels = op.a if node.inputs[0] == data else op.b
        hidden = {w.a for w in op.windows}
        contracted = [d for d, lab in enumerate(labels) if lab not in op.out and lab not in hidden]
        split = [d for d, dim in enumerate(layout.dims) if len(dim) > 1 and dim[0][0] == 2]
        return len(labels) == len(layout.dims) and split == contracted[:1]

    def _to_a_sum(self, value: int) -> bool:
        """Whether a value becomes an operand of a residual sum."""
        ends = {v for r in self.streams.residuals.values() for v in (r.skip, r.branch)}
        for _ in range(12):
            readers = self.uses.consumers.get(value, ())
            if value in ends or len(readers) != 1:
                return value in ends
            node = self.uses.graph.nodes[readers[0]]
            if not isinstance(node.op, (*MOVES, Dropout)) and not self._straight(node):
                return False
            value = node.output
        return False

    def _straight(self, node: Node) -> bool:
        return (
            isinstance(node.op, Pointwise)
            and node.op.fn in STRAIGHT
            and sum(i in self.uses.live for i in node.inputs) == 1
        )

    def _keeps_pairs(self, node: Node, at: int, live: list[int]) -> bool:
        if isinstance(node.op, (*MOVES, Dropout, Pool, Reduce)):
            return len(live) == 1
        if not isinstance(node.op, Pointwise):
            return False
        if len(live) == 2:
            return at in self.streams.residuals
        return self._straight(node) or (len(node.inputs) == 1 and self._bends_evenly(node))

    def _bends_evenly(self, node: Node) -> bool:
        """Whether the odd part of a function of one value is linear, on a standard normal argument."""
        held = self.walk.signals[node.inputs[0]]
        field = gaussian(separate((2, 2)), 0.0, np.array([1.0, 0.0, 0.0, 0.0]), ("odd part", node.output))
        self.walk.signals[node.inputs[0]] = as_source(field, node.inputs[0])
        self.walk.step(node)
        nodes = self.walk.signals.pop(node.output).nodes
        self.walk.signals[node.inputs[0]] = held
        return nodes.ndim == 1 and odd_is_linear(nodes)

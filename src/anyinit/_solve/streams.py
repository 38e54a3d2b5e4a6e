"""Residual streams: which sums are residual, which branch they add, how many share a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from anyinit._graph.ops import Contract, Dropout, Normalize, Pointwise, Pool, Softmax
from anyinit._solve.roles import MOVES, Uses

SUMS = {"add", "sub"}


@dataclass(frozen=True, slots=True)
class Residual:
    """One residual sum: node position, the operand that is the stream and the one that is the branch."""

    node: int
    skip: int
    branch: int


@dataclass
class Streams:
    """Residual sums of a graph grouped into streams.

    A sum is residual when one operand (through moves, scalings and dropout) is an ancestor of the
    other. Sums belong to one stream when the skip operand leads back to an earlier sum without
    passing a contraction.
    """

    uses: Uses
    residuals: dict[int, Residual] = field(default_factory=dict[int, Residual])
    stream: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        graph = self.uses.graph
        for at, node in enumerate(graph.nodes):
            if not isinstance(node.op, Pointwise) or node.op.fn not in SUMS or len(node.inputs) != 2:
                continue
            u, v = node.inputs
            if u == v or u not in self.uses.live or v not in self.uses.live:
                continue
            for skip, branch in ((u, v), (v, u)):
                if self._contains(branch, self.uses.source(skip, cuts=False)) and self._weighted(
                    branch, self.uses.source(skip, cuts=False)
                ):
                    self.residuals[at] = Residual(at, skip, branch)
                    before = self._previous(skip)
                    self.stream[at] = at if before is None else self.stream[before]
                    break

    @cached_property
    def ancestors(self) -> list[int]:
        """For every value, the set of values it is made from (itself included), as bits."""
        graph = self.uses.graph
        bits = [1 << i if i in graph.leaves else 0 for i in range(len(graph.values))]
        for node in graph.nodes:
            mine = 1 << node.output
            for i in node.inputs:
                mine |= bits[i]
            bits[node.output] = mine
        return bits

    def _contains(self, value: int, ancestor: int) -> bool:
        return bool(self.ancestors[value] >> ancestor & 1)

    def _weighted(self, value: int, start: int) -> bool:
        """Whether a contraction lies between ``start`` and ``value``."""
        stack, seen = [value], {start}
        while stack:
            v = stack.pop()
            if v in seen or v not in self.uses.producer:
                continue
            seen.add(v)
            node = self.uses.graph.nodes[self.uses.producer[v]]
            if isinstance(node.op, Contract):
                return True
            stack.extend(i for i in node.inputs if self._contains(i, start))
        return False

    def _previous(self, value: int) -> int | None:
        """The residual sum a skip operand leads back to."""
        producer = self.uses.producer
        while value in producer:
            at = producer[value]
            if at in self.residuals:
                return at
            node = self.uses.graph.nodes[at]
            live = [i for i in node.inputs if i in self.uses.live]
            if not isinstance(node.op, (Pointwise, Normalize, Dropout, Pool, *MOVES)) or not live:
                return None
            value = live[0]
        return None

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Number of residual sums of each stream."""
        out: dict[int, int] = {}
        for s in self.stream.values():
            out[s] = out.get(s, 0) + 1
        return out

    @cached_property
    def by_branch(self) -> dict[int, Residual]:
        """Residual sums by the value of their branch operand."""
        return {r.branch: r for r in self.residuals.values()}


def plain_depth(uses: Uses) -> dict[int, int]:
    """For every value, the length in weighted contractions of the longest un-normalized path through it."""
    graph = uses.graph
    before: dict[int, int] = {}
    for node in graph.nodes:
        deep = max((before.get(i, 0) for i in node.inputs if i in uses.live), default=0)
        weighted = isinstance(node.op, Contract) and any(i in uses.origin for i in node.inputs)
        before[node.output] = 0 if isinstance(node.op, (Normalize, Softmax)) else deep + weighted
    after: dict[int, int] = {}
    for node in reversed(graph.nodes):
        if isinstance(node.op, (Normalize, Softmax)):
            continue
        weighted = isinstance(node.op, Contract) and any(i in uses.origin for i in node.inputs)
        deep = after.get(node.output, 0) + weighted
        for i in node.inputs:
            after[i] = max(after.get(i, 0), deep)
    return {v: n + after.get(v, 0) for v, n in before.items()}

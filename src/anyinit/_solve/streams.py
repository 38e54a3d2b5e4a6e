"""Residual streams: which sums are residual, which branch they add, how many share a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from anyinit._graph.ops import Contract, Dropout, Normalize, Opaque, Pointwise, Pool, Softmax
from anyinit._solve.factors import Factors
from anyinit._solve.roles import MOVES, Uses

SUMS = {"add", "sub"}


@dataclass(frozen=True, slots=True)
class Residual:
    """One residual sum: node position, the operand that is the stream and the one that is the branch.

    source: the value a projected shortcut is made from (He et al. 2016, option B); the stream itself otherwise.
    """

    node: int
    skip: int
    branch: int
    source: int

    @property
    def projected(self) -> bool:
        """Whether a weight lies on the shortcut."""
        return self.source != self.skip


@dataclass
class Streams:
    """Residual sums of a graph grouped into streams.

    A sum is residual when one operand (through moves, scalings and dropout) is an ancestor of the
    other, or is one linear map of such an ancestor while the other passes two weights or more: a
    projected shortcut. Sums belong to one stream when the skip operand leads back to an earlier sum
    without passing a contraction other than that projection.
    """

    uses: Uses
    residuals: dict[int, Residual] = field(default_factory=dict[int, Residual])
    stream: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        graph = self.uses.graph
        self.factors = Factors(self.uses)
        for at, node in enumerate(graph.nodes):
            if not isinstance(node.op, Pointwise) or node.op.fn not in SUMS or len(node.inputs) != 2:
                continue
            if at in self.factors.sums:
                continue
            u, v = node.inputs
            if u == v or u not in self.uses.live or v not in self.uses.live:
                continue
            found = self._direct(at, u, v) or self._projected(at, u, v)
            if found is not None:
                self.residuals[at] = found
                before = self._previous(found.source)
                self.stream[at] = at if before is None else self.stream[before]

    @cached_property
    def leaves(self) -> int:
        """All leaves, as a set of bits like those of ``ancestors``."""
        return sum(1 << i for i in self.uses.graph.leaves)

    @cached_property
    def opaque(self) -> int:
        """What operations without a rule make, as a set of bits like those of ``ancestors``."""
        return sum(1 << n.output for n in self.uses.graph.nodes if isinstance(n.op, Opaque))

    def _direct(self, at: int, u: int, v: int) -> Residual | None:
        for skip, branch in ((u, v), (v, u)):
            start = self.uses.source(skip, cuts=False)
            if self._contains(branch, start) and self._weights_between(branch, start) > 0:
                return Residual(at, skip, branch, skip)
        return None

    def _projected(self, at: int, u: int, v: int) -> Residual | None:
        for skip, branch in ((u, v), (v, u)):
            data = self._unprojected(skip)
            if data is None:
                continue
            start = self.uses.source(data, cuts=False)
            if self._contains(branch, start) and self._weights_between(branch, start) > 1:
                return Residual(at, skip, branch, data)
        return None

    def _unprojected(self, value: int) -> int | None:
        """What the only weight of a linear path is applied to; None where the path is another one."""
        for _ in range(6):
            value = self.uses.source(value, cuts=False)
            if value not in self.uses.producer:
                return None
            node = self.uses.graph.nodes[self.uses.producer[value]]
            live = [i for i in node.inputs if i in self.uses.live]
            if len(live) != 1:
                return None
            if isinstance(node.op, Contract):
                return live[0]
            if not isinstance(node.op, (Normalize, Pool)):
                return None
            value = live[0]
        return None

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

    def _weights_between(self, value: int, start: int) -> int:
        """Contractions on the longest path from ``start`` to ``value``, counted up to two."""
        nodes, producer = self.uses.graph.nodes, self.uses.producer
        best: dict[int, int] = {}
        stack, count = [(value, 0)], 0
        while stack:
            v, passed = stack.pop()
            if v == start:
                count = max(count, passed)
                continue
            if count > 1 or best.get(v, -1) >= passed or v not in producer:
                continue
            best[v] = passed
            node = nodes[producer[v]]
            passed = min(passed + isinstance(node.op, Contract), 2)
            stack.extend((i, passed) for i in node.inputs if self._contains(i, start))
        return count

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

    @cached_property
    def by_shortcut(self) -> dict[int, Residual]:
        """Residual sums by the value of their projected shortcut."""
        return {r.skip: r for r in self.residuals.values() if r.projected}


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

"""Where a layer's level is set and to what: targets, residual shares, and the scale that reaches them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from anyinit._core.field import Signal
from anyinit._graph.graph import Graph, Node
from anyinit._graph.ops import Contract, Dropout, Pointwise, Softmax
from anyinit._rules.pointwise import as_source
from anyinit._solve.propagate import Walk
from anyinit._solve.regions import Region
from anyinit._solve.roles import MOVES, Uses
from anyinit._solve.streams import Residual, Streams

FEW = 4  # outputs up to which a head is taken for a regression
SMALL_HEAD = 0.1  # second moment of a regression's output at the start


@dataclass(frozen=True, slots=True)
class Share:
    """A residual branch's part of its stream: ``level / (weighed * split)``.

    level: second moment of the stream where it starts. count: branches on it; None of a projected shortcut.
    lean: share of the mean in the branch's level. split: growth on the way from the region's end to the sum.
    """

    level: float
    count: int | None
    lean: float = 0.0
    split: float = 1.0

    @property
    def weighed(self) -> float:
        """Branches, their means counted as they add: coherently."""
        n = self.count or 1
        return n * (1 - self.lean) + n * n * self.lean

    @property
    def target(self) -> float:
        """Second moment asked for at the region's end."""
        return self.level / self.weighed / self.split


@dataclass
class Levels:
    """Targets of every layer and the solver that meets them.

    target: second moment asked for after an activation. share: whether residual branches share their
    stream. heads: whether outputs of few numbers start small. starts: first level of each stream.
    """

    graph: Graph
    walk: Walk
    uses: Uses
    streams: Streams
    target: float = 1.0
    share: bool = True
    heads: bool = False
    starts: dict[int, float] = field(default_factory=dict[int, float])
    shares: dict[int, Share] = field(default_factory=dict[int, Share])  # by the end of a branch's region
    own: bool = False  # whether every level is set at the weight's own output, whatever follows
    scalars: bool = True  # whether a branch makes up for numbers it is multiplied by (a step size it must keep)

    def scale(self, z: Signal, node: Node, place: Region, fan: int) -> tuple[float, float | None, str, tuple[str, ...]]:
        """Standard deviation for a weight now of unit entries, given what follows it."""
        if z.m2 <= 1e-280:
            return 1 / math.sqrt(fan), None, "input is zero at this use: unit gain", ("zero input",)
        if not place.curved:
            target, why = self._straight_target(place)
            level = self.replay(z, node.output, place).m2 or z.m2
            return math.sqrt(target / level), target, why, ()
        end = self.replay(scaled(z, 1 / math.sqrt(z.m2)), node.output, place)
        target, why = self._curved_target(place, end)
        return self._reach(z, node, place, target, why)

    def _straight_target(self, place: Region) -> tuple[float, str]:
        share = self._branch_share(place.end)
        if share is not None:
            return share
        after = None if place.next is None else self.graph.nodes[place.next].op
        if isinstance(after, Softmax):
            return 1.0, "logits at unit second moment"
        if self.heads and self._few_outputs(place.end):
            return SMALL_HEAD, f"few outputs: a regression starts at second moment {SMALL_HEAD:g}"
        return 1.0, "unit second moment at its own output"

    def place(self, place: Region) -> Region:
        """The region, cut at the weight's own output where a loss follows."""
        if not place.curved or not (self.own or self._loss_follows(place)):
            return place
        count = next((k + 1 for k, at in enumerate(place.nodes) if self.graph.nodes[at].output == place.output), 0)
        return replace(place, end=place.output, nodes=place.nodes[:count], curved=False, words=())

    def _loss_reads(self, value: int) -> bool:
        return self._loss_follows(Region(value, value, (), True, (), None))

    def _loss_follows(self, place: Region) -> bool:
        """Whether what follows is a loss: reduced to one number that is returned, with no weight on the way."""
        if not any(math.prod(self.graph.values[v].shape) == 1 for v in self.graph.outputs):
            return False
        seen, stack = set[int](), [place.output]
        while stack:
            value = stack.pop()
            for at in self.uses.consumers.get(value, ()):
                node = self.graph.nodes[at]
                if isinstance(node.op, Contract) and any(i in self.uses.origin for i in node.inputs):
                    return False
                if node.output not in seen:
                    seen.add(node.output)
                    stack.append(node.output)
        return True

    def _few_outputs(self, value: int) -> bool:
        """Whether a value becomes an output of the model with few numbers along its last axis."""
        if self._loss_reads(value):
            shape = self.graph.values[value].shape
            return not shape or shape[-1] <= FEW
        for _ in range(6):
            if value in self.graph.outputs:
                shape = self.graph.values[value].shape
                return not shape or shape[-1] <= FEW
            readers = self.uses.consumers.get(value, ())
            if len(readers) != 1 or not isinstance(self.graph.nodes[readers[0]].op, MOVES):
                return False
            value = self.graph.nodes[readers[0]].output
        return False

    def level_before(self, z: Signal, node: Node, place: Region, after: float) -> float:
        """Second moment at a weight's output that gives unit level behind its region, or ``after`` where
        the level slope at unit level exceeds one."""
        std, target, _, _ = self._reach(z, node, place, 1.0, "")
        if target is None:
            return 1.0
        q = z.m2 * std * std
        ends = [self.replay(scaled(z, std * s), node.output, place).m2 for s in (1.0, 1.01)]
        if math.log(ends[1] / ends[0]) <= 1.02 * 2 * math.log(1.01):
            return q
        std, target, _, _ = self._reach(z, node, place, after, "")
        return z.m2 * std * std if target is not None else q

    def _curved_target(self, place: Region, end: Signal) -> tuple[float, str]:
        share = self._branch_share(place.end, end.mean**2 / end.m2 if end.m2 > 0 else 0.0)
        if share is not None:
            return share
        return self.target, f"second moment {self.target:g} after {' '.join(place.words)}"

    def _branch_share(self, value: int, lean: float = 0.0) -> tuple[float, str] | None:
        """Share of a residual branch: the stream's first level divided by the number ``N`` of branches. Means add
        coherently: with ``lean``, the share of the mean in a branch's second moment, ``N`` branches add up to
        ``N (1 - lean) + N^2 lean`` times one."""
        if not self.share:
            return None
        split, end = 1.0, value
        for _ in range(12):
            shortcut = self.streams.by_shortcut.get(value)
            if shortcut is not None and self.start(shortcut) > 0:
                level = self.start(shortcut)
                self.shares[end] = Share(level, None, split=split)
                return level / split, f"projected shortcut: keeps the stream's second moment {level:.3g}"
            residual = self.streams.by_branch.get(value)
            if residual is not None:
                stream = self.streams.stream[residual.node]
                count = self.streams.sizes[stream]
                level = self.start(residual)
                if level <= 0:
                    return None
                text = f"residual branch: 1/{count} of the stream's second moment {level:.3g}"
                text += f", its mean ({lean:.0%} of its level) added {count} times over" if lean > 1e-3 else ""
                self.shares[end] = Share(level, count, lean, split)
                return self.shares[end].target, text
            readers = self.uses.consumers.get(value, ())
            if len(readers) != 1:
                return None
            node = self.graph.nodes[readers[0]]
            passed = self._passing(node)
            if passed is None:
                return None
            split *= passed if self.scalars or passed == 2.0 else 1.0
            value = node.output
        return None

    def start(self, residual: Residual) -> float:
        """First level of a residual sum's stream: before its first projection, where it starts with one."""
        stream = self.streams.stream[residual.node]
        return self.starts.setdefault(stream, self.walk.signals[residual.source].m2)

    def _passing(self, node: Node) -> float | None:
        """Growth of the level through one operation between a branch's last weight and its sum; a sum of
        parallel branches counts as each having its part. None where the branch ends."""
        if isinstance(node.op, Dropout):
            return 1 / (1 - node.op.p) if node.op.p < 1 else None
        live = [i for i in node.inputs if i in self.uses.live]
        if isinstance(node.op, MOVES) and len(live) == 1:
            return 1.0
        if not isinstance(node.op, Pointwise) or node.op.fn not in {"add", "sub", "mul", "div"}:
            return None
        if len(live) == 2 and node.op.fn in {"add", "sub"}:
            return 2.0
        if len(live) != 1:
            return None
        if node.op.fn in {"add", "sub"}:
            return 1.0
        scalars = [a for a in node.op.args if a is not None]
        other = [self.walk.signals[i].m2 for i in node.inputs if i not in self.uses.live]
        factor = scalars[0] ** 2 if scalars else (other[0] if other else 1.0)
        factor = factor if node.op.fn == "mul" else 1 / max(factor, 1e-300)
        return factor if factor > 0 else None

    def replay(self, z: Signal, at: int, place: Region) -> Signal:
        """The region's end for another level of its start."""
        signals = self.walk.signals
        saved = {at: signals[at]}
        signals[at] = as_source(z, at)
        for position in place.nodes:
            node = self.graph.nodes[position]
            if node.output in signals:
                saved[node.output] = signals[node.output]
            self.walk.step(node)
        out = signals[place.end]
        for position in place.nodes:
            signals.pop(self.graph.nodes[position].output, None)
        signals.update(saved)
        return out

    def _reach(
        self, z: Signal, node: Node, place: Region, target: float, why: str
    ) -> tuple[float, float | None, str, tuple[str, ...]]:
        """Solve ``E a^2 = target`` for the scale: secant steps on logarithms, kept inside a bracket."""
        unit = 1 / math.sqrt(z.m2)

        def level(log_s: float) -> float:
            m2 = self.replay(scaled(z, unit * math.exp(log_s)), node.output, place).m2
            return math.log(max(m2, 1e-300) / target)

        x, y = 0.0, level(0.0)
        low, high = (-math.inf, x) if y > 0 else (x, math.inf)
        slope = 2.0
        for _ in range(40):
            if abs(y) < 1e-9:
                break
            step = -y / slope if slope > 0.05 else -math.copysign(1.0, y)
            new = x + max(min(step, 1.5), -1.5)
            if not low < new < high:
                new = 0.5 * (max(low, -12.0) + min(high, 12.0))
            if abs(new) > 6 or high - low < 1e-13:
                return (
                    self.before(z, node, place, unit),
                    None,
                    f"{why} cannot be reached: unit variance before it",
                    ("unreachable",),
                )
            got = level(new)
            slope = (got - y) / (new - x) if new != x else slope
            x, y = new, got
            low, high = (low, x) if y > 0 else (x, high)
        if abs(y) > 1e-3:
            return (
                self.before(z, node, place, unit),
                None,
                f"{why} cannot be reached: unit variance before it",
                ("unreachable",),
            )
        return unit * math.exp(x), target, why, ()

    def before(self, z: Signal, node: Node, place: Region, unit: float) -> float:
        """Scale for unit second moment at the argument of the first nonlinear function; ``unit``: at the output."""
        for position in place.nodes:
            after = self.graph.nodes[position]
            if isinstance(after.op, Pointwise) and after.op.fn in place.words:
                start = [i for i in after.inputs if i in self.uses.live]
                inside = tuple(p for p in place.nodes if p < position)
                if not inside or not start or start[0] == node.output:
                    return unit
                level = self.replay(scaled(z, unit), node.output, replace(place, end=start[0], nodes=inside)).m2
                return unit / math.sqrt(level) if level > 0 else unit
        return unit


def scaled(z: Signal, s: float) -> Signal:
    """The signal times a number."""
    return z.but(nodes=z.nodes * s)

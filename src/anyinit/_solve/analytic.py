"""Analytic solving: one scale for every weight, in execution order, from the statistics alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anyinit._core.field import Signal, constant, measured
from anyinit._core.tables import separate
from anyinit._graph.graph import Graph, Leaf, Node
from anyinit._graph.ops import Contract, Dropout, Lookup, Pointwise, Softmax
from anyinit._rules.contract import terms
from anyinit._rules.pointwise import as_source
from anyinit._solve.propagate import Walk, iid
from anyinit._solve.regions import Region, region
from anyinit._solve.roles import MOVES, Use, Uses
from anyinit._solve.streams import Streams, plain_depth

POSITION_BESIDE_TOKENS = 0.3
KEPT_ROLES = {"slope", "shape", "state", "index"}


@dataclass
class Decision:
    """What was decided for one weight leaf at its deciding use."""

    leaf: int
    role: str
    std: float
    use: Use
    node: int | None = None
    region: Region | None = None
    target: float | None = None
    fan: int = 0
    why: str = ""
    flags: tuple[str, ...] = ()


@dataclass
class Solver:
    """Walks a graph forward and decides every scale on the way.

    read: actual values of a parameter, for those that are kept. kept: names to leave alone, with the
    reason. targets: ``unit`` or a number, the second moment asked for after an activation.
    """

    graph: Graph
    walk: Walk
    read: Callable[[str], np.ndarray]
    kept: dict[str, str] = field(default_factory=dict[str, str])
    target: float = 1.0
    override: Callable[[str], dict[str, Any]] = lambda _: {}
    factor: Callable[[str], float] = lambda _: 1.0
    share: bool = True
    distribution: str = "auto"
    decisions: dict[int, Decision] = field(default_factory=dict[int, Decision])
    starts: dict[int, float] = field(default_factory=dict[int, float])
    head_levels: dict[int, float] = field(default_factory=dict[int, float])

    def __post_init__(self) -> None:
        self.uses = Uses(self.graph)
        self.uses.collect()
        self.streams = Streams(self.uses)
        self.depth = plain_depth(self.uses)

    # ------------------------------------------------------------------ parameters before any use
    def param(self, i: int, leaf: Leaf) -> Signal:
        """Signal of a parameter before the walk meets it."""
        value = self.graph.values[i]
        uses = self.uses.uses.get(i, [])
        roles = [self.uses.role(u) for u in uses]
        if leaf.name in self.kept or not uses or all(r in KEPT_ROLES for r in roles):
            return measured(self._values(leaf), i)
        if "weight" in roles:
            use = uses[roles.index("weight")]
            std = self._tied(use) if "table" in roles else 1.0
            return iid(value.shape, std, i)
        role = self._main(uses, roles)
        if role in {"table", "position table", "position", "token"}:
            self._decide(i, role, 1.0, uses[0], why="table rows at unit second moment")
            return iid(value.shape, 1.0, i)
        if role == "gain" and math.prod(value.shape) > 1:
            self._decide(i, role, 0.0, uses[0], why="gains start at one")
            return constant(separate(value.shape), 1.0)
        if role == "bias":
            self._decide(i, role, 0.0, uses[0], why="biases start at zero")
            return constant(separate(value.shape), 0.0)
        return measured(self._values(leaf), i)

    def _values(self, leaf: Leaf) -> np.ndarray:
        """Actual values of a parameter, or of its part."""
        x = np.asarray(self.read(leaf.name))
        for step, *args in leaf.view:
            if step == "slice":
                dim, start, stop, stride = args
                x = x[(slice(None),) * dim + (slice(start, stop, stride),)]
            else:
                x = x.reshape(args[0]) if step == "reshape" else x.transpose(args[0])
        return x

    def _main(self, uses: list[Use], roles: list[str]) -> str:
        for at, u in enumerate(uses):
            if any(isinstance(op, Lookup) for op in u.view):
                return "position table" if roles[at] in {"position", "bias"} and self._beside_data(u) else "bias"
        return roles[0]

    def _beside_data(self, use: Use) -> bool:
        node = self.graph.nodes[use.node]
        other = [i for s, i in enumerate(node.inputs) if s != use.slot]
        if not other or other[0] not in self.uses.live:
            return True
        made = self.uses.producer.get(self.uses.source(other[0]))
        op = None if made is None else self.graph.nodes[made]
        both = op is not None and isinstance(op.op, Contract) and all(i in self.uses.live for i in op.inputs)
        return not both

    def _tied(self, use: Use) -> float:
        """Scale of a table that is also the output layer: its inputs' level is known from the last walk."""
        level = self.head_levels.get(use.leaf, 1.0)
        node = self.graph.nodes[use.node]
        data = node.inputs[1 - use.slot]
        fan = self._fan(node, self.graph.values[data].shape if use.slot else self.graph.values[node.inputs[0]].shape)
        return 1.0 / math.sqrt(max(fan * level, 1e-300))

    def _fan(self, node: Node, a_shape: tuple[int, ...]) -> int:
        op = node.op
        assert isinstance(op, Contract)
        count = 1.0
        hidden = {w.a for w in op.windows}
        for lab, n in zip(op.a, self.graph.values[node.inputs[0]].shape, strict=True):
            if lab not in op.out and lab not in hidden:
                count *= n
        for w in op.windows:
            count *= w.size / w.spread
        return max(int(round(count)), 1)

    def _decide(self, leaf: int, role: str, std: float, use: Use, **more: object) -> Decision:
        decision = Decision(leaf, role, std, use, **more)  # type: ignore[arg-type]
        self.decisions[leaf] = decision
        return decision

    # ------------------------------------------------------------------ the walk
    def solve(self) -> None:
        """Decide everything; a tied table whose head input is off the assumed level is walked again."""
        for _ in range(3):
            self.decisions.clear()
            self.starts.clear()
            self.walk.signals.clear()
            self.walk.variance.clear()
            self.walk.leaves()
            for node in self.graph.nodes:
                if node.output not in self.uses.live:
                    self.walk.step(node)
            for node in self.graph.nodes:
                if node.output in self.uses.live:
                    self._visit(node)
            if not self._retie():
                break

    def _retie(self) -> bool:
        again = False
        for leaf, d in self.decisions.items():
            if d.role == "tied table" and d.node is not None:
                node = self.graph.nodes[d.node]
                level = self.walk.signals[node.inputs[1 - d.use.slot]].m2
                if level > 0 and abs(math.log(level / self.head_levels.get(leaf, 1.0))) > 0.01:
                    self.head_levels[leaf] = level
                    again = True
        return again

    def _visit(self, node: Node) -> None:
        self.walk.step(node)
        if isinstance(node.op, Contract):
            self._contraction(node)
        elif isinstance(node.op, Pointwise):
            self._position(node)
            residual = self.streams.residuals.get(self.uses.producer[node.output])
            if residual is not None:
                self.starts.setdefault(self.streams.stream[residual.node], self.walk.signals[residual.skip].m2)
        else:
            self._token(node)

    def _restep(self, leaf: int, node: Node) -> None:
        """Recompute what is made of a leaf alone, then the node."""
        for other in self.uses.made_of.get(leaf, ()):
            self.walk.step(other)
        self.walk.step(node)

    def _set(self, leaf: int, std: float, node: Node) -> None:
        self.walk.signals[leaf] = as_source(iid(self.graph.values[leaf].shape, std, leaf), leaf)
        self._restep(leaf, node)

    def _contraction(self, node: Node) -> None:
        at = self.uses.producer[node.output]
        for slot in (1, 0):
            value = node.inputs[slot]
            if value not in self.uses.origin:
                continue
            for leaf in self.uses.roots(value):
                mine = [u for u in self.uses.uses.get(leaf, ()) if u.node == at and u.slot == slot]
                name = self.graph.leaves[leaf].name
                if mine and leaf not in self.decisions and name not in self.kept:
                    self._weight(node, at, leaf, mine[0], slot)
        self._orthogonal(node)

    def _orthogonal(self, node: Node) -> None:
        """A draw with orthonormal rows or columns keeps the norm it passes on."""
        for slot in (0, 1):
            leaf = self.uses.origin.get(node.inputs[slot], (None, (), False))[0]
            z = self.walk.signals[node.output]
            if leaf in self.decisions and self.drawn(self.decisions[leaf]) == "orthogonal" and z.keys:
                rigid = min(1.0, self.fan_out(node, slot) / max(self.decisions[leaf].fan, 1))
                self.walk.signals[node.output] = as_source(z.but(rigid=(rigid,)), node.output)

    def drawn(self, decision: Decision) -> str:
        """Distribution of a weight; ``auto`` is orthogonal where nothing normalizes for four
        contractions or more, or where the weight is applied again and again."""
        chosen = self.override(self.graph.leaves[decision.leaf].name).get("distribution")
        if chosen is not None:
            return str(chosen)
        if decision.node is None or decision.role == "tied table":
            return "normal" if self.distribution in {"auto", "orthogonal"} else self.distribution
        if self.distribution != "auto":
            return self.distribution
        node = self.graph.nodes[decision.node]
        small = min(decision.fan, self.fan_out(node, decision.use.slot)) <= 2048
        plain = self.depth[node.output] >= 4 or decision.role in {"shared weight", "recurrent"}
        return "orthogonal" if plain and small else "normal"

    def fan_out(self, node: Node, slot: int) -> int:
        """Outputs of one group of a weight."""
        op = node.op
        assert isinstance(op, Contract)
        mine, other = (op.b, op.a) if slot else (op.a, op.b)
        shape = self.graph.values[node.inputs[slot]].shape
        taps_ = {w.tap for w in op.windows} | {w.a for w in op.windows}
        return math.prod(n for lab, n in zip(mine, shape, strict=True) if lab in op.out and lab not in other and lab not in taps_) or 1

    def _weight(self, node: Node, at: int, leaf: int, use: Use, slot: int) -> None:
        uses = self.uses.uses[leaf]
        roles = [self.uses.role(u) for u in uses]
        fan = self._fan(node, ())
        role = "weight"
        if "table" in roles:
            role = "tied table"
        elif sum(r == "weight" for r in roles) > 1:
            role = "shared weight"
        z = self.walk.signals[node.output]
        place = region(self.uses, node.output)
        if role == "tied table":
            self._decide(leaf, role, self._tied(use), use, node=at, region=place, target=1.0, fan=fan, why="tied table: the output layer decides, logits at unit second moment")
            return
        if role == "shared weight" and not place.curved and self._recurrent(leaf):
            role = "recurrent"
            std, target, why, flags = 1 / math.sqrt(fan), None, "recurrent: unit gain on the state", ()
        else:
            std, target, why, flags = self._scale(z, node, place, fan)
        std, why = self._overridden(leaf, std, why)
        if leaf not in self.decisions:
            self._decide(leaf, role, std, use, node=at, region=place, target=target, fan=fan, why=why, flags=flags)
        self._set(leaf, std, node)

    def _recurrent(self, leaf: int) -> bool:
        """Whether the weight is applied to something made of its own output and the result is added to
        what another weight makes."""
        nodes = [self.graph.nodes[u.node] for u in self.uses.uses[leaf] if isinstance(self.graph.nodes[u.node].op, Contract)]
        first, second = nodes[0], nodes[1]
        data = next((i for i in second.inputs if i in self.uses.live), None)
        if data is None or not self.streams.ancestors[data] >> first.output & 1:
            return False
        value = first.output
        for _ in range(8):
            readers = self.uses.consumers.get(value, ())
            if len(readers) != 1:
                return False
            node = self.graph.nodes[readers[0]]
            live = [i for i in node.inputs if i in self.uses.live]
            if isinstance(node.op, Pointwise) and node.op.fn == "add" and len(live) == 2:
                return self.uses.producer[node.output] not in self.streams.residuals
            if len(live) != 1 or not (isinstance(node.op, MOVES) or (isinstance(node.op, Pointwise) and node.op.fn == "add")):
                return False
            value = node.output
        return False

    def _overridden(self, leaf: int, std: float, why: str) -> tuple[float, str]:
        """The caller's own scale or factor."""
        name = self.graph.leaves[leaf].name
        fixed, factor = self.override(name).get("std"), self.factor(name)
        if fixed is not None:
            return float(fixed), f"standard deviation {fixed:g} given by the caller"
        return std * factor, f"{why}, times the caller's gain {factor:g}" if factor != 1.0 else why

    def _scale(self, z: Signal, node: Node, place: Region, fan: int) -> tuple[float, float | None, str, tuple[str, ...]]:
        """Standard deviation for a weight now of unit entries, given what follows it."""
        if z.m2 <= 1e-280:
            return 1 / math.sqrt(fan), None, "input is zero at this use: unit gain", ("zero input",)
        if not place.curved:
            target, why = self._straight_target(place)
            level = self._replay(z, node.output, place).m2 or z.m2
            return math.sqrt(target / level), target, why, ()
        target, why = self._curved_target(place)
        return self._reach(z, node, place, target, why)

    def _straight_target(self, place: Region) -> tuple[float, str]:
        share = self._branch_share(place.end)
        if share is not None:
            return share
        after = None if place.next is None else self.graph.nodes[place.next].op
        if isinstance(after, Softmax):
            return 1.0, "logits at unit second moment"
        return 1.0, "unit second moment at its own output"

    def _curved_target(self, place: Region) -> tuple[float, str]:
        share = self._branch_share(place.end)
        if share is not None:
            return share
        return self.target, f"second moment {self.target:g} after {' '.join(place.words)}"

    def _branch_share(self, value: int) -> tuple[float, str] | None:
        """Share of a residual branch: the stream's first level divided by the number of branches."""
        if not self.share:
            return None
        split = 1.0
        for _ in range(12):
            residual = self.streams.by_branch.get(value)
            if residual is not None:
                stream = self.streams.stream[residual.node]
                count = self.streams.sizes[stream]
                level = self.starts.setdefault(stream, self.walk.signals[residual.skip].m2)
                if level <= 0:
                    return None
                text = f"residual branch: 1/{count} of the stream's second moment {level:.3g}"
                return level / count / split, text
            readers = self.uses.consumers.get(value, ())
            if len(readers) != 1:
                return None
            node = self.graph.nodes[readers[0]]
            passed = self._passing(node)
            if passed is None:
                return None
            split *= passed
            value = node.output
        return None

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

    def _replay(self, z: Signal, at: int, place: Region) -> Signal:
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

    def _reach(self, z: Signal, node: Node, place: Region, target: float, why: str) -> tuple[float, float | None, str, tuple[str, ...]]:
        """Solve ``E a^2 = target`` for the scale: secant steps on logarithms, kept inside a bracket."""
        unit = 1 / math.sqrt(z.m2)

        def level(log_s: float) -> float:
            m2 = self._replay(_scaled(z, unit * math.exp(log_s)), node.output, place).m2
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
                return self._before(z, node, place, unit), None, f"{why} cannot be reached: unit variance before it", ("unreachable",)
            got = level(new)
            slope = (got - y) / (new - x) if new != x else slope
            x, y = new, got
            low, high = (low, x) if y > 0 else (x, high)
        if abs(y) > 1e-3:
            return self._before(z, node, place, unit), None, f"{why} cannot be reached: unit variance before it", ("unreachable",)
        return unit * math.exp(x), target, why, ()

    def _before(self, z: Signal, node: Node, place: Region, unit: float) -> float:
        """Scale that gives the argument of the first nonlinear function unit second moment."""
        for position in place.nodes:
            after = self.graph.nodes[position]
            if isinstance(after.op, Pointwise) and after.op.fn in place.words:
                start = [i for i in after.inputs if i in self.uses.live]
                inside = tuple(p for p in place.nodes if p < position)
                if not inside or not start or start[0] == node.output:
                    return unit
                level = self._replay(_scaled(z, unit), node.output, replace(place, end=start[0], nodes=inside)).m2
                return unit / math.sqrt(level) if level > 0 else unit
        return unit

    # ------------------------------------------------------------------ tables beside data
    def _position(self, node: Node) -> None:
        """A position table's level is relative to what it is added to."""
        if node.op.fn not in {"add", "sub"} or len(node.inputs) != 2:  # type: ignore[attr-defined]
            return
        for slot, i in enumerate(node.inputs):
            leaf = self.uses.origin.get(i, (None,))[0]
            d = self.decisions.get(leaf) if leaf is not None else None
            other = node.inputs[1 - slot]
            if d is None or d.role not in {"position", "position table"} or other not in self.uses.live:
                continue
            made = self.uses.producer.get(self.uses.source(other))
            tokens = made is not None and isinstance(self.graph.nodes[made].op, Lookup)
            factor = POSITION_BESIDE_TOKENS if tokens else 1.0
            d.std = factor * math.sqrt(self.walk.signals[other].m2 or 1.0)
            d.why = f"positions at {factor:g} of the level of what they are added to"
            d.node = self.uses.producer[node.output]
            self._set(d.leaf, d.std, node)

    def _token(self, node: Node) -> None:
        """A learned token has the level of what it stands beside."""
        for i in node.inputs:
            leaf = self.uses.origin.get(i, (None,))[0]
            d = self.decisions.get(leaf) if leaf is not None else None
            if d is None or d.role != "token":
                continue
            beside = [self.walk.signals[j].m2 for j in node.inputs if j in self.uses.live]
            if beside and max(beside) > 0:
                d.std = math.sqrt(max(beside))
                d.why = "token at the level of what it stands beside"
                d.node = self.uses.producer[node.output]
                self._set(d.leaf, d.std, node)


def _scaled(z: Signal, s: float) -> Signal:
    return z.but(nodes=z.nodes * s)


__all__ = ["Decision", "Solver", "terms"]

"""Analytic solving: one scale for every weight, in execution order, from the statistics alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyinit._core.field import Signal, constant, measured
from anyinit._core.tables import separate
from anyinit._graph.graph import Graph, Leaf, Node
from anyinit._graph.ops import Contract, Lookup, Pointwise
from anyinit._rules.pointwise import as_source
from anyinit._solve.critical import Critical
from anyinit._solve.fans import fan_in, fan_out
from anyinit._solve.levels import Levels
from anyinit._solve.mirror import centred, mirrored_signal
from anyinit._solve.policy import LEVEL, Policy, Style
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
    style: Style = field(default_factory=Style)
    fan: int = 0
    why: str = ""
    flags: tuple[str, ...] = ()
    value: float = 0.0


@dataclass
class Solver:
    """Walks a graph forward and decides every scale on the way.

    read: actual values of a parameter, for those that are kept. kept: names to leave alone, with the
    reason. target: second moment asked for after an activation; ``auto`` and ``critical``: styles choose levels.
    """

    graph: Graph
    walk: Walk
    read: Callable[[str], np.ndarray]
    kept: dict[str, str] = field(default_factory=dict[str, str])
    target: float = 1.0
    override: Callable[[str], dict[str, Any]] = lambda _: {}
    factor: Callable[[str], float] = lambda _: 1.0
    share: bool = True
    auto: bool = True
    mirror: bool = True
    critical: bool = False
    distribution: str = "auto"
    roles: dict[str, str] = field(default_factory=dict[str, str])
    decisions: dict[int, Decision] = field(default_factory=dict[int, Decision])
    head_levels: dict[int, float] = field(default_factory=dict[int, float])
    known: dict[int, float] = field(default_factory=dict[int, float])
    early: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.uses = Uses(self.graph)
        self.uses.collect()
        self.streams = Streams(self.uses)
        self.depth = plain_depth(self.uses)
        self.levels = Levels(self.graph, self.walk, self.uses, self.streams, self.target, self.share, heads=self.auto)
        self.policy = Policy(
            self.graph, self.uses, self.walk, self.depth, frozenset(self.kept), self.mirror, self.streams
        )

    # ------------------------------------------------------------------ parameters before any use
    def param(self, i: int, leaf: Leaf) -> Signal:
        """Signal of a parameter before the walk meets it."""
        value = self.graph.values[i]
        uses = self.uses.uses.get(i, [])
        roles = [self.uses.role(u) for u in uses]
        if leaf.name in self.kept or not uses or all(r in KEPT_ROLES for r in roles):
            return measured(self.values(leaf), i)
        if i in self.streams.factors.last and "std" not in self.override(leaf.name):
            why = "last factor of a low-rank pair beside a weight: their product starts at zero"
            self._decide(i, "factor", 0.0, uses[0], why=why)
            return constant(separate(value.shape), 0.0)
        if i in self.streams.factors.hidden and "weight" in roles:
            use = uses[roles.index("weight")]
            fan = fan_in(self.graph, self.graph.nodes[use.node])
            std, why = self._overridden(i, 1 / math.sqrt(fan), "first factor of a low-rank pair: unit gain")
            self._decide(i, "weight", std, use, fan=fan, why=why)
            return iid(value.shape, std, i)
        if "weight" in roles:
            use = uses[roles.index("weight")]
            std = self._tied(use) if "table" in roles else self.known.get(i, 1.0)
            return iid(value.shape, std, i)
        role = self._main(uses, roles)
        if role in {"table", "position table", "position", "token"}:
            std, why = self._overridden(i, 1.0, "table rows at unit second moment")
            self._decide(i, role, std, uses[0], why=why)
            return iid(value.shape, std, i)
        if role == "gain" and math.prod(value.shape) > 1:
            one = self.uses.neutral(uses[0])
            one = 1.0 if one is None else one
            why = "gains start at one" if one else "what multiplies starts at one"
            self._decide(i, role, 0.0, uses[0], why=why, value=one)
            return constant(separate(value.shape), one)
        if role == "bias":
            self._decide(i, role, 0.0, uses[0], why="biases start at zero")
            return constant(separate(value.shape), 0.0)
        return measured(self.values(leaf), i)

    def values(self, leaf: Leaf, whole: np.ndarray | None = None) -> np.ndarray:
        """Actual values of a parameter, or of its part."""
        x = np.asarray(self.read(leaf.name) if whole is None else whole)
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
        fan = fan_in(self.graph, node)
        return self.factor(self.graph.leaves[use.leaf].name) / math.sqrt(max(fan * level, 1e-300))

    def _decide(self, leaf: int, role: str, std: float, use: Use, **more: object) -> Decision:
        decision = Decision(leaf, role, std, use, **more)  # type: ignore[arg-type]
        self.decisions[leaf] = decision
        return decision

    # ------------------------------------------------------------------ the walk
    def solve(self) -> None:
        """Decide everything; a tied table whose head input is off the assumed level is walked again."""
        for _ in range(3):
            self.decisions.clear()
            self.levels.starts.clear()
            self.levels.shares.clear()
            self.walk.signals.clear()
            self.walk.variance.clear()
            self.policy.styles.clear()
            self.walk.leaves()
            for node in self.graph.nodes:
                if node.output not in self.uses.live:
                    self.walk.step(node)
            for node in self.graph.nodes:
                if node.output in self.uses.live:
                    self._visit(node)
            again = self._retie()
            if self.early:  # met before what decides them: walk again with what was decided
                self.known.update({leaf: self.decisions[leaf].std for leaf in self.early if leaf in self.decisions})
                again, self.early = bool(self.known), set()
            if not again:
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
            if node.op.fn == "where":
                self._token(node)
            residual = self.streams.residuals.get(self.uses.producer[node.output])
            if residual is not None:
                self.levels.start(residual)
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
                mine = [u for u in self.uses.applied(leaf) if u.node == at and u.slot == slot]
                if not mine and leaf not in self.decisions and leaf not in self.known:
                    self.early.add(leaf)
                name = self.graph.leaves[leaf].name
                if mine and leaf not in self.decisions and name not in self.kept:
                    self._weight(node, at, leaf, mine[0], slot)
        self._orthogonal(node)

    def _orthogonal(self, node: Node) -> None:
        """A draw with orthonormal rows or columns keeps the norm it passes on."""
        for slot in (0, 1):
            leaf = self.uses.origin.get(node.inputs[slot], (None, (), False))[0]
            z = self.walk.signals[node.output]
            if leaf in self.decisions and self.drawn(self.decisions[leaf]).endswith("orthogonal") and z.keys:
                style = self.decisions[leaf].style
                ratio = fan_out(self.graph, node, slot) / max(self.decisions[leaf].fan, 1)
                ratio *= {"rows": 0.5, "cols": 2.0}.get(style.mirrored, 1.0)
                rigid = min(1.0, ratio * math.prod(w.size for w in node.op.windows) if style.centre else ratio)  # type: ignore[attr-defined]
                self.walk.signals[node.output] = as_source(z.but(rigid=(rigid,)), node.output)

    def drawn(self, decision: Decision) -> str:
        """Distribution of a weight; ``auto`` is orthogonal where nothing normalizes for four
        contractions or more, or where the weight is applied again and again."""
        chosen = self.override(self.graph.leaves[decision.leaf].name).get("distribution")
        if chosen is not None:
            return str(chosen)
        if self.roles.get(decision.role, "auto") != "auto":
            return self.roles[decision.role]
        if decision.node is None or decision.role == "tied table":
            return "normal" if self.distribution in {"auto", "orthogonal"} else self.distribution
        if self.distribution != "auto":
            return self.distribution
        node = self.graph.nodes[decision.node]
        small = min(decision.fan, fan_out(self.graph, node, decision.use.slot)) <= 2048
        plain = self.depth[node.output] >= 4 or decision.role in {"shared weight", "recurrent"}
        if decision.style.centre:
            return "delta_orthogonal"
        return "orthogonal" if plain and small else "normal"

    def _weight(self, node: Node, at: int, leaf: int, use: Use, slot: int) -> None:
        uses = self.uses.uses[leaf]
        roles = [self.uses.role(u) for u in uses]
        fan = fan_in(self.graph, node)
        role = "weight"
        if "table" in roles:
            role = "tied table"
        elif self._nested(leaf):
            role = "shared weight"
        place = self.levels.place(region(self.uses, node.output))
        if role == "tied table":
            why = "tied table: the output layer decides, logits at unit second moment"
            self._decide(leaf, role, self._tied(use), use, node=at, region=place, target=1.0, fan=fan, why=why)
            return
        style = (
            self.policy.style(leaf, node, place, node.inputs[1 - slot]) if self.auto and role == "weight" else Style()
        )
        z = self._dressed(leaf, 1.0, node, use, style)
        if self.critical and role == "weight":
            style = Critical(self.graph, self.levels, self.policy, self.depth).style(leaf, node, place, z)
        if role == "shared weight" and not place.curved and self._recurrent(leaf):
            role = "recurrent"
            std, target, why, flags = 1 / math.sqrt(fan), None, "recurrent: unit gain on the state", ()
        else:
            self.levels.scalars = role != "shared weight"  # a vector field is applied again with every step size
            std, target, why, flags = self._styled(z, node, place, fan, style)
        std, why = self._overridden(leaf, std, why)
        if "std" in self.override(self.graph.leaves[leaf].name):
            target, flags = None, ()
        if leaf not in self.decisions:
            self._decide(
                leaf, role, std, use, node=at, region=place, target=target, fan=fan, why=why, flags=flags, style=style
            )
        self._dressed(leaf, std, node, use, style)

    def _styled(
        self, z: Signal, node: Node, place: Region, fan: int, style: Style
    ) -> tuple[float, float | None, str, tuple[str, ...]]:
        """Scale as the policy asks, biases included."""
        if style.std is not None:
            self._bias(place, style.phase / math.sqrt(3), style)
            return style.std, None, style.why, ()
        if style.level is not None:
            q = style.level or self.levels.level_before(z, node, place, LEVEL)
            std, why, flags = math.sqrt(q / z.m2), style.why, ()
            target: float | None = self.levels.replay(z.but(nodes=z.nodes * std), node.output, place).m2
        else:
            std, target, why, flags = self.levels.scale(z, node, place, fan)
            whole = fan * max((self.walk.signals[i].m2 for i in node.inputs if i in self.uses.live), default=0.0)
            if (
                style.whole and target is not None and std**2 * whole > target
            ):  # what twins cancel now, they soon do not
                std, target = math.sqrt(target / whole), z.m2 * target / whole
                why = f"{why} with what its twins cancel, second moment {target:.3g} without"
            q = z.m2 * std * std
            why = f"{why}; {style.why}" if style.why else why
        if style.bias > 0:
            self._bias(place, math.sqrt(q * style.bias), style)
            std *= math.sqrt(1 - style.bias)
        return std, target, why, flags

    def _bias(self, place: Region, std: float, style: Style) -> None:
        """Give the layer's bias a spread; its entries are independent, so they part the sign pairs of its rows."""
        leaf = self.policy.bias_leaf(place)
        if leaf is None or leaf not in self.decisions:
            return
        d = self.decisions[leaf]
        d.std, d.style, d.why = std, style, f"standard deviation {std:.3g}: {style.why}"
        shape = self.graph.values[leaf].shape
        self.walk.signals[leaf] = as_source(iid(shape, std, leaf), leaf)
        for other in self.uses.made_of.get(leaf, ()):
            self.walk.step(other)

    def _dressed(self, leaf: int, std: float, node: Node, use: Use, style: Style) -> Signal:
        """Set a weight's scale and form; returns the contraction's signal."""
        if style.centre:
            assert isinstance(node.op, Contract)
            self.walk.ops[node.output] = centred(node.op)
        if style.mirrored in {"cols", "both"}:
            self.walk.paired.add(node.output)
        self._set(leaf, std, node)
        if style.mirrored:
            op = node.op
            assert isinstance(op, Contract)
            mine, other = (op.b, op.a) if use.slot else (op.a, op.b)
            out = next(i for i, lab in enumerate(mine) if lab in op.out and lab not in other)
            into = next(mine.index(lab) for lab in other if lab in mine and lab not in op.out)
            rows, cols = style.mirrored in {"rows", "both"}, style.mirrored in {"cols", "both"}
            shape = self.graph.values[use.value].shape
            signal = mirrored_signal(shape, out if rows else None, into if cols else None, std, leaf)
            self.walk.signals[use.value] = as_source(signal, use.value)
            self.walk.step(node)
        return self.walk.signals[node.output]

    def _nested(self, leaf: int) -> bool:
        """Whether a weight is applied to something made with itself (in contrast to calls side by side)."""
        made = 0
        for use in self.uses.applied(leaf):
            node = self.graph.nodes[use.node]
            if self.streams.ancestors[node.inputs[1 - use.slot]] & made:
                return True
            made |= 1 << node.output
        return False

    def _recurrent(self, leaf: int) -> bool:
        """Whether the weight is applied to something made of its own output and the result is added to
        what another weight makes."""
        nodes = [
            self.graph.nodes[u.node] for u in self.uses.uses[leaf] if isinstance(self.graph.nodes[u.node].op, Contract)
        ]
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
            if len(live) != 1 or not (
                isinstance(node.op, MOVES) or (isinstance(node.op, Pointwise) and node.op.fn == "add")
            ):
                return False
            value = node.output
        return False

    def _overridden(self, leaf: int, std: float, why: str) -> tuple[float, str]:
        """The caller's own scale or factor."""
        name = self.graph.leaves[leaf].name
        chosen, factor = self.override(name), self.factor(name)
        if (fixed := chosen.get("std")) is not None:
            return float(fixed), str(chosen.get("why", f"standard deviation {fixed:g} given by the caller"))
        return std * factor, f"{why}, times the caller's gain {factor:g}" if factor != 1.0 else why

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
            std = factor * math.sqrt(self.walk.signals[other].m2 or 1.0)
            d.std, d.why = self._overridden(
                d.leaf, std, f"positions at {factor:g} of the level of what they are added to"
            )
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
                d.std, d.why = self._overridden(
                    d.leaf, math.sqrt(max(beside)), "token at the level of what it stands beside"
                )
                d.node = self.uses.producer[node.output]
                self._set(d.leaf, d.std, node)

"""The default policy, ``target="auto"``: what to ask of each weight, from the graph and quadrature alone.

Every choice is made from a function's values, a depth, or a shape; none from a name.

* Plain chains whose activation has a (nearly) linear odd part are drawn mirrored: the network is linear
  and isometric at initialization at any depth (Balduzzi et al. 2017, "looks linear").
* Odd activations that cannot reach the target level get the level at which the gradient grows by a set
  factor over the whole depth (Schoenholz et al. 2017: chi_1).
* Activations whose level slope exceeds one get biases that bring ``chi * chi_1`` to one.
* Inputs whose samples differ mostly in length get biases in the first layer.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anyinit._core.field import Nodes, Signal, expect, gaussian
from anyinit._core.roots import crossing
from anyinit._core.tables import Factor, build
from anyinit._graph.graph import Graph, Node
from anyinit._graph.ops import Contract, Pointwise
from anyinit._rules.pointwise import as_source
from anyinit._solve.mirror import level_slope, sign_table
from anyinit._solve.paired import Questions, odd_is_linear, residual_members
from anyinit._solve.propagate import Walk
from anyinit._solve.regions import Region, region
from anyinit._solve.roles import Uses
from anyinit._solve.streams import Streams

CHAIN = 4  # weights from which a plain chain is worth mirroring
LEVEL = (
    4.9  # second moment after a mirrored activation whose level slope exceeds one (gates act more like relu's there)
)
FLAT = 1.02  # level slope up to which a mirrored chain runs at unit level
HELD_LEVEL, HELD_GRADIENT = 100.0, 10.0  # products of chi and chi_1 that independent draws may have over a chain
GROWTH = 100.0  # growth of the gradient over the whole depth for odd saturating activations
LENGTH, FEW_INPUTS = 0.1, 8  # a sample of so few numbers whose squared norm varies so much tells by its length
BIAS, LOOSE_BIAS = 0.5, 0.2  # share of biases there; less where independent draws spread angles further
STEEP = 1.2  # level slope from which biases are worth having


@dataclass(frozen=True, slots=True)
class Style:
    """What the policy asks of one weight.

    mirrored: ``""``, ``rows``, ``cols`` or ``both``. level: second moment wanted before the activation
    (None: the usual target). bias: share of that level which biases carry. centre: only the centre tap of
    a convolution is drawn. phase: spread of uniform biases, for oscillating first layers. whole: a readout of
    twins that is no larger than an independent one of the same input would be.
    """

    mirrored: str = ""
    level: float | None = None
    bias: float = 0.0
    centre: bool = False
    std: float | None = None
    phase: float = 0.0
    why: str = ""
    whole: bool = False


@dataclass
class Policy:
    """Styles by weight leaf; chains are found when their first weight is met."""

    graph: Graph
    uses: Uses
    walk: Walk
    depth: dict[int, int]
    kept: frozenset[str] = frozenset()
    mirror: bool = True
    streams: Streams | None = None
    styles: dict[int, Style] = field(default_factory=dict[int, Style])
    known_slopes: dict[tuple[Hashable, float], tuple[float, float]] = field(default_factory=dict[Any, Any])

    def style(self, leaf: int, node: Node, place: Region, data: int) -> Style:
        """The style of a weight met at ``node``; ``data`` is the value it is applied to."""
        if leaf not in self.styles:
            if not self.mirror or not (self._chain(leaf, node, place) or self._stream(leaf, node, place)):
                self.styles[leaf] = self._lone(node, place)
            if leaf in self.styles:
                self.styles[leaf] = self._first(self.styles[leaf], node, place, data)
        return self.styles[leaf]

    # ------------------------------------------------------------------ chains
    def _chain(self, leaf: int, node: Node, place: Region) -> bool:
        """Walk along plain layers; set the styles of a chain that can be mirrored."""
        found: list[tuple[int, Node, Region, Nodes, Signal]] = []
        here, at, spot = leaf, node, place
        last: tuple[int, Node] | None = None
        while spot.curved and self._plain(here, at):
            nodes = self._paired(at, spot)
            following = None if nodes is None or spot.next is None else self.graph.nodes[spot.next]
            after = None if following is None else self._weight_of(following, spot.end)
            if nodes is None or following is None or after is None:
                break
            found.append((here, at, spot, *nodes))
            here, at, spot = after, following, region(self.uses, following.output)
            last = (here, at)
        if len(found) + 1 < CHAIN or last is None:
            return False
        if self._held([(where, spot_) for _, where, spot_, _, _ in found]):
            return False
        level = min(self._level(n) for _, _, _, n, _ in found)
        for k, (one, where, spot_, nodes_, _) in enumerate(found):
            mode = "both" if k else "rows"
            homogeneous = abs(level_slope(nodes_) - 1) < 1e-6
            why = f"mirrored: the odd part of {' '.join(spot_.words)} is linear, "
            why += "so the plain chain starts linear and isometric"
            q = self._level(nodes_) if homogeneous else level
            self.styles[one] = Style(mode, q, centre=k > 0 and self._centred(where), why=why)
        self.styles[last[0]] = Style("cols", why="mirrored input: end of a linear chain")
        return True

    def _stream(self, leaf: int, node: Node, place: Region) -> bool:
        """Set the styles of a residual network without normalization whose stream passes an activation."""
        if self.streams is None:
            return False
        ask = Questions(self._weight_of, self._plain, lambda n: self._probe(n, 1.0))
        found = residual_members(leaf, node, place, self.uses, self.walk, self.streams, ask)
        if found is None or len(found) < CHAIN:
            return False
        for m in found:
            end = self._replayed(self._probe(m.node, 1.0), m.node.output, m.place) if m.place.curved else None
            level = None if end is None else self._level(end.nodes)
            why = "mirrored: a residual stream without normalization passes activations whose odd part is linear"
            self.styles[m.leaf] = Style(
                m.mode, level, centre=m.mode == "both" and self._centred(m.node), why=why, whole=m.mode == "cols"
            )
        return True

    def _held(self, layers: list[tuple[Node, Region]]) -> bool:
        """Whether independent draws at unit level hold the chain: activations that are not homogeneous, whose
        products of chi (mended by a correction) and of chi_1 stay within bounds. An activation whose level
        slope is one or less is mirrored at unit level, so its sign pairs cost nothing."""
        level, gradient = 0.0, 0.0
        for node, place in layers:
            end = self._replayed(self._probe(node, 1.0), node.output, place)
            if end is None or abs(level_slope(end.nodes) - 1) < 1e-6:
                return False
            chi, chi_1 = self._slopes(node, place, self._unit_level(node, place))
            if chi <= FLAT:
                return False
            level, gradient = level + math.log(max(chi, 1e-12)), gradient + math.log(max(chi_1, 1e-12))
        return level <= math.log(HELD_LEVEL) and abs(gradient) <= math.log(HELD_GRADIENT)

    def _unit_level(self, node: Node, place: Region) -> float:
        """Level before an activation that gives unit level after it; one where there is none."""

        def excess(log_q: float) -> float:
            end = self._replayed(self._probe(node, math.exp(log_q)), node.output, place)
            return -1.0 if end is None else math.log(max(end.m2, 1e-300))

        low, high = -4.0, 4.0
        if excess(low) > 0 or excess(high) < 0:
            return 1.0
        return math.exp(crossing(excess, low, high, 1e-6))

    def _plain(self, leaf: int, node: Node) -> bool:
        """A weight used once, without groups, whose outputs come in pairs."""
        uses = self.uses.uses.get(leaf, ())
        op = node.op
        if (
            len(uses) != 1
            or not uses[0].pure
            or not isinstance(op, Contract)
            or self.graph.leaves[leaf].name in self.kept
        ):
            return False
        if self.graph.values[leaf].kind != "float":
            return False
        mine, other = (op.b, op.a) if uses[0].slot else (op.a, op.b)
        free = [lab for lab in op.out if lab in mine and lab not in other]
        batch = [lab for lab in op.out if lab in mine and lab in other]
        if len(free) != 1 or batch:
            return False
        return self.graph.values[node.output].shape[op.out.index(free[0])] % 2 == 0

    def _weight_of(self, node: Node, data: int) -> int | None:
        """The weight leaf of a contraction that reads ``data`` alone."""
        if not isinstance(node.op, Contract) or node.inputs.count(data) != 1:
            return None
        other = node.inputs[1 - node.inputs.index(data)]
        if other not in self.uses.origin or not self.uses.origin[other][2]:
            return None
        leaf = self.uses.origin[other][0]
        roles = [self.uses.role(u) for u in self.uses.uses.get(leaf, ())]
        return (
            leaf
            if set(roles) == {"weight"}
            and len(self.uses.applied(leaf)) == 1
            and self.graph.leaves[leaf].name not in self.kept
            else None
        )

    def _paired(self, node: Node, place: Region) -> tuple[Nodes, Signal] | None:
        """Node values of the activation on a unit field, when the sign axis reaches the next weight whole
        and the odd part is linear enough."""
        z = self._probe(node, 1.0)
        end = self._replayed(z, node.output, place)
        if end is None or end.nodes.ndim != 1 or len(end.keys) != 1:
            return None
        following = self.graph.nodes[place.next] if place.next is not None else None
        if (
            following is None
            or not isinstance(following.op, Contract)
            or not self._sign_leads(end, following, place.end)
        ):
            return None
        return (end.nodes, end) if odd_is_linear(end.nodes) else None

    def _sign_leads(self, end: Signal, following: Node, value: int) -> bool:
        """Whether the sign axis is the outermost factor of the first contracted dimension."""
        op = following.op
        assert isinstance(op, Contract)
        labels = op.a if following.inputs[0] == value else op.b
        sign = [g for g in range(end.layout.groups) if end.corr[0][1 << g] < -0.99]
        if len(sign) != 1 or len(labels) != len(end.layout.dims):
            return False
        hidden = {w.a for w in op.windows}
        contracted = [d for d, lab in enumerate(labels) if lab not in op.out and lab not in hidden]
        places = [(d, k) for d, dim in enumerate(end.layout.dims) for k, (_, g) in enumerate(dim) if g == sign[0]]
        return (
            len(places) == 1
            and places[0][1] == 0
            and contracted[:1] == [places[0][0]]
            and end.layout.sizes[sign[0]] == 2
        )

    def _probe(self, node: Node, q: float) -> Signal:
        """A Gaussian output of a mirrored weight at level ``q``."""
        op = node.op
        assert isinstance(op, Contract)
        shape = self.graph.values[node.output].shape
        slot = 1 if node.inputs[1] in self.uses.origin else 0
        mine, other = (op.b, op.a) if slot else (op.a, op.b)
        free = next((i for i, lab in enumerate(op.out) if lab in mine and lab not in other), None)
        dims: list[list[Factor]] = [[(n, ("d", i))] for i, n in enumerate(shape)]
        if free is not None and shape[free] % 2 == 0:
            dims[free] = [(2, "sign"), (shape[free] // 2, ("d", free))]
        layout, keys = build(dims)
        return gaussian(layout, 0.0, q * sign_table(keys, {"sign"}), ("probe", node.output))

    def _replayed(self, z: Signal, at: int, place: Region) -> Signal | None:
        with self.walk.aside():
            self.walk.signals[at] = as_source(z, at)
            for position in place.nodes:
                node = self.graph.nodes[position]
                if any(i not in self.walk.signals for i in node.inputs):
                    return None
                self.walk.step(node)
            return self.walk.signals[place.end]

    def _level(self, nodes: Nodes) -> float:
        """Pre-activation level of a mirrored chain: unit second moment after a homogeneous activation,
        ``LEVEL`` after any other; the activation's values are known on a unit field."""
        if abs(level_slope(nodes) - 1) < 1e-6:
            return 1.0 / expect(nodes * nodes)
        return 0.0  # solved by level, see Solver

    def _centred(self, node: Node) -> bool:
        """A stride-one convolution with an odd kernel can pass everything through its centre tap."""
        op = node.op
        return (
            isinstance(op, Contract)
            and bool(op.windows)
            and all(w.stride == w.spread == 1 and w.size % 2 == 1 for w in op.windows)
        )

    # ------------------------------------------------------------------ weights outside chains
    def _lone(self, node: Node, place: Region) -> Style:
        """Odd saturating activations and steep ones."""
        if not place.curved:
            return Style()
        depth = self.depth[node.output]
        end = self._replayed(self._probe(node, 1.0), node.output, place)
        if end is None or end.nodes.ndim != 1 or depth < 3:
            return Style()
        chi, chi_1 = self._slopes(node, place, 1.0)
        odd = abs(end.mean) < 1e-9 * math.sqrt(end.m2)
        if odd and chi < 0.999:
            return self._saturating(node, place, depth)
        if chi > STEEP and chi * chi_1 > 1.05 and self._biased(place):
            return Style(
                bias=1 - 1 / math.sqrt(chi * chi_1), why=f"level slope {chi:.3g}: biases bring chi * chi_1 to one"
            )
        return Style()

    def _saturating(self, node: Node, place: Region, depth: int) -> Style:
        """Largest level up to one at which the gradient grows by ``GROWTH`` at most over the depth."""
        scale = self._argument(node, place)
        bound = math.log(GROWTH) / depth

        def growth(q: float) -> float:
            return math.log(max(self._slopes(node, place, q / scale)[1], 1e-12))

        low, high = 1e-4, 1.0
        if growth(high) > bound:
            for _ in range(40):
                middle = math.sqrt(low * high)
                low, high = (middle, high) if growth(middle) <= bound else (low, middle)
        else:
            low = high
        times = math.exp(growth(low) * depth)
        why = f"odd saturating {' '.join(place.words)}: level {low:.3g} before it, where the gradient grows "
        why += f"{times:.3g} times over {depth} layers"
        return Style(level=low / scale, why=why)

    def _argument(self, node: Node, place: Region) -> float:
        """Second moment at the nonlinear function's argument for a unit field at the weight's output."""
        with self.walk.aside():
            self.walk.signals[node.output] = as_source(self._probe(node, 1.0), node.output)
            for position in place.nodes:
                after = self.graph.nodes[position]
                if isinstance(after.op, Pointwise) and after.op.fn in place.words:
                    live = [i for i in after.inputs if i in self.uses.live]
                    return self.walk.signals[live[0]].m2 or 1.0
                self.walk.step(after)
            return 1.0

    def _slopes(self, node: Node, place: Region, q: float) -> tuple[float, float]:
        """Level slope and gradient factor ``q E f'^2 / E f^2`` at one level; once for a function and a level."""
        function = self._function(node, place)
        if function is None:
            return self._fresh_slopes(node, place, q)
        if (function, q) not in self.known_slopes:
            self.known_slopes[function, q] = self._fresh_slopes(node, place, q)
        return self.known_slopes[function, q]

    def _function(self, node: Node, place: Region) -> Hashable | None:
        """What identifies the function of one field behind a weight; None where there is more to it than that."""
        numbers: dict[int, int] = {node.output: 0}
        steps: list[Hashable] = []
        for position in place.nodes:
            after = self.graph.nodes[position]
            if not isinstance(after.op, Pointwise):
                return None
            operands: list[int | float] = []
            for i in after.inputs:
                x = self.walk.signals.get(i)
                if i in numbers:
                    operands.append(numbers[i])
                elif x is None or x.keys or x.lineage or x.data is not None or x.nodes.ndim:
                    return None
                else:
                    operands.append(float(x.nodes))
            steps.append((after.op.fn, repr(after.op.args), repr(operands)))
            numbers[after.output] = len(numbers)
        return (tuple(steps), numbers.get(place.end))

    def _fresh_slopes(self, node: Node, place: Region, q: float) -> tuple[float, float]:
        end = self._replayed(self._probe(node, q), node.output, place)
        source = None if end is None else end.sources.get(node.output)
        if end is None or source is None or end.m2 <= 0:
            return 1.0, 1.0
        return expect(end.nodes * source.deriv * source.nodes) / end.m2, expect(source.deriv**2) * q / end.m2

    def _biased(self, place: Region) -> bool:
        """Whether the layer has a bias to use."""
        return self.bias_leaf(place) is not None

    def bias_leaf(self, place: Region) -> int | None:
        """The bias added directly behind the weight."""
        made = self.uses.producer.get(place.output)
        if made is None:
            return None
        node = self.graph.nodes[made]
        if not isinstance(node.op, Pointwise) or node.op.fn != "add":
            return None
        for i in node.inputs:
            if i in self.uses.origin and self.uses.origin[i][2]:
                leaf = self.uses.origin[i][0]
                roles = {self.uses.role(u) for u in self.uses.uses.get(leaf, ())}
                if roles == {"bias"} and self.graph.leaves[leaf].name not in self.kept:
                    return leaf
        return None

    # ------------------------------------------------------------------ the first layer
    def _first(self, style: Style, node: Node, place: Region, data: int) -> Style:
        """Biases for inputs that differ in length; bandwidth and phases for oscillating activations."""
        source = self.uses.source(data)
        op = node.op
        if (
            self.graph.leaves.get(source) is None
            or self.graph.leaves[source].role != "input"
            or not isinstance(op, Contract)
            or op.windows
            or not place.curved
        ):
            return style
        if self._oscillates(node, place):
            rate = math.sqrt(self._argument(node, place))
            if rate > 1.0:
                why = f"oscillating activation with inner factor {rate:.3g}: bandwidth {rate:.3g} / sqrt 3 "
                why += "per unit coordinate, phases over a period"
                return Style(std=1 / math.sqrt(3), phase=math.pi / rate, why=why)
        spread = self.length_spread(self.walk.signals[data])
        few = self.graph.values[data].shape[-1] <= FEW_INPUTS
        if few and spread > LENGTH and self._biased(place):
            why = f"{style.why}; " if style.why else ""
            text = (
                f"{why}biases share its level: squared lengths of samples vary by {math.sqrt(spread):.2g} of their mean"
            )
            return replace(style, bias=max(style.bias, BIAS if style.level is not None else LOOSE_BIAS), why=text)
        return style

    def length_spread(self, x: Signal) -> float:
        """Relative variance of the squared norm of a sample (its last axis), from data or the field."""
        if x.data is not None and x.data.ndim >= 2:
            norms = np.sum(np.square(np.abs(np.asarray(x.data, dtype=np.float64))), axis=-1).ravel()
            return float(norms.var() / max(norms.mean() ** 2, 1e-300))
        return 2.0 / x.layout.shape[-1] if x.layout.dims else 0.0

    def _oscillates(self, node: Node, place: Region) -> bool:
        """Bounded, with slopes that do not die out at large levels."""
        scale = self._argument(node, place)
        levels = (1e1 / scale, 1e3 / scale)
        squares: list[float] = []
        for q in levels:
            end = self._replayed(self._probe(node, q), node.output, place)
            if end is None or end.nodes.ndim != 1:
                return False
            squares.append(end.m2)
        near, far = (self._slopes(node, place, q)[1] * m2 / q for q, m2 in zip(levels, squares, strict=True))
        return abs(squares[1] / squares[0] - 1) < 0.3 and far > 0.3 * near

"""Low-rank pairs added beside a weight: ``W x + s B A x``, or ``(W + s B A) x``.

Their product starts at zero, so that the network starts as the one without them, and ``A`` is drawn, so that ``B`` has
a gradient at once (Hu et al. 2022, section 4.1; Hayou et al. 2024 on which of the two to draw).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from anyinit._graph.graph import Node
from anyinit._graph.ops import Contract, Lookup, Permute, Pointwise
from anyinit._solve.roles import MOVES, Uses

Applied = tuple[int, int]  # what a weight is applied to, and the weight's value


@dataclass
class Factors:
    """Pairs found in a graph.

    last: the factor of each pair that is applied last, as a leaf. hidden: the other factor of pairs multiplied before
    they meet data, whose own output is nowhere. sums: positions of the nodes that add a product to what it stands
    beside; no residual sums.
    """

    uses: Uses
    last: set[int] = field(default_factory=set[int])
    hidden: set[int] = field(default_factory=set[int])
    sums: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        beside: dict[int, Applied] = {}  # by a sum's value, the weight that other pairs may be added to as well
        for at, node in enumerate(self.uses.graph.nodes):
            if not isinstance(node.op, Pointwise) or node.op.fn != "add" or len(node.inputs) != 2:
                continue
            live = [i in self.uses.live for i in node.inputs]
            made = [i in self.uses.origin for i in node.inputs]
            if all(live):
                self._of_signals(at, node, beside)
            elif all(made):
                self._of_weights(at, node)

    # ------------------------------------------------------------------ W x + s B A x
    def _of_signals(self, at: int, node: Node, beside: dict[int, Applied]) -> None:
        for one, other in (node.inputs, node.inputs[::-1]):
            whole = beside.get(self.uses.source(one, cuts=False)) or self._applied(one)
            outer = self._applied(other)
            inner = None if outer is None else self._applied(outer[0])
            if whole is None or outer is None or inner is None or whole[0] != inner[0]:
                continue
            leaf = self._leaf(outer[1])
            if leaf is not None and self._size(outer[1]) + self._size(inner[1]) < self._size(whole[1]):
                self.last.add(leaf)
                self.sums.add(at)
                beside[node.output] = whole
                return

    def _applied(self, value: int) -> Applied | None:
        value = self.uses.source(value, cuts=False)
        if value not in self.uses.producer:
            return None
        node = self.uses.graph.nodes[self.uses.producer[value]]
        live = [i for i in node.inputs if i in self.uses.live]
        if len(live) != 1 or not isinstance(node.op, (Contract, Lookup)):
            return None
        weight = next(i for i in node.inputs if i != live[0]) if len(node.inputs) == 2 else None
        return None if weight is None else (self.uses.source(live[0], cuts=False), weight)

    # ------------------------------------------------------------------ (W + s B A) x
    def _of_weights(self, at: int, node: Node) -> None:
        for one, other in (node.inputs, node.inputs[::-1]):
            value = self._bare(other)
            maker = self.uses.producer.get(value)
            product = None if maker is None else self.uses.graph.nodes[maker]
            if product is None or not isinstance(product.op, Contract):
                continue
            first, second = (self._leaf(i) for i in product.inputs)
            if first is None or second is None or first == second or self._bare(one) not in self.uses.graph.leaves:
                continue
            if sum(map(self._size, product.inputs)) < self._size(one):
                outer = self._outer(product)
                self.last.add((first, second)[outer])
                self.hidden.add((second, first)[outer])
                return

    def _bare(self, value: int) -> int:
        """Back through moves and scalings of what is made of parameters."""
        while value in self.uses.producer:
            node = self.uses.graph.nodes[self.uses.producer[value]]
            scaling = isinstance(node.op, Pointwise) and node.op.fn in {"mul", "div"} and len(node.inputs) == 1
            if not scaling and not isinstance(node.op, MOVES):
                return value
            value = node.inputs[0]
        return value

    def _outer(self, product: Node) -> int:
        """Which operand of a product has the outputs of the weight it is added to; the first where nothing tells."""
        graph = self.uses.graph
        value, order = product.output, list(range(len(graph.values[product.output].shape)))
        while len(readers := self.uses.consumers.get(value, ())) == 1:
            node = graph.nodes[readers[0]]
            if isinstance(node.op, Contract):
                labels = node.op.a if node.inputs[0] == value else node.op.b
                kept = [order[d] for d, label in enumerate(labels) if label in node.op.out]
                assert isinstance(product.op, Contract)
                return 0 if kept and product.op.out[kept[0]] in product.op.a else 1
            if isinstance(node.op, Permute):
                order = [order[d] for d in node.op.order]
            elif not isinstance(node.op, Pointwise):
                break
            value = node.output
        return 0

    # ------------------------------------------------------------------
    def _leaf(self, value: int) -> int | None:
        """The one parameter a value is, moved and scaled; None of what is made otherwise or used elsewhere too."""
        leaf = self._bare(value)
        held = self.uses.graph.leaves.get(leaf)
        alone = len(self.uses.consumers.get(leaf, ())) == 1
        return leaf if held is not None and held.role == "param" and alone else None

    def _size(self, value: int) -> int:
        return math.prod(self.uses.graph.values[value].shape)

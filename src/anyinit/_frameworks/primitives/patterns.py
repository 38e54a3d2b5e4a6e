"""Compositions recognised by data flow in the finished node list.

Softmax, normalization, dropout and transposed contractions are written out by JAX as several
equations. They are found from how values are connected, whoever wrote them, and become one node that
keeps the output of the last; what it replaces is left for the pruning that follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from anyinit._frameworks.primitives.lower import strip
from anyinit._frameworks.primitives.norms import Norms
from anyinit._graph.graph import Builder, Node
from anyinit._graph.ops import Contract, Dropout, Op, Permute, Pointwise, Random, Reduce, Reshape, Softmax

Shapes = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class _Flow:
    nodes: list[Node]
    shapes: Shapes
    outputs: set[int]
    place: dict[int, int] = field(default_factory=dict[int, int])
    uses: dict[int, int] = field(default_factory=dict[int, int])

    def count(self) -> None:
        """Where every value is made, and by how many live nodes it is read."""
        self.place = {n.output: i for i, n in enumerate(self.nodes)}
        self.uses = dict.fromkeys(self.outputs, 1)
        for node in reversed(self.nodes):
            if node.output in self.uses:
                for value in node.inputs:
                    self.uses[value] = self.uses.get(value, 0) + 1

    def node(self, value: int) -> Node | None:
        return self.nodes[self.place[value]] if value in self.place else None

    def fn(self, value: int, name: str) -> tuple[int, ...] | None:
        """Operands if the value is ``name`` of tensors only."""
        node = self.node(value)
        good = node is not None and isinstance(node.op, Pointwise) and node.op.fn == name
        return node.inputs if good and node is not None and all(a is None for a in node.op.args) else None  # type: ignore[attr-defined]

    def reduced(self, value: int, kind: str) -> tuple[int, tuple[int, ...]] | None:
        """Source and dimensions if the value is a reduction that kept its dimensions."""
        node, moved = self.node(value), None
        if node is not None and isinstance(node.op, Reshape):
            node, moved = self.node(node.inputs[0]), node.op.shape
        if node is None or not isinstance(node.op, Reduce) or node.op.kind != kind:
            return None
        lost = self.shapes[node.inputs[0]]
        if moved is not None:
            kept = tuple(1 if i in node.op.dims else n for i, n in enumerate(lost))
            return (node.inputs[0], node.op.dims) if strip(kept) == strip(moved) else None
        leading = tuple(range(len(node.op.dims))) == node.op.dims and len(node.op.dims) < len(lost)
        return (node.inputs[0], node.op.dims) if node.op.keepdims or leading else None

    def put(self, node: Node, op: Op, inputs: tuple[int, ...]) -> None:
        self.nodes[self.place[node.output]] = replace(node, op=op, inputs=inputs)


def recognise(builder: Builder, outputs: set[int]) -> None:
    """Rewrite the nodes of a builder; outputs keep their ids."""
    builder.nodes = nodes = Norms(builder).run()
    flow = _Flow(nodes, [v.shape for v in builder.values], outputs)
    flow.count()
    for node in list(nodes):
        if isinstance(node.op, Pointwise) and node.output in flow.uses:
            for find in (_softmax, _log_softmax, _dropout):
                found = find(flow, node)
                if found is not None:
                    flow.put(node, *found)
                    break
    flow.count()
    for node in list(nodes):
        if isinstance(node.op, Permute) and node.output in flow.uses:
            _transposed(flow, node)
    flow.count()
    for node in list(nodes):
        if isinstance(node.op, (Reshape, Contract)) and node.output in flow.uses:
            _unmerged(flow, node)


Found = tuple[Op, tuple[int, ...]] | None


def _shifted(flow: _Flow, value: int) -> int | None:
    """``x`` if the value is ``x`` minus something that does not vary along what follows, such as its maximum."""
    pair = flow.fn(value, "sub")
    if pair is None:
        return None
    top = flow.node(pair[1])
    while top is not None and isinstance(top.op, (Reshape, Permute)):
        top = flow.node(top.inputs[0])
    while (
        top is not None and isinstance(top.op, Pointwise) and top.op.fn in ("where", "maximum") and len(top.inputs) == 1
    ):
        top = flow.node(top.inputs[0])
    found = top is not None and isinstance(top.op, Reduce) and top.op.kind == "max"
    return pair[0] if found and top is not None and _root(flow, top.inputs[0]) == _root(flow, pair[0]) else None


def _root(flow: _Flow, value: int) -> int:
    """What a value was before its entries were only moved."""
    node = flow.node(value)
    while node is not None and isinstance(node.op, (Reshape, Permute)):
        value = node.inputs[0]
        node = flow.node(value)
    return value


def _softmax(flow: _Flow, node: Node) -> Found:
    """exp(x - max x) / sum of the same."""
    pair = flow.fn(node.output, "div")
    total = flow.reduced(pair[1], "sum") if pair else None
    if pair is None or total is None or total[0] != pair[0] or len(total[1]) != 1:
        return None
    power = flow.fn(pair[0], "exp")
    if power is None:
        return None
    source = _shifted(flow, power[0])
    return Softmax(total[1][0]), (power[0] if source is None else source,)


def _log_softmax(flow: _Flow, node: Node) -> Found:
    """(x - max x) - log of the sum of exp(x - max x)."""
    pair = flow.fn(node.output, "sub")
    logs = flow.fn(pair[1], "log") if pair else None
    total = flow.reduced(logs[0], "sum") if logs else None
    if pair is None or total is None or len(total[1]) != 1 or flow.fn(total[0], "exp") != (pair[0],):
        return None
    source = _shifted(flow, pair[0])
    return Softmax(total[1][0], True), (pair[0] if source is None else source,)


# ---- dropout --------------------------------------------------------------------------------
def _dropout(flow: _Flow, node: Node) -> Found:
    """where(mask, x / q, 0) or mask * x / q with a Bernoulli(q) mask used once."""
    assert isinstance(node.op, Pointwise)
    if node.op.fn == "where" and node.op.args == (None, None, 0.0):
        mask, kept = node.inputs
        scaled = flow.node(kept)
        if scaled is None or not isinstance(scaled.op, Pointwise) or len(scaled.inputs) != 1:
            return None
        return _masked(flow, mask, scaled.inputs[0], scaled.op)
    if len(node.inputs) == 1 and node.op.fn in ("div", "mul"):
        product = flow.fn(node.inputs[0], "mul")
        for mask, x in (product, product[::-1]) if product else ():
            found = _masked(flow, mask, x, node.op)
            if found is not None:
                return found
    return None


def _masked(flow: _Flow, mask: int, x: int, scaled: Pointwise) -> Found:
    drawn = flow.node(mask)
    if drawn is None or not isinstance(drawn.op, Random) or drawn.op.kind != "bernoulli" or flow.uses.get(mask, 0) != 1:
        return None
    q, by = drawn.op.params[0], next((a for a in scaled.args if a is not None), None)
    if (
        by is None
        or scaled.fn not in ("div", "mul")
        or not math.isclose(by if scaled.fn == "div" else 1 / by, q, rel_tol=1e-5)
    ):
        return None
    shape, own = flow.shapes[x], flow.shapes[mask]
    own = (1,) * (len(shape) - len(own)) + own
    dims = tuple(i for i, (n, m) in enumerate(zip(shape, own, strict=True)) if m == n != 1 or n == 1)
    return Dropout(round(1 - q, 9), None if len(dims) == len(shape) else dims), (x,)


# ---- contractions ---------------------------------------------------------------------------
def _transposed(flow: _Flow, node: Node) -> None:
    """A contraction read only through a transpose is made in the transposed order."""
    assert isinstance(node.op, Permute)
    source = flow.node(node.inputs[0])
    if source is None or not isinstance(source.op, Contract) or flow.uses.get(source.output, 0) != 1:
        return
    out = tuple(source.op.out[i] for i in node.op.order)
    flow.put(node, replace(source.op, out=out), source.inputs)


def _unmerged(flow: _Flow, node: Node) -> None:
    """A contraction of a weight whose dimensions were merged for it and are taken apart right after is one of the
    weight as it is: heads by a matrix product. So is one that sums over a dimension merged on both sides."""
    source = node if isinstance(node.op, Contract) else flow.node(node.inputs[0])
    if source is None or not isinstance(source.op, Contract) or source.op.windows:
        return
    op, parts = source.op, dict[int, tuple[int, ...]]()
    if source is not node and flow.uses.get(source.output, 0) != 1:
        return
    sides = list[tuple[int, tuple[int, ...], list[tuple[int, ...]]]]()
    for value, labels in zip(source.inputs, (op.a, op.b), strict=True):
        made = flow.node(value)
        inner = made.inputs[0] if made is not None and isinstance(made.op, Reshape) else value
        groups = merged(flow.shapes[inner], flow.shapes[value])
        if groups is None:
            inner, groups = value, [(n,) for n in flow.shapes[value]]
        for label, sizes in zip(labels, groups, strict=True):
            if parts.setdefault(label, sizes) != sizes:
                return
        sides.append((inner, labels, groups))
    if all(len(sizes) == 1 for sizes in parts.values()):
        return
    fresh = iter(range(len(op.a) + len(op.b) + sum(map(len, parts.values()))))
    new = {label: tuple(next(fresh) for _ in sizes) for label, sizes in parts.items()}
    shape = tuple(n for label in op.out for n in parts[label])
    if shape != flow.shapes[node.output]:
        return
    a, b, out = (tuple(i for label in labels for i in new[label]) for labels in (op.a, op.b, op.out))
    flow.put(node, Contract(a, b, out), (sides[0][0], sides[1][0]))


def merged(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, ...]] | None:
    """The sizes of ``old`` that each dimension of ``new`` merges, or ``None`` if it does more than merge."""
    left, groups = list(old), list[tuple[int, ...]]()
    for n in new:
        taken = list[int]()
        while left and math.prod(taken) * left[0] <= n and (math.prod(taken) < n or not taken):
            taken.append(left.pop(0))
        if math.prod(taken) != n or not taken:
            return None
        groups.append(tuple(taken))
    return None if left else groups

"""Interpolations written with a difference: ``a + g (b - a)`` becomes ``(1 - g) a + g b``.

The two are equal, but in the first form the terms cancel: whoever follows each operand's statistics alone
counts ``a`` twice. In the second the operands are distinct, as in any spelling of a gated update.
"""

from __future__ import annotations

from dataclasses import replace

from anyinit._graph.graph import Graph, Node, Value
from anyinit._graph.ops import Pointwise

Made = dict[int, Node]


def blended(graph: Graph) -> Graph:
    """The graph with interpolations spelled by their two weights."""
    first = len(graph.values) if graph.observable is None else graph.observable
    made: Made = {n.output: n for n in graph.nodes}
    values, nodes = list(graph.values), list[Node]()

    def add(like: Node, op: Pointwise, inputs: tuple[int, ...], shape: tuple[int, ...]) -> int:
        values.append(Value(shape, graph.values[like.output].kind))
        nodes.append(replace(like, op=op, inputs=inputs, output=len(values) - 1, step=-1))
        return len(values) - 1

    for node in graph.nodes:
        found = _interpolation(graph, made, node)
        if found is not None:
            a, b, gate = found
            shape = graph.values[node.output].shape
            rest = add(node, Pointwise("sub", (1.0, None)), (gate,), graph.values[gate].shape)
            left = add(node, Pointwise("mul", (None, None)), (a, rest), shape)
            right = add(node, Pointwise("mul", (None, None)), (b, gate), shape)
            node = replace(node, op=Pointwise("add", (None, None)), inputs=(left, right))
        nodes.append(node)
    return replace(graph, values=tuple(values), nodes=tuple(nodes), observable=first)


def _two(made: Made, value: int, fn: str) -> tuple[int, int] | None:
    node = made.get(value)
    if node is None or node.op != Pointwise(fn, (None, None)) or len(node.inputs) != 2:
        return None
    return node.inputs[0], node.inputs[1]


def _interpolation(graph: Graph, made: Made, node: Node) -> tuple[int, int, int] | None:
    """``(a, b, g)`` of ``a + g (b - a)`` or ``a - g (a - b)``, the three of them computed."""
    for fn in ("add", "sub"):
        if node.op != Pointwise(fn, (None, None)):
            continue
        u, v = node.inputs
        for a, product in ((u, v), (v, u)) if fn == "add" else ((u, v),):
            pair = _two(made, product, "mul")
            if pair is None:
                continue
            for gate, difference in (pair, pair[::-1]):
                ends = _two(made, difference, "sub")
                ends = ends if ends is None or fn == "add" else ends[::-1]
                shapes = {graph.values[i].shape for i in (node.output, a, difference)}
                if ends is not None and ends[1] == a and ends[0] != a and gate in made and len(shapes) == 1:
                    return a, ends[0], gate
    return None

"""How many terms a weight's operation adds up, per output (fan_in) and per input (fan_out)."""

from __future__ import annotations

import math

from anyinit._graph.graph import Graph, Node
from anyinit._graph.ops import Contract


def fan_in(graph: Graph, node: Node) -> int:
    """Products summed into one output of a contraction: of one group, zeros between strides left out."""
    op = node.op
    assert isinstance(op, Contract)
    count = 1.0
    hidden = {w.a for w in op.windows}
    for lab, n in zip(op.a, graph.values[node.inputs[0]].shape, strict=True):
        if lab not in op.out and lab not in hidden:
            count *= n
    for w in op.windows:
        count *= w.size / w.spread
    return max(round(count), 1)


def own_axes(op: Contract, slot: int) -> list[tuple[int, int]]:
    """``(axis of the weight, axis of the output)`` of every output dimension that the weight in ``slot`` makes."""
    mine, other = (op.b, op.a) if slot else (op.a, op.b)
    taps = {w.tap for w in op.windows} | {w.a for w in op.windows}
    own = ((k, lab) for k, lab in enumerate(mine) if lab in op.out and lab not in other and lab not in taps)
    return [(k, op.out.index(lab)) for k, lab in own]


def fan_out(graph: Graph, node: Node, slot: int) -> int:
    """Outputs of one group of the weight in input ``slot``, without the taps of a window."""
    assert isinstance(node.op, Contract)
    shape = graph.values[node.inputs[slot]].shape
    return math.prod(shape[k] for k, _ in own_axes(node.op, slot)) or 1


def receptive(node: Node) -> int:
    """Taps of a convolution's window; 1 of a plain product."""
    assert isinstance(node.op, Contract)
    return math.prod(w.size for w in node.op.windows)

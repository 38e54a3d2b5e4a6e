"""The reverse walk: second moments of the gradient of ``sum(output * c)``, ``c`` standard normal.

Adjoint rules are applied over the forward graph, not over a trace of anyone's autograd. Gradients are
taken as independent of the forward values they meet (Yang & Schoenholz 2017), which is exact to
leading order in width for weights that are used once; along elementwise regions and sums the place of
the gradient on the values' distribution is kept (see :mod:`anyinit._solve.tilt`).
"""

from __future__ import annotations

import numpy as np

from anyinit._core.field import Nodes, Signal
from anyinit._core.tables import Table
from anyinit._graph.graph import FLOAT, Graph, Node
from anyinit._graph.ops import Contract, Normalize, Pointwise
from anyinit._rules import ADJOINT
from anyinit._rules.pointwise import edges
from anyinit._rules.reduce import unit_growth
from anyinit._solve.propagate import Walk
from anyinit._solve.roles import MOVES
from anyinit._solve.tilt import Tilts


def gradients(graph: Graph, walk: Walk) -> dict[int, Table]:
    """Gradient table of every value the outputs depend on, in the layout of the value's signal."""
    signals = walk.signals
    layouts = {i: s.layout for i, s in signals.items()}
    grads: dict[int, Table] = {}
    tilts = Tilts()
    undone: dict[int, float] = {}  # growth of a gradient that the weights before it take back
    for out in dict.fromkeys(graph.outputs):
        if graph.values[out].kind == FLOAT and out in signals:
            table = np.zeros(1 << layouts[out].groups)
            table[0] = 1.0
            _add(grads, out, table)
            tilts.add(out, signals[out], 1.0)
    for node in reversed(graph.nodes):
        grad = grads.get(node.output)
        if grad is None or not grad.any():
            continue
        y = signals[node.output]
        if isinstance(node.op, Pointwise) and node.output not in y.sources:
            for source, table in edges(node.op, y, layouts, grad).items():
                if node.op.fn == "add" and node.output in undone:
                    undone[source] = undone[node.output]
                src = y.sources[source]
                factor, tilt, nodes = tilts.through(y, node.output, src.deriv, src.nodes)
                table[0] *= factor
                tilts.add(source, signals[source], float(table[0]), tilt, nodes)
                _add(grads, source, table)
            continue
        xs = tuple(signals[i] for i in node.inputs)
        tables = ADJOINT[type(node.op)](node.op, xs, y, grad)
        drawn = walk.ops.get(node.output)
        if drawn is not None:  # the signal passes through what is drawn, the weight's gradient is whole
            tables = (ADJOINT[type(drawn)](drawn, xs, y, grad)[0], *tables[1:])
        tables = _taken_back(node, xs, tables, walk, undone)
        for slot, (i, table) in enumerate(zip(node.inputs, tables, strict=True)):
            if table is not None:
                tilts.add(i, signals[i], float(table[0]), *_carried(node, xs, slot, y, tilts))
                _add(grads, i, table)
    return grads


def _taken_back(
    node: Node, xs: tuple[Signal, ...], tables: tuple[Table | None, ...], walk: Walk, undone: dict[int, float]
) -> tuple[Table | None, ...]:
    """A norm of single units makes gradients grow with the fluctuation of each unit's weights, ``E 1/|w|^2``;
    behind these weights the growth is gone (``|w|^2 / |w|^2``). Pure moves hand the factor on."""
    if isinstance(node.op, Normalize):
        undone[node.inputs[0]] = unit_growth(node.op, xs[0])
    elif (factor := undone.get(node.output, 1.0)) != 1.0:
        if isinstance(node.op, Contract):
            return tuple(
                t if t is None or walk.fixed(i) else t / factor for i, t in zip(node.inputs, tables, strict=True)
            )
        if isinstance(node.op, MOVES):
            undone[node.inputs[0]] = factor
    return tables


def _carried(
    node: Node, xs: tuple[Signal, ...], slot: int, y: Signal, tilts: Tilts
) -> tuple[Nodes | None, Nodes | None]:
    """Tilt handed on by sums and by pure moves, with the values it belongs to; other operations spread a
    gradient evenly."""
    if isinstance(node.op, Pointwise) and node.op.fn == "add" and len(xs) == 2:
        return tilts.of_sum(node.output, y, xs[slot], xs[1 - slot], 1.0) or (None, None)
    if isinstance(node.op, MOVES) and xs[0].nodes.shape == y.nodes.shape:
        return tilts.tilt(node.output), None
    return None, None


def _add(grads: dict[int, Table], i: int, table: Table) -> None:
    """Contributions of different consumers are uncorrelated: they add."""
    grads[i] = grads[i] + table if i in grads else table

"""The reverse walk: second moments of the gradient of ``sum(output * c)``, ``c`` standard normal.

Adjoint rules are applied over the forward graph, not over a trace of anyone's autograd. Gradients are
taken as independent of the forward values they meet (Yang & Schoenholz 2017), which is exact to
leading order in width for weights that are used once.
"""

from __future__ import annotations

import numpy as np

from anyinit._core.tables import Table, conform
from anyinit._graph.graph import FLOAT, Graph
from anyinit._graph.ops import Pointwise
from anyinit._rules import ADJOINT
from anyinit._rules.pointwise import edges
from anyinit._solve.propagate import Walk


def gradients(graph: Graph, walk: Walk) -> dict[int, Table]:
    """Gradient table of every value the outputs depend on, in the layout of the value's signal."""
    signals = walk.signals
    layouts = {i: s.layout for i, s in signals.items()}
    grads: dict[int, Table] = {}
    for out in dict.fromkeys(graph.outputs):
        if graph.values[out].kind == FLOAT and out in signals:
            table = np.zeros(1 << layouts[out].groups)
            table[0] = 1.0
            _add(grads, out, table)
    for node in reversed(graph.nodes):
        grad = grads.get(node.output)
        if grad is None or not grad.any():
            continue
        y = signals[node.output]
        if isinstance(node.op, Pointwise) and node.output not in y.sources:
            for source, table in edges(node.op, y, layouts, grad).items():
                _add(grads, source, table)
            continue
        xs = tuple(signals[i] for i in node.inputs)
        tables = ADJOINT[type(node.op)](node.op, xs, y, grad)
        drawn = walk.ops.get(node.output)
        if drawn is not None:  # the signal passes through what is drawn, the weight's gradient is whole
            tables = (ADJOINT[type(drawn)](drawn, xs, y, grad)[0], *tables[1:])
        for i, table in zip(node.inputs, tables, strict=True):
            if table is not None:
                _add(grads, i, table)
    return grads


def _add(grads: dict[int, Table], i: int, table: Table) -> None:
    """Contributions of different consumers are uncorrelated: they add."""
    grads[i] = grads[i] + table if i in grads else table


__all__ = ["conform", "gradients"]

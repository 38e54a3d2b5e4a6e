"""Small networks written as graphs, solved and run with NumPy alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyinit._graph import interpret, ops
from anyinit._graph.graph import FLOAT, Builder, Graph, Leaf
from anyinit._graph.rewrite import canonical
from anyinit._solve.analytic import Solver
from anyinit._solve.apply import materialize
from anyinit._solve.build import build
from anyinit._solve.plan import Part, Plan
from anyinit._solve.propagate import Walk


@dataclass
class Net:
    """A builder with the layers of a network; every method returns a value id."""

    made: Builder = field(default_factory=Builder)

    def shape(self, x: int) -> tuple[int, ...]:
        return self.made.values[x].shape

    def input(self, *shape: int, kind: str = FLOAT, name: str = "input.0") -> int:
        return self.made.leaf(Leaf("input", name), shape, kind)

    def param(self, name: str, *shape: int) -> int:
        return self.made.leaf(Leaf("param", name, trainable=True), shape)

    def act(self, fn: str, x: int, *args: float | None) -> int:
        return self.made.add(ops.Pointwise(fn, args or (None,)), (x,), self.shape(x))

    def times(self, x: int, factor: float) -> int:
        return self.act("mul", x, None, factor)

    def both(self, fn: str, x: int, y: int) -> int:
        shape = np.broadcast_shapes(self.shape(x), self.shape(y))
        return self.made.add(ops.Pointwise(fn, (None, None)), (x, y), shape)

    def apply(self, x: int, weight: int) -> int:
        """``x @ weight.T`` along the last axis."""
        rows, n = self.shape(x)[:-1], len(self.shape(x))
        op = ops.Contract(tuple(range(n)), (n, n - 1), (*range(n - 1), n))
        return self.made.add(op, (x, weight), (*rows, self.shape(weight)[0]))

    def dense(self, x: int, name: str, out: int, *, bias: bool = True) -> int:
        y = self.apply(x, self.param(f"{name}.weight", out, self.shape(x)[-1]))
        return self.both("add", y, self.param(f"{name}.bias", out)) if bias else y

    def norm(self, x: int) -> int:
        return self.made.add(ops.Normalize((len(self.shape(x)) - 1,), 1e-5), (x,), self.shape(x))

    def op(self, op: ops.Op, inputs: tuple[int, ...], shape: tuple[int, ...]) -> int:
        return self.made.add(op, inputs, shape)

    def graph(self, *outputs: int) -> Graph:
        made = self.made
        return canonical(Graph(tuple(made.values), dict(made.leaves), tuple(made.nodes), outputs))


@dataclass
class Solved:
    """A graph with what was decided."""

    graph: Graph
    solver: Solver
    plan: Plan

    def part(self, name: str) -> Part:
        return next(w for w in self.plan.weights if w.name == name).parts[0]

    def weights(self, seed: int = 0) -> dict[str, np.ndarray]:
        fresh = Plan(seed, self.plan.weights)
        return materialize(fresh, lambda names: {n: np.zeros(self.shape(n)) for n in names})

    def shape(self, name: str) -> tuple[int, ...]:
        return next(w.shape for w in self.plan.weights if w.name == name)


def solve(graph: Graph, inputs: Mapping[str, Any] | None = None, *, seed: int = 0, **options: Any) -> Solved:
    """Scales and plan of a graph; ``options`` as of the solver."""
    walk = Walk(graph, lambda i, leaf: solver.param(i, leaf), inputs or {})
    shapes = {leaf.name: graph.values[i].shape for i, leaf in graph.params()}
    kept = options.pop("kept", {})
    solver = Solver(graph, walk, lambda name: np.full(shapes[name], 0.25), kept=kept, **options)
    solver.solve()
    return Solved(graph, solver, build(solver, seed, kept))


def chain(fn: str, depth: int, width: int, *, into: int | None = None, rows: int = 64, bias: bool = True) -> Graph:
    """``depth`` layers of one activation and a linear head of eight outputs."""
    net = Net()
    x = net.input(rows, width if into is None else into)
    for k in range(depth):
        x = net.act(fn, net.dense(x, str(k), width, bias=bias), *((None, 0.1) if fn == "leaky_relu" else ()))
    return net.graph(net.dense(x, "head", 8, bias=bias))


@dataclass
class NumpyRuntime:
    """Runs a graph with NumPy: as much of a runtime as measuring needs."""

    graph: Graph
    inputs: Mapping[str, Any]

    def run(self, weights: Mapping[str, Any], watch: Collection[int], visit: Any) -> None:
        values: dict[int, np.ndarray] = {}
        for i, leaf in self.graph.leaves.items():
            data = leaf.data if leaf.data is not None else {**self.inputs, **weights}[leaf.name]
            values[i] = np.asarray(data, dtype=np.float64)
        for node in self.graph.nodes:
            ins = [values[i] for i in node.inputs]
            values[node.output] = interpret.apply(node.op, ins, self.graph.values[node.output].shape)
            if node.output in watch:
                changed = visit(node.output, values[node.output])
                values[node.output] = values[node.output] if changed is None else np.asarray(changed)
        self.last = values


def level(x: Any) -> float:
    return float(np.mean(np.square(np.asarray(x, dtype=np.float64))))


__all__ = ["Net", "NumpyRuntime", "Solved", "chain", "level", "solve"]

"""Graphs as text, so that a network recorded in one framework can be compared with its twin in another environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anyinit._graph import ops
from anyinit._graph.graph import Graph, Leaf, Node, Value

FOLDER = Path(__file__).parent / "twins"
NAMES = ("lecture", "mlp", "cnn", "gpt")
IDS = np.random.default_rng(0).integers(0, 50, (2, 16))
"""The token ids both transformers are fed."""


def dump(graph: Graph) -> str:
    """One line a leaf, one a node, one for the outputs; nothing that depends on the framework's own names."""
    lines = list[str]()
    for value, leaf in sorted(graph.leaves.items()):
        data = None if leaf.data is None else np.asarray(leaf.data).tolist()
        lines.append(
            repr((value, leaf.role, leaf.name, tuple(graph.values[value].shape), graph.values[value].kind, data))
        )
    for node in graph.nodes:
        out = graph.values[node.output]
        lines.append(repr((node.output, node.op, node.inputs, tuple(out.shape), out.kind)))
    lines.append(repr(graph.outputs))
    return "\n".join(lines) + "\n"


def load(name: str) -> Graph:
    """The saved graph of a twin."""
    *lines, outputs = (eval(line, dict(vars(ops))) for line in saved(name).splitlines())
    values, leaves, nodes = dict[int, Value](), dict[int, Leaf](), list[Node]()
    for line in lines:
        if isinstance(line[1], str):
            at, role, label, shape, kind, data = line
            leaves[at] = Leaf(role, label, trainable=role == "param", data=None if data is None else np.asarray(data))
        else:
            at, op, inputs, shape, kind = line
            nodes.append(Node(op, inputs, at))
        values[at] = Value(shape, kind)
    blank = Value(())
    return Graph(tuple(values.get(i, blank) for i in range(max(values) + 1)), leaves, tuple(nodes), outputs)


def saved(name: str) -> str:
    """The text of a saved graph."""
    return (FOLDER / f"{name}.txt").read_text()


class Recorded:
    """A runtime that has nothing but a graph: enough for a plan."""

    def __init__(self, graph: Graph, arrays: dict[str, Any]) -> None:
        self.graph, self.arrays, self.batch_given = graph, arrays, bool(arrays)

    def record(self) -> Graph:
        return self.graph

    def input_arrays(self) -> dict[str, Any]:
        return self.arrays

    def parameters(self) -> list[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]]:
        return [
            (leaf.name, leaf.aliases, self.graph.values[i].shape, leaf.dtype, True) for i, leaf in self.graph.params()
        ]

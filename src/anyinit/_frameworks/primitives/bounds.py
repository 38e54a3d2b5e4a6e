"""What a model's tables say of its integer inputs."""

from __future__ import annotations

from collections.abc import Sequence

from anyinit._graph.graph import INT, Graph
from anyinit._graph.ops import Gather, Lookup, Pointwise


def integer_bounds(graph: Graph, inputs: Sequence[str]) -> dict[int, int]:
    """For every integer input the rows of the smallest table it is looked up in."""
    names, reach = list(inputs), dict[int, set[int]]()
    out: dict[int, int] = {}
    for value, leaf in graph.leaves.items():
        if leaf.role == "input" and graph.values[value].kind == INT:
            reach[value] = {names.index(leaf.name)}
    for node in graph.nodes:
        sources = set[int]().union(*(reach.get(i, set[int]()) for i in node.inputs))
        if isinstance(node.op, (Lookup, Gather)):
            rows = graph.values[node.inputs[0]].shape[0 if isinstance(node.op, Lookup) else node.op.dim]
            for place in reach.get(node.inputs[1], ()):
                out[place] = min(out.get(place, rows), rows)
        elif isinstance(node.op, Pointwise) and node.op.fn == "eq" and len(node.inputs) == 2 and sources:
            classes = max(graph.values[i].shape[-1] for i in node.inputs if graph.values[i].shape)
            out.update((p, min(out.get(p, classes), classes)) for p in sources)
        elif graph.values[node.output].kind == INT and sources:
            reach[node.output] = sources
    return out

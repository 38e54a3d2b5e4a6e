"""The graph: values, leaves and nodes, checked when built. Knows no framework and no statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._graph.ops import Op

FLOAT, COMPLEX, INT, BOOL = "float", "complex", "int", "bool"


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor of one run: shape and kind of number (``float``, ``complex``, ``int``, ``bool``)."""

    shape: tuple[int, ...]
    kind: str = FLOAT


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A value that no node produces.

    ``role``: ``input`` (user data), ``param`` (trainable or frozen parameter), ``buffer`` (state
    of the model that is no parameter) or ``const`` (made during the run from no data).
    ``name`` is the first full name (``layer1.0.conv1.weight``; inputs ``input.0`` or their keyword),
    ``aliases`` further names of the same storage. ``dtype`` is the framework's name for the type
    (``float32``, ``bfloat16``). ``data`` holds the values where they are known without running the
    model (constants, buffers, and frozen or kept parameters when they are read).
    """

    role: str
    name: str
    dtype: str = "float32"
    trainable: bool = False
    aliases: tuple[str, ...] = ()
    data: NDArray[np.generic] | None = None
    view: tuple[tuple[Any, ...], ...] = ()
    part: str = ""
    whole: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One executed operation. ``scope`` is the path of the module that ran it (a label only);
    ``call`` the framework's own name of the operation, for messages; ``step`` its ordinal among
    the framework calls of the run, so that a runtime can find it again (-1: made by lowering and
    not observable on its own)."""

    op: Op
    inputs: tuple[int, ...]
    output: int
    scope: str = ""
    call: str = ""
    step: int = -1


@dataclass(frozen=True, slots=True)
class Graph:
    """A recorded run in execution order.

    ``values[i]`` is value ``i``; ``leaves`` maps value ids to leaves; ``outputs`` are the ids the
    model returned, in the order of its flattened output. ``notes`` are facts for the report
    (``recorded on real tensors because ...``).
    """

    values: tuple[Value, ...]
    leaves: Mapping[int, Leaf]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()  # parameters of the model that this run never touched
    summed: Mapping[int, tuple[int, ...]] | None = None  # dimensions that a parameter's first contraction sums over
    observable: int | None = None  # values from this id on were made by rewriting: no runtime sees them

    def __post_init__(self) -> None:
        known = set(self.leaves)
        for position, node in enumerate(self.nodes):
            missing = [i for i in node.inputs if i not in known]
            if missing or node.output in known or not 0 <= node.output < len(self.values):
                raise ValueError(f"node {position} ({node.op}) breaks the graph: {node}")
            known.add(node.output)
        if not set(self.outputs) <= known:
            raise ValueError("an output of the graph is produced by nothing")

    def params(self) -> Iterator[tuple[int, Leaf]]:
        """Value id and leaf of every parameter, in order of id."""
        return ((i, leaf) for i, leaf in sorted(self.leaves.items()) if leaf.role == "param")


@dataclass(slots=True)
class Builder:
    """Mutable maker of a :class:`Graph`; importers use nothing else."""

    values: list[Value] = field(default_factory=list[Value])
    leaves: dict[int, Leaf] = field(default_factory=dict[int, Leaf])
    nodes: list[Node] = field(default_factory=list[Node])
    notes: list[str] = field(default_factory=list[str])
    unused: list[str] = field(default_factory=list[str])
    scope: str = ""
    call: str = ""
    step: int = -1

    def leaf(self, leaf: Leaf, shape: tuple[int, ...], kind: str = FLOAT) -> int:
        """Add a leaf; returns its value id."""
        self.values.append(Value(tuple(shape), kind))
        self.leaves[len(self.values) - 1] = leaf
        return len(self.values) - 1

    def add(self, op: Op, inputs: tuple[int, ...], shape: tuple[int, ...], kind: str = FLOAT) -> int:
        """Add a node under the current scope, call and step; returns the id of its output."""
        self.values.append(Value(tuple(int(n) for n in shape), kind))
        out = len(self.values) - 1
        self.nodes.append(Node(op, tuple(inputs), out, self.scope, self.call, self.step))
        return out

    def shape(self, value: int) -> tuple[int, ...]:
        """Shape of a value."""
        return self.values[value].shape

    def finish(self, outputs: tuple[int, ...]) -> Graph:
        """The checked, immutable graph."""
        values, nodes, notes = tuple(self.values), tuple(self.nodes), tuple(self.notes)
        return Graph(values, dict(self.leaves), nodes, outputs, notes, tuple(self.unused))

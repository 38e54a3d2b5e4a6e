"""A flat program as a graph: translate, recognise, renumber."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from anyinit._frameworks.primitives import (
    translate_contract,
    translate_index,
    translate_other,
    translate_pointwise,
    translate_random,
    translate_reduce,
    translate_shape,
)
from anyinit._frameworks.primitives.flat import PARAM, Flat
from anyinit._frameworks.primitives.lower import KEY, Bound, Lowering, kind_of
from anyinit._frameworks.primitives.patterns import recognise
from anyinit._graph.graph import Graph, Leaf, Node, Value

FAMILIES = (
    translate_contract, translate_index, translate_other, translate_pointwise, translate_random, translate_reduce,
    translate_shape,
)  # fmt: skip
"""Importing these registers their translators."""


SHOWN = 4
"""Most closed-over arrays that a note describes."""


class Slotted(Protocol):
    """What is asked of a slot of a model: an array with a name and a role."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Recording:
    """A graph and the program it was made from; ``observed`` maps value ids to variables of ``flat``,
    ``tree`` is the structure of the model's output."""

    graph: Graph
    flat: Flat
    observed: dict[int, int]
    tree: Any


def recorded(
    flat: Flat, slots: Sequence[Slotted], inputs: Sequence[str], notes: Sequence[str] = (), tree: Any = None
) -> Recording:
    """The graph of a flat program whose inputs are ``slots``, then the arrays named ``inputs``."""
    low = Lowering(flat)
    _leaves(low, slots, inputs)
    for position, step in enumerate(flat.steps):
        low.step(position, step)
    outputs = [low.full(low.read(v)) for v in flat.outputs if low.read(v).kind not in (KEY, "bits")]
    _notes(low, notes)
    recognise(low.builder, set(outputs))
    graph, observed = compact(low, outputs, slots)
    return Recording(graph, flat, observed, tree)


def _leaves(low: Lowering, slots: Sequence[Slotted], inputs: Sequence[str]) -> None:
    """A leaf for every slot of the model and every array of the batch."""
    names = [*(s.name for s in slots), *inputs]
    for place, (var, name) in enumerate(zip(low.flat.inputs, names, strict=True)):
        aval, kind = low.flat.avals[var], kind_of(low.flat.avals[var].dtype)
        slot = slots[place] if place < len(slots) else None
        if kind == KEY:
            low.env[var] = Bound(aval.shape, KEY)
            continue
        role = "input" if slot is None else slot.role
        leaf = Leaf(role, name, str(aval.dtype), role == PARAM, slot.aliases if slot else ())
        value = low.builder.leaf(leaf, aval.shape, kind)
        low.env[var] = Bound(aval.shape, kind, value)
        low.observed[value] = var
        if role == PARAM:
            low.trained.add(value)
        elif role == "input":
            low.fed.add(value)


def _notes(low: Lowering, notes: Sequence[str]) -> None:
    low.builder.notes[:0] = [*notes, *low.flat.notes]
    held = [v for v in low.flat.closed if v in low.env]
    if held:
        shapes = ", ".join(str(low.flat.avals[v].shape) for v in held[:SHOWN]) + (", ..." if len(held) > SHOWN else "")
        what = f"an array of shape {shapes} is" if len(held) == 1 else f"{len(held)} arrays of shapes {shapes} are"
        low.builder.notes.append(
            f"{what} closed over by the model and cannot be reached: weights have to be parameters"
        )


def compact(low: Lowering, outputs: Sequence[int], slots: Sequence[Slotted]) -> tuple[Graph, dict[int, int]]:
    """Drop what no output needs and renumber by first use, leaves right before the node that reads them."""
    needed, kept = set(outputs), list[Node]()
    for node in reversed(low.builder.nodes):
        if node.output in needed:
            needed.update(node.inputs)
            kept.append(node)
    values, leaves, new = list[Value](), dict[int, Leaf](), dict[int, int]()

    def number(old: int) -> int:
        if old not in new:
            new[old] = len(values)
            values.append(low.builder.values[old])
            if old in low.builder.leaves:
                leaves[new[old]] = low.builder.leaves[old]
        return new[old]

    for old, leaf in low.builder.leaves.items():
        if leaf.role == "input":
            number(old)
    nodes = [replace(n, inputs=tuple(map(number, n.inputs)), output=number(n.output)) for n in reversed(kept)]
    ends = tuple(map(number, outputs))
    used = {leaf.name for leaf in leaves.values()}
    unused = tuple(s.name for s in slots if s.role == PARAM and s.name not in used)
    graph = Graph(tuple(values), leaves, tuple(nodes), ends, tuple(low.builder.notes), unused)
    return graph, {new[old]: var for old, var in low.observed.items() if old in new}

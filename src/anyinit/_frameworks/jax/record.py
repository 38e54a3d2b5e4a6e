"""One run of a JAX model as a graph: trace abstractly, flatten, translate, recognise, renumber."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from anyinit._frameworks.jax import (
    translate_contract,
    translate_index,
    translate_other,
    translate_pointwise,
    translate_random,
    translate_reduce,
    translate_shape,
)
from anyinit._frameworks.jax.flatten import Decide, Flat, flatten
from anyinit._frameworks.jax.inputs import Batch
from anyinit._frameworks.jax.lower import KEY, Bound, Lowering, kind_of
from anyinit._frameworks.jax.patterns import recognise
from anyinit._frameworks.jax.program import PARAM, Program
from anyinit._graph.graph import Graph, Leaf, Node, Value

FAMILIES = (
    translate_contract, translate_index, translate_other, translate_pointwise, translate_random, translate_reduce,
    translate_shape,
)  # fmt: skip
"""Importing these registers their translators."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A graph and the program it was made from; ``observed`` maps value ids to variables of ``flat``,
    ``tree`` is the structure of the model's output."""

    graph: Graph
    flat: Flat
    observed: dict[int, int]
    tree: Any


def trace(program: Program, batch: Batch) -> tuple[Any, Any]:
    """The closed jaxpr of one run on shapes alone, and the structure of its output."""
    args, kwargs = batch.abstract()
    values = [jax.ShapeDtypeStruct(s.value.shape, s.value.dtype) for s in program.slots]
    closed, out = jax.make_jaxpr(program.call, return_shape=True)(values, args, kwargs)
    return closed, jax.tree_util.tree_structure(out)


def record(program: Program, batch: Batch, decide: Decide | None = None) -> Recording:
    """Record one run without data; ``decide`` is asked only where control flow depends on data."""
    closed, tree = trace(program, batch)
    return translate(program, batch, flatten(closed, decide), tree)


def translate(program: Program, batch: Batch, flat: Flat, tree: Any) -> Recording:
    """The graph of a flat program."""
    low = Lowering(flat)
    _leaves(low, program, batch)
    for position, step in enumerate(flat.steps):
        low.step(position, step)
    outputs = [low.full(low.read(v)) for v in flat.outputs if low.read(v).kind not in (KEY, "bits")]
    _notes(low, program)
    recognise(low.builder, set(outputs))
    graph, observed = compact(low, outputs, program)
    return Recording(graph, flat, observed, tree)


def _leaves(low: Lowering, program: Program, batch: Batch) -> None:
    """A leaf for every slot of the model and every array of the batch."""
    names = [s.name for s in program.slots] + batch.names()
    for place, (var, name) in enumerate(zip(low.flat.inputs, names, strict=True)):
        aval, kind = low.flat.avals[var], kind_of(low.flat.avals[var].dtype)
        slot = program.slots[place] if place < len(program.slots) else None
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


def _notes(low: Lowering, program: Program) -> None:
    low.builder.notes[:0] = [*program.notes, *low.flat.notes]
    held = [low.flat.closed[v] for v in low.flat.closed if v in low.env]
    if held:
        low.builder.notes.append(
            f"{len(held)} arrays ({sum(held)} numbers) are closed over by the model and cannot be set: "
            "pass them as parameters"
        )


def compact(low: Lowering, outputs: Sequence[int], program: Program) -> tuple[Graph, dict[int, int]]:
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
    unused = tuple(s.name for s in program.slots if s.role == PARAM and s.name not in used)
    graph = Graph(tuple(values), leaves, tuple(nodes), ends, tuple(low.builder.notes), unused)
    return graph, {new[old]: var for old, var in low.observed.items() if old in new}

"""One run of a JAX model as a graph: trace abstractly, flatten, translate."""

from __future__ import annotations

from typing import Any

import jax

from anyinit._frameworks.jax.flatten import Decide, Flat, flatten
from anyinit._frameworks.jax.inputs import Batch
from anyinit._frameworks.jax.program import Program
from anyinit._frameworks.primitives.record import Recording, recorded


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
    return recorded(flat, program.slots, batch.names(), program.notes, tree)


__all__ = ["Recording", "record", "trace", "translate"]

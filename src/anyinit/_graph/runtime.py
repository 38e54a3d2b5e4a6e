"""What the solver may ask of a framework: declared here, implemented in ``_frameworks``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anyinit._graph.graph import Graph

Array = NDArray[np.generic]
Visit = Callable[[int, Array], Array | None]


class Runtime(Protocol):
    """One model with its input. Every method leaves the model, its buffers, flags and the global
    random state exactly as they were, except ``write``."""

    def record(self) -> Graph:
        """The graph of one run in training mode; cached."""
        ...

    def parameters(self) -> list[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]]:
        """``(name, aliases, shape, dtype, trainable)`` of every parameter."""
        ...

    def input_arrays(self) -> dict[str, Array]:
        """The caller's batch by the names of the input leaves; empty when only a shape was given."""
        ...

    def inputs_used(self) -> dict[str, Array]:
        """What ``run`` feeds, by the names of the input leaves: the batch, else synthetic input."""
        ...

    def read(self, names: Collection[str]) -> dict[str, Array]:
        """Parameters by name, in their own type (bfloat16 and half widened to float32)."""
        ...

    def write(self, values: Mapping[str, Array], *, rollback: bool = True) -> None:
        """Set parameters in place (immutable frameworks: build the new object). All or nothing:
        shapes and finiteness are checked before the first write. Values arrive in float32, float64
        or complex and are rounded to the parameter's own type (nearest even). Without ``rollback`` a
        write that fails half-way may stay half done, where that saves memory."""
        ...

    def run(self, weights: Mapping[str, Array], watch: Collection[int], visit: Visit) -> None:
        """Run the model once with ``weights`` in place of its own, on real data (the caller's
        batch, else synthetic input: standard normal floats, uniform integers from seed 0). After
        the operation that produced a watched value, ``visit(value id, array)`` is called in
        execution order (float32 or float64; half types widened); an array it returns replaces the
        value for the rest of the run."""
        ...

    def gradients(self, weights: Mapping[str, Array], seed: int | None) -> dict[str, Array]:
        """Gradients of ``sum(output * c)`` for every parameter, ``c`` standard normal from ``seed`` (1 without
        one: the gradients of a loss), over all floating outputs; parameters that get none are left out."""
        ...

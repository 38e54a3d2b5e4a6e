"""One run of a TensorFlow model as a graph: trace, flatten, translate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from anyinit._frameworks.primitives.flat import Decide
from anyinit._frameworks.primitives.record import Recording, recorded
from anyinit._frameworks.tensorflow import (
    translate_contract,
    translate_index,
    translate_pointwise,
    translate_random,
    translate_reduce,
    translate_shape,
)
from anyinit._frameworks.tensorflow.flatten import flatten
from anyinit._frameworks.tensorflow.inputs import Batch
from anyinit._frameworks.tensorflow.program import Program

FAMILIES = (
    translate_contract, translate_index, translate_pointwise, translate_random, translate_reduce, translate_shape,
)  # fmt: skip
"""Importing these registers their translators."""

PYTHON = (tf.errors.OperatorNotAllowedInGraphError, NotImplementedError)
"""What a model raises that steers Python by the value of a tensor: it is traced again, rewritten by AutoGraph."""


def trace(program: Program, batch: Batch) -> Any:
    """The concrete function of one run on shapes alone; its inputs are the leaves of the batch."""

    def run(*leaves: Any) -> Any:
        args, kwargs = batch.filled(list(leaves))
        return [t for t in tf.nest.flatten(program.call(args, kwargs)) if tf.is_tensor(t)]

    specs = batch.specs()
    try:
        return tf.function(run, autograph=False).get_concrete_function(*specs)
    except PYTHON:
        program.notes.append("the model reads values in Python: recorded through AutoGraph")
        return tf.function(run, autograph=True).get_concrete_function(*specs)


def record(program: Program, batch: Batch, decide: Decide | None = None) -> Recording:
    """Record one run without data; ``decide`` is asked only where control flow depends on data."""
    concrete = trace(program, batch)
    program.met(concrete.variables)
    flat = flatten(concrete, program.place, program.slots, decide)
    return recorded(flat, program.slots, batch.names(), program.notes)

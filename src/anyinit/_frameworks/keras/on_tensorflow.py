"""Keras on TensorFlow: the model traced by the TensorFlow importer, its variables named by their paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from anyinit._frameworks.keras import calling
from anyinit._frameworks.keras.variables import named
from anyinit._frameworks.tensorflow.inputs import parse
from anyinit._frameworks.tensorflow.program import Program, Slot
from anyinit._frameworks.tensorflow.runtime import TensorFlowRuntime


def runtime(model: Any, spec: Any, forward: Callable[..., Any] | None) -> TensorFlowRuntime:
    """The runtime of a Keras model on TensorFlow."""
    batch = parse(spec)
    symbols = batch.filled([keras.KerasTensor(s.shape, dtype=s.dtype.name) for s in batch.specs()])
    calling.build(model, *symbols, lambda: batch.filled([tf.zeros(s.shape, s.dtype) for s in batch.specs()]))
    slots = [Slot(n.name, n.variable.value, n.role, trainable=n.trainable) for n in named(model)]
    run = calling.runner(model, forward)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with keras.StatelessScope():
            return run(args, kwargs)

    return TensorFlowRuntime(Program(call, slots), batch)

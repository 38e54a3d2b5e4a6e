"""Keras on JAX: the model as a pure function of its variables, for the jaxpr importer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras
from jax.tree_util import tree_map

from anyinit._frameworks.jax.inputs import parse
from anyinit._frameworks.jax.program import Program, Slot
from anyinit._frameworks.jax.runtime import JaxRuntime
from anyinit._frameworks.keras import calling
from anyinit._frameworks.keras.variables import named


def runtime(model: Any, spec: Any, forward: Callable[..., Any] | None) -> JaxRuntime:
    """The runtime of a Keras model on JAX."""
    batch = parse(keras.tree.map_structure(_abstract, spec) if _symbolic(spec) else spec)
    args, kwargs = tree_map(lambda x: keras.KerasTensor(x.shape, dtype=str(x.dtype)), (batch.args, batch.kwargs))
    calling.build(model, args, kwargs, lambda: batch.synthetic({}))
    held, run = named(model), calling.runner(model, forward)

    def call(values: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with keras.StatelessScope(state_mapping=[(n.variable, v) for n, v in zip(held, values, strict=True)]):
            return run(args, kwargs)

    def rebuild(values: Sequence[Any]) -> Any:
        for item, value in zip(held, values, strict=True):
            if value is not None and value is not item.variable.value:
                item.variable.assign(value)
        return model

    slots = [Slot(n.name, n.variable.value, n.role, trainable=n.trainable) for n in held]
    return JaxRuntime(Program(call, slots, rebuild, apart=False), batch)


def _symbolic(spec: Any) -> bool:
    return any(isinstance(x, keras.KerasTensor) for x in keras.tree.flatten(spec))


def _abstract(x: Any) -> Any:
    """A Keras tensor as JAX's own stand-in for shape and type."""
    return jax.ShapeDtypeStruct(tuple(x.shape), x.dtype) if isinstance(x, keras.KerasTensor) else x

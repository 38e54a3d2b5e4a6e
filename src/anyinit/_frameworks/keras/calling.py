"""How a Keras model is built, and called in training mode without a trace left on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from anyinit.errors import ConfigError, could_not_run

BATCH, LENGTH = 16, 16
"""Sizes taken where a model's own input leaves them open."""


def unbuilt(model: Any) -> str | None:
    """The name of a layer that has no variables yet, or ``None``."""
    return next((layer.name for layer in model._flatten_layers() if not layer.built), None)


def own_input(model: Any) -> Any:
    """The input a model was defined on, or built on, as ``keras.KerasTensor``; ``None`` if it says nothing."""
    struct = getattr(model, "_inputs_struct", None)
    struct = getattr(model, "inputs", None) if struct is None else struct
    if struct is not None and not (isinstance(struct, (list, tuple)) and not struct):
        return keras.tree.map_structure(_closed, struct)
    shapes = getattr(model, "_build_shapes_dict", None) or {}
    if len(shapes) == 1 and all(isinstance(n, int) or n is None for n in next(iter(shapes.values()))):
        return _closed(keras.KerasTensor(next(iter(shapes.values()))))
    return None


def _closed(tensor: Any) -> Any:
    shape = [LENGTH if n is None else int(n) for n in tensor.shape]
    if shape and tensor.shape[0] is None:
        shape[0] = BATCH
    return keras.KerasTensor(shape, dtype=tensor.dtype)


def needed(model: Any) -> ConfigError:
    """The error of a model that does not say what it takes."""
    name = unbuilt(model)
    why = "The model is not built and no input was given" if name else "The input of this model cannot be inferred"
    remedy = "Pass input_spec: a shape such as (32, 64), a batch, or keras.KerasTensor."
    return ConfigError(why, value=model.name if name is None else f"layer {name} of {model.name}", remedy=remedy)


def build(model: Any, args: Sequence[Any], kwargs: dict[str, Any], zeros: Callable[[], Any]) -> None:
    """Give an unbuilt model its variables: on shapes alone, or by one run on ``zeros()`` where it needs numbers."""
    if unbuilt(model) is None:
        return
    try:
        call(model, args, kwargs, training=None)
    except Exception as abstract:  # noqa: BLE001  (raised again below, if numbers do not help)
        try:
            real_args, real_kwargs = zeros()
            with keras.StatelessScope():
                call(model, real_args, real_kwargs, training=None)
        except Exception:  # noqa: BLE001
            raise could_not_run(abstract, "built") from abstract


def call(model: Any, args: Sequence[Any], kwargs: dict[str, Any], training: bool | None = True) -> Any:
    """The model on its arguments, in the form it takes them: several inputs of a functional model are one list,
    named ones one dictionary."""
    given = tuple(args)
    count = len(getattr(model, "inputs", None) or ()) if hasattr(model, "_inputs_struct") else 0
    if count and not given and kwargs:
        given, kwargs = (dict(kwargs),), {}
    elif count > 1 and len(given) == count:
        given = (list(given),)
    if training is not None and "training" not in kwargs and model._call_has_training_arg:
        kwargs = {**kwargs, "training": training}
    return model(*given, **kwargs)


def runner(model: Any, forward: Callable[..., Any] | None) -> Callable[[Sequence[Any], dict[str, Any]], Any]:
    """``run(args, kwargs)`` in training mode; what the run would write is dropped."""

    def run(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return call(model, args, kwargs) if forward is None else forward(model, *args, **kwargs)

    return run

"""From a Keras model to the runtime of its backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import keras

from anyinit._frameworks.keras import calling
from anyinit.errors import ConfigError

HOMES = {"tensorflow": "on_tensorflow", "jax": "on_jax", "torch": "on_torch"}


def opened(model: Any, spec: Any, params: Any, forward: Callable[..., Any] | None) -> Any:
    """The runtime of a Keras layer or model."""
    if params is not None:
        raise ConfigError("A Keras model holds its variables", value="params=", remedy="Leave params out.")
    backend = keras.backend.backend()
    if backend not in HOMES:
        remedy = "Set KERAS_BACKEND to tensorflow, jax or torch."
        raise ConfigError("This backend of Keras is not supported", value=backend, remedy=remedy)
    if spec is None:
        spec = calling.own_input(model)
        if spec is None:
            raise calling.needed(model)
        if isinstance(spec, list):
            spec = tuple(spec)
    home = importlib.import_module(f"anyinit._frameworks.keras.{HOMES[backend]}")
    return home.runtime(model, spec, forward)

"""A copy of a model that holds its own variables; no framework is imported."""

from __future__ import annotations

import copy
from typing import Any

from anyinit.errors import ConfigError


def copied(model: Any, framework: str) -> Any:
    """A copy that shares no variable with the model; models of JAX are never changed and are returned as they are.

    Raises:
        ConfigError: the model cannot be copied, or is a function whose variables lie elsewhere.
    """
    if framework == "jax":
        return model
    if framework == "tensorflow" and not hasattr(model, "trainable_variables"):
        raise ConfigError(
            "The variables of a tf.function are not its own and cannot be copied with it",
            value=type(model).__name__, remedy="Pass the tf.Module that owns them, or call initialize.",
        )  # fmt: skip
    try:
        return copy.deepcopy(model)
    except Exception as cause:
        raise ConfigError(
            "The model cannot be copied",
            value=f"{type(model).__name__}: {(str(cause).strip() or type(cause).__name__).splitlines()[0]}",
            remedy="Call initialize, which changes it in place, or make it copyable (Keras: get_config).",
        ) from cause

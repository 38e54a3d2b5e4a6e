"""Keras 3: a thin adapter over the room of whichever backend it runs on.

Nothing here imports Keras until a model of it is opened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from anyinit.errors import BackendNotFoundError


def recognizes(model: Any) -> bool:
    """Whether an object is a Keras layer or model; imports nothing."""
    layer = getattr(sys.modules.get("keras"), "Layer", None)
    return isinstance(layer, type) and isinstance(model, layer)


def open_model(
    model: Any, input_spec: Any = None, params: Any = None, forward: Callable[..., Any] | None = None
) -> Any:
    """The runtime of a Keras layer or model; its variables are set in place.

    Args:
        model: built or not; one that is not is built on the input.
        input_spec: a shape, a batch, a tuple or dict of them, ``keras.KerasTensor``, or a callable; without it the
            inputs a model was defined or built on.
        params: Keras models hold their variables; anything but ``None`` is an error.
        forward: ``forward(model, *batch)`` is recorded instead of the plain call.

    Raises:
        BackendNotFoundError: no Keras layer.
        ConfigError: the input cannot be used or is needed and missing.
        TraceError: the model could not be run.
    """
    if not recognizes(model):
        raise BackendNotFoundError("This is no Keras layer or model", value=type(model).__name__)
    from anyinit._frameworks.keras.opening import opened

    return opened(model, input_spec, params, forward)

"""TensorFlow: ``tf.Module`` and functions with variables, through the graph of one traced run.

Nothing here imports TensorFlow until a model of it is opened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anyinit.errors import BackendNotFoundError

if TYPE_CHECKING:
    from anyinit._frameworks.tensorflow.runtime import TensorFlowRuntime


def recognizes(model: Any) -> bool:
    """Whether this room can open the model: a ``tf.Module`` or a ``tf.function``; imports nothing."""
    tf = sys.modules.get("tensorflow")
    module = getattr(tf, "Module", None)
    if module is None or not callable(model):
        return False
    return isinstance(model, module) or type(model).__module__.startswith("tensorflow.")


def open_model(
    model: Any, input_spec: Any = None, params: Any = None, forward: Callable[..., Any] | None = None
) -> TensorFlowRuntime:
    """The runtime of a ``tf.Module`` or ``tf.function`` with its input.

    Args:
        model: called on the input; its variables are set in place.
        input_spec: a shape, a batch, a tuple or dict of them, ``tf.TensorSpec``, or a callable.
        params: TensorFlow models hold their variables; anything but ``None`` is an error.
        forward: ``forward(model, *batch)`` is recorded instead of the plain call.

    Raises:
        BackendNotFoundError: the model is none of TensorFlow's.
        ConfigError: the input cannot be used.
        TraceError: the model could not be run.
    """
    if not recognizes(model) and forward is None:
        raise BackendNotFoundError("This is no model of TensorFlow", value=type(model).__name__)
    from anyinit._frameworks.tensorflow.opening import opened

    return opened(model, input_spec, params, forward)

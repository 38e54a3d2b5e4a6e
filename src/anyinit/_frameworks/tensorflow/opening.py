"""From a recognised model to its runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyinit._frameworks.tensorflow.inputs import parse
from anyinit._frameworks.tensorflow.program import program
from anyinit._frameworks.tensorflow.runtime import TensorFlowRuntime
from anyinit.errors import ConfigError


def opened(model: Any, spec: Any, params: Any, forward: Callable[..., Any] | None) -> TensorFlowRuntime:
    """The runtime of a ``tf.Module`` or function."""
    if params is not None:
        raise ConfigError(
            "A TensorFlow model holds its variables", value="params=", remedy="Leave params out; it is set in place."
        )
    return TensorFlowRuntime(program(model, forward), parse(spec))

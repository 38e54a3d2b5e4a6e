"""JAX: plain functions, Flax linen, Flax NNX, Equinox and Haiku, all through the jaxpr of one run.

Nothing here imports JAX until a model of one of its frameworks is opened.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from anyinit.errors import BackendNotFoundError

if TYPE_CHECKING:
    from anyinit._frameworks.jax.runtime import JaxRuntime


def framework_of(model: Any) -> str | None:
    """``linen``, ``nnx``, ``equinox``, ``haiku`` or ``function``; ``None`` if the model is none of JAX's.
    Looks only at modules that are already loaded."""
    for name, module, attribute in (
        ("linen", "flax.linen", "Module"),
        ("nnx", "flax.nnx", "Module"),
        ("equinox", "equinox", "Module"),
    ):
        cls = getattr(sys.modules.get(module), attribute, None)
        if isinstance(cls, type) and isinstance(model, cls):
            return name
    if (
        "haiku" in sys.modules
        and type(model).__name__ in ("Transformed", "TransformedWithState")
        and hasattr(model, "apply")
    ):
        return "haiku"
    if "jax" in sys.modules and _is_function(model):
        return "function"
    return None


def _is_function(model: Any) -> bool:
    if isinstance(model, type):
        return False
    plain = isinstance(model, (types.FunctionType, types.MethodType, partial))
    return plain or (callable(model) and type(model).__module__.startswith(("jax", "equinox", "flax", "haiku")))


def recognizes(model: Any) -> bool:
    """Whether this room can open the model; imports nothing."""
    return framework_of(model) is not None


def open_model(
    model: Any, input_spec: Any = None, params: Any = None, forward: Callable[..., Any] | None = None
) -> JaxRuntime:
    """The runtime of a JAX model with its input.

    Args:
        model: a linen, NNX or Equinox module, a Haiku transform, or a function ``f(params, *inputs)``.
        input_spec: a shape, a batch, a tuple or dict of them, ``ShapeDtypeStruct``, or a callable.
        params: parameter tree of functions, linen and Haiku models (arrays or ``ShapeDtypeStruct``).
        forward: ``forward(model, *batch)`` is recorded instead of the plain call.

    Raises:
        BackendNotFoundError: the model is none of JAX's.
        ConfigError: the input or the parameters cannot be used.
        TraceError: the model could not be run.
    """
    kind = framework_of(model)
    if kind is None:
        raise BackendNotFoundError("This is no model of a JAX framework", value=type(model).__name__)
    from anyinit._frameworks.jax.opening import open_as

    return open_as(kind, model, input_spec, params, forward)

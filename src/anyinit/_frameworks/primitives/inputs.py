"""What an ``input_spec`` says, before any framework is asked: one argument, several, or named ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anyinit.errors import ConfigError


def arguments(spec: Any, value: Callable[[Any], Any], remedy: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a specification, each through ``value``.

    Raises:
        ConfigError: there is none.
    """
    if spec is None:
        raise ConfigError("The input of this model cannot be inferred", remedy=remedy)
    if callable(spec) and not hasattr(spec, "shape"):
        spec = spec()
    if isinstance(spec, Mapping):
        return (), {str(k): value(v) for k, v in spec.items()}
    if isinstance(spec, (tuple, list)) and not is_shape(spec):
        return tuple(value(v) for v in spec), {}
    return (value(spec),), {}


def is_shape(spec: Any) -> bool:
    """Whether a specification is a shape: a sequence of whole numbers."""
    return (
        isinstance(spec, (tuple, list))
        and bool(spec)
        and all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in spec)
    )


def shape(spec: Any, remedy: str) -> tuple[int, ...]:
    """The shape as a tuple.

    Raises:
        ConfigError: a size is not positive.
    """
    if min(spec) < 1:
        raise ConfigError("A shape must have positive sizes", value=tuple(spec), remedy=remedy)
    return tuple(int(n) for n in spec)


def sound(size: int, finite: bool, dimensions: Any) -> None:
    """Refuse a batch without entries, or with some that are not finite.

    Raises:
        ConfigError: it is one of these.
    """
    if not size:
        raise ConfigError("The batch is empty", value=tuple(dimensions), remedy="Pass at least one example.")
    if not finite:
        cause = "The batch holds values that are not finite"
        raise ConfigError(cause, value=tuple(dimensions), remedy="Clean the batch first.")

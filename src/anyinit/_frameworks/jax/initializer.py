"""Initializers in JAX itself, for parameters that take a ``kernel_init=``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax

from anyinit._core.layer import layer_std
from anyinit.errors import ConfigError

_LAWS = ("normal", "truncated_normal", "uniform")


def initializer(
    role: str = "hidden", activation: Any = "relu", *, distribution: str = "normal", **params: Any
) -> Callable[..., jax.Array]:
    """``init(key, shape, dtype)`` for kernels that store the output last.

    Flax and Haiku do so for dense and convolutional layers, grouped ones included: the fan is the product of all axes
    but the last. (A transposed convolution with stride ``s`` meets ``1 / s`` of its taps per axis; only
    :func:`anyinit.initialize`, which sees the network, knows that.)

    Args:
        role: ``hidden`` (unit second moment behind the activation; unit variance before it where that is out
            of reach), ``output`` (unit variance), ``residual`` (zeros) or ``embedding`` (unit entries).
        activation: what follows the layer, a name or a function, as in :func:`anyinit.gain`.
        distribution: ``normal``, ``truncated_normal`` or ``uniform``; all have the same standard deviation.
        params: parameters of the activation.

    Returns:
        A pure function of a JAX key and a static shape, which may be jitted and mapped.

    Raises:
        ConfigError: unknown role, distribution or activation; from the result, a shape with fewer than two axes.
    """
    if distribution not in _LAWS:
        raise ConfigError("Unknown distribution", value=distribution, remedy=f"Use one of {', '.join(_LAWS)}.")
    unit = layer_std(role, 1, activation, params)

    def init(key: Any, shape: Any, dtype: Any = float) -> jax.Array:
        if len(shape) < 2:
            raise ConfigError("A kernel has inputs and outputs", value=tuple(shape), remedy="Use zeros for a bias.")
        std = unit if role == "embedding" else unit / math.sqrt(math.prod(shape[:-1]))
        if not std:
            return jax.numpy.zeros(shape, dtype)
        scaling = jax.nn.initializers.variance_scaling
        law = scaling(std * std * math.prod(shape[:-1]), "fan_in", distribution, in_axis=tuple(range(len(shape) - 1)))
        return law(key, shape, dtype)

    return init

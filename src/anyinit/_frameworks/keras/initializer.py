"""Initializers in Keras itself, for layers that take a ``kernel_initializer=``."""

from __future__ import annotations

import math
from typing import Any

import keras

from anyinit._core.layer import layer_std
from anyinit.errors import ConfigError

LAWS = ("normal", "truncated_normal", "uniform")
_CUT_AT_TWO = 0.87962566103423978  # standard deviation of a standard normal cut at two of its own


@keras.saving.register_keras_serializable(package="anyinit")
class Initializer(keras.initializers.Initializer):
    """See :func:`initializer`."""

    def __init__(
        self,
        role: str = "hidden",
        activation: Any = "relu",
        *,
        distribution: str = "normal",
        fan: int | None = None,
        seed: int | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        if distribution not in LAWS:
            raise ConfigError("Unknown distribution", value=distribution, remedy=f"Use one of {', '.join(LAWS)}.")
        if isinstance(activation, dict):  # from a saved configuration
            activation = keras.saving.deserialize_keras_object(activation)
        self.role, self.activation, self.distribution = role, activation, distribution
        self.fan, self.seed, self.params = fan, seed, dict(params or {})
        layer_std(role, 1 if fan is None else fan, activation, self.params)  # refuses what is unknown

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        if self.fan is None and self.role != "embedding" and len(shape) < 2:
            raise ConfigError("A kernel has inputs and outputs", value=tuple(shape), remedy="Pass fan=, or use zeros.")
        fan = math.prod(shape[:-1]) if self.fan is None else self.fan
        std = layer_std(self.role, fan, self.activation, self.params)
        if not std:
            return keras.ops.zeros(shape, dtype=dtype)
        if self.distribution == "uniform":
            edge = math.sqrt(3.0) * std
            return keras.random.uniform(shape, minval=-edge, maxval=edge, dtype=dtype, seed=self.seed)
        if self.distribution == "normal":
            return keras.random.normal(shape, stddev=std, dtype=dtype, seed=self.seed)
        return keras.random.truncated_normal(shape, stddev=std / _CUT_AT_TWO, dtype=dtype, seed=self.seed)

    def get_config(self) -> dict[str, Any]:
        """The arguments, a function as Keras serializes it."""
        plain = isinstance(self.activation, str)
        activation = self.activation if plain else keras.saving.serialize_keras_object(self.activation)
        return {
            "role": self.role, "activation": activation, "distribution": self.distribution,
            "fan": self.fan, "seed": self.seed, "params": self.params,
        }  # fmt: skip


def initializer(
    role: str = "hidden", activation: Any = "relu", *, distribution: str = "normal", fan: int | None = None,
    seed: int | None = None, **params: Any,
) -> Initializer:  # fmt: skip
    """A Keras initializer for kernels that store the output last, on any backend; it is saved with its model.

    Dense and convolutional kernels do so, grouped ones included: the fan is the product of all axes but the last.
    Where a kernel has other axes (a depthwise one; the heads of an ``EinsumDense``), pass ``fan=``. A stride of a
    transposed convolution is known to :func:`anyinit.initialize` alone, which sees the network.

    Args:
        role: ``hidden`` (unit second moment behind the activation; unit variance before it where that is out
            of reach), ``output`` (unit variance), ``residual`` (zeros) or ``embedding`` (unit entries).
        activation: what follows the layer, a name or a function, as in :func:`anyinit.gain`. A function of yours has
            to be registered with Keras for a model to be saved.
        distribution: ``normal``, ``truncated_normal`` or ``uniform``; all have the same standard deviation.
        fan: terms in one output; by default all axes but the last.
        seed: the same numbers on every call; by default new ones from Keras's global generator, so that one object
            may serve many layers.
        params: parameters of the activation.

    Returns:
        A ``keras.initializers.Initializer``.

    Raises:
        ConfigError: unknown role, distribution or activation, or a fan below one; from the result, a shape with fewer
            than two axes without ``fan=``.
    """
    return Initializer(role, activation, distribution=distribution, fan=fan, seed=seed, params=params)

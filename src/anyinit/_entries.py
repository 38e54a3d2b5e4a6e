"""Public functions of one framework that see no network."""

from __future__ import annotations

from typing import Any


def init_(
    tensor: Any, role: str = "hidden", activation: Any = "relu", *, fan: int | None = None, generator: Any = None,
    **params: Any,
) -> Any:  # fmt: skip
    """Fill one PyTorch tensor in place, as ``torch.nn.init`` does, for a ``reset_parameters`` of your own.

    Normal entries from PyTorch's random state. :func:`anyinit.initialize`, which sees the network, is the better
    choice where it can be called.

    Args:
        tensor: a real tensor or parameter.
        role: ``hidden``, ``output``, ``residual`` or ``embedding``; see :func:`anyinit.jax.initializer`.
        activation: what follows the layer, as in :func:`anyinit.gain`; read by ``hidden`` alone.
        fan: terms in one output; by default all axes of the tensor but the first.
        generator: a ``torch.Generator`` in place of the global one.
        params: parameters of the activation.

    Returns:
        The tensor.

    Raises:
        ConfigError: an argument is unusable; the tensor is unchanged.
    """
    from anyinit._frameworks.torch.fill import fill

    return fill(tensor, role, activation, fan, generator, params)

"""The scale of one layer on its own, for code that asks for an initializer and shows no network."""

from __future__ import annotations

import math
from typing import Any

from anyinit._core.profile import activation_profile
from anyinit.errors import ConfigError

ROLES = ("hidden", "output", "residual", "embedding")


def layer_std(role: str, fan: int, activation: Any, params: dict[str, Any]) -> float:
    """Standard deviation of the entries of one weight, for an input of unit second moment.

    Args:
        role: ``hidden``: ``E f(y)^2 = 1`` behind the activation (He et al. 2015), or unit variance before it where
            no scale reaches that (tanh); ``output``: ``E y^2 = 1``; ``residual``: 0, a branch that starts silent;
            ``embedding``: unit entries.
        fan: terms in one output.
        activation: what follows, a name or a function; only ``hidden`` reads it.
        params: parameters of the activation.

    Raises:
        ConfigError: unknown role or activation, or a fan below one.
    """
    if role not in ROLES:
        raise ConfigError("Unknown role", value=role, remedy=f"Use one of {', '.join(ROLES)}.")
    if fan < 1:
        raise ConfigError("A fan is a positive number of terms", value=fan, remedy="Pass the inputs of one output.")
    if role in ("residual", "embedding"):
        return 0.0 if role == "residual" else 1.0
    variance = activation_profile(activation, **params).operating_variance if role == "hidden" else 1.0
    return math.sqrt(variance / fan)

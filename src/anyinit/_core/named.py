"""Names of well-known activations: each is an entry of the pointwise table with its arguments bound.

Nothing numeric is stored: every moment is computed from the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anyinit._core.pointwise import FUNCTIONS

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Builtin:
    """An activation with a name. ``fn(x, *arguments)``; ``defaults`` gives the arguments' names and values."""

    name: str
    fn: Callable[..., Array]
    defaults: Mapping[str, float] = field(default_factory=dict[str, float])
    aliases: tuple[str, ...] = ()


def _snake(x: Array, a: float) -> Array:
    return x + np.sin(a * x) ** 2 / a


def _gaussian(x: Array, sigma: float) -> Array:
    return np.exp(-0.5 * (x / sigma) ** 2)


def _quick_gelu(x: Array) -> Array:
    return x * FUNCTIONS["sigmoid"](1.702 * x)


def _squared_relu(x: Array) -> Array:
    return np.maximum(x, 0.0) ** 2


def _table(name: str, *aliases: str, fn: str = "", **defaults: float) -> Builtin:
    return Builtin(name, FUNCTIONS[fn or name], defaults, aliases)


BUILTINS: tuple[Builtin, ...] = (
    _table("identity", "linear", "none"),
    _table("relu"),
    _table("relu6"),
    Builtin("squared_relu", _squared_relu, aliases=("relu_squared",)),
    _table("leaky_relu", "lrelu", negative_slope=0.01),
    _table("prelu", init=0.25),
    _table("elu", alpha=1.0),
    _table("selu"),
    _table("celu", alpha=1.0),
    _table("gelu", "gelu_erf", "gelu_exact"),
    _table("gelu_tanh", "gelu_new", "gelu_approximate"),
    Builtin("quick_gelu", _quick_gelu),
    _table("silu", "swish"),
    _table("mish"),
    _table("softplus", beta=1.0, threshold=math.inf),
    _table("sigmoid", "logistic"),
    _table("log_sigmoid"),
    _table("tanh"),
    _table("hardtanh", "hard_tanh", min_val=-1.0, max_val=1.0),
    _table("hard_sigmoid"),
    _table("hardswish", "hard_swish", "hard_silu"),
    _table("softsign"),
    _table("tanhshrink"),
    _table("hardshrink", lambd=0.5),
    _table("softshrink", lambd=0.5),
    _table("threshold", threshold=0.0, value=0.0),
    Builtin("sin", lambda x, omega: np.sin(omega * x), {"omega": 1.0}, ("sine",)),
    Builtin("cos", lambda x, omega: np.cos(omega * x), {"omega": 1.0}, ("cosine",)),
    Builtin("snake", _snake, {"a": 1.0}),
    Builtin("gaussian", _gaussian, {"sigma": 1.0}),
    _table("erf"),
    _table("exp", "exponential"),
    _table("atan", "arctan"),
    _table("sinc"),
    _table("abs"),
    _table("square"),
    _table("sign"),
)

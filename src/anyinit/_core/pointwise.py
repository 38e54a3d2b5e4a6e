"""The float64 NumPy meaning of every elementwise operation a framework can execute.

``FUNCTIONS[name](*operands)`` takes arrays or floats positionally, broadcasts them as NumPy does and
returns float64 (complex128 where an operand is complex and the operation keeps it so). Comparisons and
logical functions give 0.0 and 1.0. Nothing warns: a result without a value is NaN or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Operand = Array | float
Function = Callable[..., Array]

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946

LINEAR = frozenset({"identity", "add", "sub", "neg", "real", "imag", "conj"})
"""Operations that are jointly linear in all their operands."""

BILINEAR = frozenset({"mul"})
"""Operations that are linear in each operand while the others are held."""

PIECEWISE_CONSTANT = frozenset(
    {"sign", "floor", "ceil", "round", "trunc", "floor_divide", "eq", "ne", "lt", "le", "gt", "ge"}
    | {"logical_and", "logical_or", "logical_not", "logical_xor", "isnan", "isinf", "isfinite"}
    | {"heaviside", "bit_and", "bit_or"}
)
"""Operations whose derivative vanishes wherever it exists."""


@cache
def _special() -> Any:
    """``scipy.special``, imported on first use: it costs more than the rest of this package."""
    import scipy.special

    return scipy.special


def _number(value: ArrayLike) -> Array:
    array = np.asarray(value)
    return cast(Array, array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False))


def _op(body: Callable[..., Any]) -> Function:
    """Convert the operands, silence floating-point warnings, return an array."""

    @wraps(body)
    def call(*operands: ArrayLike) -> Array:
        with np.errstate(all="ignore"):
            return _number(body(*(_number(x) for x in operands)))

    return call


def _scipy(name: str) -> Function:
    return _op(lambda *operands: getattr(_special(), name)(*operands))


def _sigmoid(x: Array) -> Array:
    t = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + t), t / (1.0 + t))


def _tanhshrink(x: Array) -> Array:
    """``x - tanh x``, by its Taylor series where the difference would lose digits."""
    y = x * x
    coefficients = (1 / 3, -2 / 15, 17 / 315, -62 / 2835, 1382 / 155925, -21844 / 6081075, 929569 / 638512875)
    series = np.zeros_like(y)
    for c in reversed(coefficients):
        series = series * y + c
    return np.where(np.abs(x) < 0.05, x * y * series, x - np.tanh(x))


def _softplus(x: Array, beta: Operand = 1.0, threshold: Operand = math.inf) -> Array:
    scaled = x * beta
    return np.where(scaled > threshold, x, np.logaddexp(0.0, scaled) / beta)


def _elu(x: Array, alpha: Operand = 1.0, scale: Operand = 1.0, input_scale: Operand = 1.0) -> Array:
    negative = np.multiply(alpha, np.expm1(np.minimum(x, 0.0) * input_scale))
    return np.where(x > 0, x, negative) * scale


def _celu(x: Array, alpha: Operand = 1.0) -> Array:
    return np.where(x > 0, x, np.multiply(alpha, np.expm1(np.minimum(x, 0.0) / alpha)))


def _leaky_relu(x: Array, slope: Operand = 0.01) -> Array:
    return np.where(x > 0, x, x * slope)


def _gelu_tanh(x: Array) -> Array:
    """``x/2 (1 + tanh y)`` written as ``x sigmoid(2y)``, which loses no digits where it is small."""
    return x * _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))


def _mish(x: Array) -> Array:
    """``x tanh(log(1 + e^x)) = x t (t + 2) / (t (t + 2) + 2)`` with ``t = e^x``."""
    t = np.exp(np.minimum(x, 30.0))
    part = t * (t + 2.0)
    return np.where(x > 30.0, x, x * part / (part + 2.0))


def _clamp(x: Array, lo: Operand = math.nan, hi: Operand = math.nan) -> Array:
    raised = np.where(np.isnan(lo), x, np.maximum(x, lo))
    return np.where(np.isnan(hi), raised, np.minimum(raised, hi))


def _logit(x: Array, eps: Operand = math.nan) -> Array:
    return _special().logit(_clamp(x, eps, np.subtract(1.0, eps)))


def _softshrink(x: Array, width: Operand = 0.5) -> Array:
    return np.where(x > width, x - width, np.where(x < np.negative(width), x + width, 0.0 * x))


def _hardshrink(x: Array, width: Operand = 0.5) -> Array:
    return np.where(np.abs(x) <= width, 0.0, x)


def _threshold(x: Array, t: Operand, v: Operand) -> Array:
    return np.where(x <= t, v, x)


def _pow(x: Array, y: Array) -> Array:
    """Small whole exponents by multiplication: as exact as a framework's own, and faster."""
    if y.ndim == 0 and y.dtype.kind == "f" and y in (2.0, 3.0):
        return x * x if y == 2.0 else x * x * x
    return np.power(x, y)


def _bits(fold: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]) -> Function:
    return _op(lambda a, b: fold(a.astype(np.int64), b.astype(np.int64)))


def _round(x: Array, decimals: Operand = 0.0) -> Array:
    return np.round(x, int(np.asarray(decimals)))


FUNCTIONS: dict[str, Function] = {
    # arithmetic
    "add": _op(np.add),
    "sub": _op(np.subtract),
    "mul": _op(np.multiply),
    "div": _op(np.true_divide),
    "pow": _op(_pow),
    "neg": _op(np.negative),
    "abs": _op(np.abs),
    "sign": _op(np.sign),
    "square": _op(lambda x: x * x),
    "sqrt": _op(np.sqrt),
    "rsqrt": _op(lambda x: 1.0 / np.sqrt(x)),
    "reciprocal": _op(lambda x: 1.0 / x),
    "maximum": _op(np.maximum),
    "minimum": _op(np.minimum),
    "clamp": _op(_clamp),
    "fmod": _op(np.fmod),
    "remainder": _op(np.remainder),
    "floor_divide": _op(np.floor_divide),
    "hypot": _op(np.hypot),
    "copysign": _op(np.copysign),
    "nextafter": _op(np.nextafter),
    "lerp": _op(lambda a, b, t: a + t * (b - a)),
    "addcmul": _op(lambda a, b, c, value=1.0: a + value * (b * c)),
    "addcdiv": _op(lambda a, b, c, value=1.0: a + value * (b / c)),
    "identity": _op(lambda x: x),
    "real": _op(np.real),
    "imag": _op(np.imag),
    "conj": _op(np.conj),
    # exponentials and logarithms
    "exp": _op(np.exp),
    "expm1": _op(np.expm1),
    "exp2": _op(np.exp2),
    "log": _op(np.log),
    "log1p": _op(np.log1p),
    "log2": _op(np.log2),
    "log10": _op(np.log10),
    "logaddexp": _op(np.logaddexp),
    "xlogy": _scipy("xlogy"),
    # circular and hyperbolic
    "sin": _op(np.sin),
    "cos": _op(np.cos),
    "tan": _op(np.tan),
    "asin": _op(np.arcsin),
    "acos": _op(np.arccos),
    "atan": _op(np.arctan),
    "atan2": _op(np.arctan2),
    "sinh": _op(np.sinh),
    "cosh": _op(np.cosh),
    "tanh": _op(np.tanh),
    "asinh": _op(np.arcsinh),
    "acosh": _op(np.arccosh),
    "atanh": _op(np.arctanh),
    "sinc": _op(np.sinc),
    # special functions
    "erf": _scipy("erf"),
    "erfc": _scipy("erfc"),
    "erfinv": _scipy("erfinv"),
    "ndtr": _scipy("ndtr"),
    "lgamma": _scipy("gammaln"),
    "digamma": _scipy("psi"),
    "i0": _scipy("i0"),
    # activations
    "sigmoid": _op(_sigmoid),
    "logit": _op(_logit),
    "log_sigmoid": _op(lambda x: -np.logaddexp(0.0, -x)),
    "softplus": _op(_softplus),
    "relu": _op(lambda x: np.maximum(x, 0.0)),
    "relu6": _op(lambda x: np.minimum(np.maximum(x, 0.0), 6.0)),
    "leaky_relu": _op(_leaky_relu),
    "prelu": _op(_leaky_relu),
    "elu": _op(_elu),
    "selu": _op(lambda x: _elu(x, _SELU_ALPHA, _SELU_SCALE)),
    "celu": _op(_celu),
    "silu": _op(lambda x: x * _sigmoid(x)),
    "gelu": _op(lambda x: x * _special().ndtr(x)),
    "gelu_tanh": _op(_gelu_tanh),
    "mish": _op(_mish),
    "hardtanh": _op(lambda x, lo=-1.0, hi=1.0: np.minimum(np.maximum(x, lo), hi)),
    "hard_sigmoid": _op(lambda x: np.minimum(np.maximum(x + 3.0, 0.0), 6.0) / 6.0),
    "hardswish": _op(lambda x: x * np.minimum(np.maximum(x + 3.0, 0.0), 6.0) / 6.0),
    "softsign": _op(lambda x: x / (1.0 + np.abs(x))),
    "tanhshrink": _op(_tanhshrink),
    "hardshrink": _op(_hardshrink),
    "softshrink": _op(_softshrink),
    "threshold": _op(_threshold),
    # steps, choices and logic
    "floor": _op(np.floor),
    "ceil": _op(np.ceil),
    "round": _op(_round),
    "trunc": _op(np.trunc),
    "frac": _op(lambda x: x - np.trunc(x)),
    "where": _op(lambda c, x, y: np.where(c != 0, x, y)),
    "heaviside": _op(np.heaviside),
    "eq": _op(np.equal),
    "ne": _op(np.not_equal),
    "lt": _op(np.less),
    "le": _op(np.less_equal),
    "gt": _op(np.greater),
    "ge": _op(np.greater_equal),
    "logical_and": _op(np.logical_and),
    "logical_or": _op(np.logical_or),
    "logical_not": _op(np.logical_not),
    "logical_xor": _op(np.logical_xor),
    "isnan": _op(np.isnan),
    "isinf": _op(np.isinf),
    "isfinite": _op(np.isfinite),
    "bit_and": _bits(np.bitwise_and),
    "bit_or": _bits(np.bitwise_or),
}
"""Every elementwise function by name. A graph's ``Pointwise.fn`` is one of these names."""

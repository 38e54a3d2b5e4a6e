"""Elementwise operations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anyinit._frameworks.torch.lower import ATEN, Lower, Operand, V, aten, axis
from anyinit._graph import ops

_SAME_NAME = (
    "neg abs sign square sqrt rsqrt reciprocal exp expm1 exp2 log log1p log2 log10 sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh sinc erf erfc erfinv lgamma digamma i0 sigmoid relu relu6 selu silu mish "
    "hardswish floor ceil trunc frac isnan isinf isfinite logical_not logical_and logical_or logical_xor eq ne lt "
    "le gt ge maximum minimum fmod remainder hypot copysign nextafter logaddexp xlogy atan2 heaviside real imag"
)
_RENAMED = {
    "special_erf": "erf", "special_erfinv": "erfinv", "special_expit": "sigmoid", "special_log1p": "log1p",
    "special_expm1": "expm1", "special_exp2": "exp2", "special_ndtr": "ndtr", "special_erfc": "erfc",
    "special_gammaln": "lgamma", "special_digamma": "digamma", "special_i0": "i0", "special_xlogy": "xlogy",
    "log_sigmoid": "log_sigmoid", "hardsigmoid": "hard_sigmoid", "fix": "trunc", "negative": "neg", "absolute": "abs",
    "sgn": "sign", "bitwise_not": "logical_not", "conj": "conj", "_conj": "conj", "conj_physical": "conj",
    "_conj_physical": "conj", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "arcsinh": "asinh", "arccosh": "acosh", "multiply": "mul", "divide": "div",
    "true_divide": "div",
    "floor_divide": "floor_divide", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne", "mul": "mul", "div": "div", "__and__": "bit_and", "__or__": "bit_or", "bitwise_and": "bit_and",
    "bitwise_or": "bit_or", "fmax": "maximum", "fmin": "minimum",
}  # fmt: skip


def _direct(fn: str) -> Any:
    def translate(low: Lower, *operands: Operand, **kwargs: Any) -> V:
        return low.pointwise(fn, *operands, *kwargs.values())

    return translate


for _name, _fn in {**{n: n for n in _SAME_NAME.split()}, **_RENAMED}.items():
    ATEN[_name] = _direct(_fn)


def _scaled(low: Lower, x: Operand, alpha: float) -> Operand:
    if alpha == 1:
        return x
    return low.pointwise("mul", x, alpha) if isinstance(x, V) else x * alpha


@aten("add")
def _add(low: Lower, a: Operand, b: Operand, alpha: float = 1) -> V:
    return low.pointwise("add", a, _scaled(low, b, alpha))


@aten("sub", "subtract")
def _sub(low: Lower, a: Operand, b: Operand, alpha: float = 1) -> V:
    return low.pointwise("sub", a, _scaled(low, b, alpha))


@aten("rsub")
def _rsub(low: Lower, a: V, b: Operand, alpha: float = 1) -> V:
    return low.pointwise("sub", b, _scaled(low, a, alpha))


@aten("div.Tensor_mode", "div.Scalar_mode")
def _div(low: Lower, a: Operand, b: Operand, rounding_mode: str | None = None) -> V:
    if rounding_mode == "floor":
        return low.pointwise("floor_divide", a, b)
    quotient = low.pointwise("div", a, b)
    return quotient if rounding_mode is None else low.pointwise("trunc", quotient)


@aten("pow", "float_power")
def _pow(low: Lower, a: Operand, b: Operand) -> V:
    if isinstance(b, (int, float)):
        if b == 1 and isinstance(a, V):
            return low.pointwise("identity", a)
        simple = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(b)
        if simple is not None and isinstance(a, V):
            return low.pointwise(simple, a)
    return low.pointwise("pow", a, b)


@aten("gelu")
def _gelu(low: Lower, x: V, approximate: str = "none") -> V:
    return low.pointwise("gelu" if approximate == "none" else "gelu_tanh", x)


@aten("leaky_relu")
def _leaky_relu(low: Lower, x: V, negative_slope: float = 0.01) -> V:
    return low.pointwise("leaky_relu", x, negative_slope)


@aten("rrelu")
def _rrelu(low: Lower, x: V, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *rest: Any) -> V:
    if not training:
        return low.pointwise("leaky_relu", x, (lower + upper) / 2)
    return low.pointwise("prelu", x, low.add(ops.Random("uniform", (lower, upper), x.shape), (), x.shape))


@aten("rrelu_with_noise")
def _rrelu_with_noise(low: Lower, x: V, noise: V, *options: Any) -> V:
    return _rrelu(low, x, *options)


@aten("prelu", "_prelu_kernel")
def _prelu(low: Lower, x: V, weight: V) -> V:
    if weight.size != 1 and x.ndim > 2 and weight.ndim == 1:
        return low.channelwise("prelu", x, weight, 1)
    return low.pointwise("prelu", x, weight)


@aten("elu")
def _elu(low: Lower, x: V, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> V:
    return low.pointwise("elu", x, *_trimmed((alpha, scale, input_scale), (1, 1, 1)))


def _trimmed(values: tuple[float, ...], defaults: tuple[float, ...]) -> tuple[float, ...]:
    """Without the trailing values that equal their defaults."""
    while values and values[-1] == defaults[len(values) - 1]:
        values = values[:-1]
    return values


@aten("celu")
def _celu(low: Lower, x: V, alpha: float = 1) -> V:
    return low.pointwise("celu", x, alpha)


@aten("softplus")
def _softplus(low: Lower, x: V, beta: float = 1, threshold: float = 20) -> V:
    return low.pointwise("softplus", x, beta, threshold)


@aten("hardtanh")
def _hardtanh(low: Lower, x: V, min_val: float = -1, max_val: float = 1) -> V:
    return low.pointwise("hardtanh", x, min_val, max_val)


@aten("hardshrink", "softshrink")
def _hardshrink(low: Lower, x: V, lambd: float = 0.5) -> V:
    return low.pointwise("hardshrink" if low.base.startswith("hard") else "softshrink", x, lambd)


@aten("threshold")
def _threshold(low: Lower, x: V, threshold: float, value: float) -> V:
    return low.pointwise("threshold", x, threshold, value)


@aten("glu")
def _glu(low: Lower, x: V, dim: int = -1) -> V:
    dim = axis(dim, x.ndim)
    half = x.shape[dim] // 2
    gate = low.pointwise("sigmoid", low.slice(x, dim, half, 2 * half))
    return low.pointwise("mul", low.slice(x, dim, 0, half), gate)


@aten("clamp", "clip", "clamp_min", "clamp_max")
def _clamp(low: Lower, x: V, min: Operand | None = None, max: Operand | None = None) -> V:
    if low.base.startswith("clamp_max"):
        min, max = None, min if min is not None else max
    if isinstance(min, V) or isinstance(max, V):
        x = x if min is None else low.pointwise("maximum", x, min)
        return x if max is None else low.pointwise("minimum", x, max)
    if max is None and min is not None:
        return low.pointwise("maximum", x, min)
    if min is None and max is not None:
        return low.pointwise("minimum", x, max)
    return low.pointwise("clamp", x, math.nan if min is None else min, math.nan if max is None else max)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(low: Lower, condition: V, self: Operand, other: Operand) -> V:
    return low.pointwise("where", condition, self, other)


@aten("masked_fill")
def _masked_fill(low: Lower, x: V, mask: V, value: Operand) -> V:
    return low.pointwise("where", mask, value, x)


@aten("lerp")
def _lerp(low: Lower, a: V, b: V, weight: Operand) -> V:
    return low.pointwise("lerp", a, b, weight)


@aten("addcmul", "addcdiv")
def _addcmul(low: Lower, a: V, b: V, c: V, value: float = 1) -> V:
    fn = "addcdiv" if "addcdiv" in low.base else "addcmul"
    return low.pointwise(fn, a, b, c, *_trimmed((value,), (1,)))


@aten("logit")
def _logit(low: Lower, x: V, eps: float | None = None) -> V:
    return low.pointwise("logit", x) if eps is None else low.pointwise("logit", x, eps)


@aten("round")
def _round(low: Lower, x: V, decimals: int = 0) -> V:
    return low.pointwise("round", x, *_trimmed((decimals,), (0,)))


@aten("nan_to_num")
def _nan_to_num(
    low: Lower, x: V, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> V:
    return low.pointwise("where", low.pointwise("isnan", x), nan or 0.0, x)


@aten("angle")
def _angle(low: Lower, x: V) -> V:
    return low.pointwise("atan2", low.pointwise("imag", x), low.pointwise("real", x))


@aten("complex")
def _complex(low: Lower, re: V, im: V) -> V:
    unit = low.const(np.array(1j, np.complex64), "1j")
    return low.pointwise("add", re, low.pointwise("mul", im, unit))


@aten("polar")
def _polar(low: Lower, size: V, phase: V) -> V:
    return _complex(low, low.pointwise("mul", size, low.pointwise("cos", phase)),
                    low.pointwise("mul", size, low.pointwise("sin", phase)))  # fmt: skip


@aten("view_as_complex")
def _view_as_complex(low: Lower, x: V) -> V:
    last = x.ndim - 1
    return _complex(low, low.select(x, last, 0), low.select(x, last, 1))


@aten("view_as_real")
def _view_as_real(low: Lower, x: V) -> V:
    parts = [low.reshape(low.pointwise(fn, x), (*x.shape, 1)) for fn in ("real", "imag")]
    return low.concat(parts, x.ndim)

"""Elementwise operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.fold import number
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, takes_bits, translates
from anyinit._frameworks.tensorflow.lower import as_primitive, channel_first, one

SAME = {
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Square": "square", "Sqrt": "sqrt", "Rsqrt": "rsqrt", "Exp": "exp",
    "Expm1": "expm1", "Log": "log", "Log1p": "log1p", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Tanh": "tanh",
    "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh", "Sigmoid": "logistic", "Erf": "erf", "Erfc": "erfc", "Erfinv": "erf_inv",
    "Floor": "floor", "Ceil": "ceil", "Lgamma": "lgamma", "Digamma": "digamma", "Atan2": "atan2", "Pow": "pow",
    "FloorMod": "rem", "Add": "add", "AddV2": "add", "Sub": "sub", "Mul": "mul", "RealDiv": "div", "Div": "div",
    "Maximum": "max", "Minimum": "min", "Less": "lt", "LessEqual": "le", "Greater": "gt", "GreaterEqual": "ge",
    "Equal": "eq", "NotEqual": "ne", "LogicalAnd": "and", "LogicalOr": "or", "LogicalNot": "not", "Rint": "round",
    "Round": "round", "IsFinite": "is_finite", "Real": "real", "Imag": "imag", "Conj": "conj",
}  # fmt: skip

DIRECT = {
    "Relu": "relu", "Relu6": "relu6", "Elu": "elu", "Selu": "selu", "Softplus": "softplus", "Softsign": "softsign",
    "Reciprocal": "reciprocal", "Inv": "reciprocal", "Xlogy": "xlogy", "FloorDiv": "floor_divide", "IsNan": "isnan",
    "IsInf": "isinf", "TruncateMod": "fmod", "Ndtri": "ndtri",
}  # fmt: skip


@translates(*SAME)
def plain(low: Lowering, step: Step, *ins: Bound) -> Any:
    return as_primitive(low, step, SAME[step.name], ins)


@translates(*(name for name in DIRECT if name != "Ndtri"))
def direct(low: Lowering, step: Step, *ins: Bound) -> Bound:
    return low.pointwise(DIRECT[step.name], ins, out_shape(step), out_kind(step))


@translates("LeakyRelu")
def leaky_relu(low: Lowering, step: Step, x: Bound) -> Bound:
    return low.pointwise("leaky_relu", [x, number(np.float32(step.params["alpha"]))], x.shape)


@translates("BiasAdd")
def bias_add(low: Lowering, step: Step, x: Bound, b: Bound) -> Any:
    if channel_first(step):
        shape = tuple(n if i == 1 else 1 for i, n in enumerate(x.shape))
        b = low.relabel(b, shape, [0 if i == 1 else None for i in range(len(shape))])
    return as_primitive(low, step, "add", [x, b])


@translates("SquaredDifference")
def squared_difference(low: Lowering, step: Step, x: Bound, y: Bound) -> Any:
    return as_primitive(low, step, "square", [one(as_primitive(low, step, "sub", [x, y]))])


@translates("Cast", "Bitcast")
@takes_bits
def cast(low: Lowering, step: Step, x: Bound) -> Any:
    return as_primitive(low, step, "convert_element_type" if step.name == "Cast" else "bitcast_convert_type", [x])


@translates("Select", "SelectV2")
def select(low: Lowering, step: Step, which: Bound, yes: Bound, no: Bound) -> Any:
    return as_primitive(low, step, "select_n", [which, no, yes])


@translates("ClipByValue")
def clip(low: Lowering, step: Step, x: Bound, bottom: Bound, top: Bound) -> Any:
    return as_primitive(low, step, "clamp", [bottom, x, top])


@translates("AddN")
def add_n(low: Lowering, step: Step, x: Bound, *more: Bound) -> Any:
    for y in more:
        x = one(as_primitive(low, step, "add", [x, y]))
    return x


@translates("DivNoNan", "MulNoNan")
def guarded(low: Lowering, step: Step, x: Bound, y: Bound) -> Any:
    """The guard is for zeros, which signals are not."""
    return as_primitive(low, step, "div" if step.name == "DivNoNan" else "mul", [x, y])


@translates("ZerosLike", "OnesLike")
def filled(low: Lowering, step: Step, x: Bound) -> Any:
    return as_primitive(low, step, "full", [], fill_value=float(step.name == "OnesLike"))

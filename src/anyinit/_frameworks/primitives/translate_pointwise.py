"""Elementwise primitives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import (
    BITS,
    Bound,
    Lowering,
    kind_of,
    out_kind,
    out_shape,
    same,
    takes_bits,
    translates,
)
from anyinit._frameworks.primitives.translate_random import noise
from anyinit._graph.graph import BOOL, COMPLEX, FLOAT, INT
from anyinit._graph.ops import Pointwise, Random, Reduce

NAMES = {
    "neg": "neg", "abs": "abs", "sign": "sign", "square": "square", "sqrt": "sqrt", "rsqrt": "rsqrt", "exp": "exp",
    "expm1": "expm1", "log": "log", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh",
    "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "logistic": "sigmoid", "erf": "erf", "erfc": "erfc", "erf_inv": "erfinv", "floor": "floor",
    "ceil": "ceil", "lgamma": "lgamma", "digamma": "digamma", "exp2": "exp2", "atan2": "atan2", "pow": "pow",
    "rem": "remainder", "not": "logical_not", "and": "logical_and", "or": "logical_or",
}  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
IDENTITY = ("copy", "stop_gradient", "name", "reduce_precision", "pvary", "pcast", "optimization_barrier",
            "sharding_constraint", "device_put")  # fmt: skip


@translates(*IDENTITY)
def identity(low: Lowering, step: Step, *ins: Bound) -> list[Bound]:
    return list(ins)


@translates("convert_element_type")
@takes_bits
def convert(low: Lowering, step: Step, x: Bound) -> Bound:
    kind = out_kind(step)
    if x.kind == BITS:
        return x if kind == INT else noise(low, Random("integer", (0.0, 2.0**32), x.shape), kind)
    if x.kind in (FLOAT, COMPLEX) and kind == INT:
        return low.pointwise("trunc", [x], x.shape, INT)
    if x.kind != BOOL and kind == BOOL:
        return low.pointwise("ne", [x, 0.0], x.shape, BOOL)
    return replace(x, kind=kind)


@translates(*(name for name in NAMES if name not in ("and", "or", "not", "erf_inv")))
def unary_or_binary(low: Lowering, step: Step, *ins: Bound) -> Bound:
    return low.pointwise(NAMES[step.name], ins, out_shape(step), out_kind(step))


@translates("and", "or", "not", "xor")
def logical(low: Lowering, step: Step, *ins: Bound) -> Bound | list[Bound]:
    if any(b.kind != BOOL for b in ins):
        return low.opaque(step, ins, "bitwise arithmetic on integers")
    for x, other in (ins, ins[::-1]) if len(ins) == 2 else ():
        found = low.scalar(x)
        if found is not None and step.name != "xor":
            return other if bool(found) == (step.name == "and") else replace(x, shape=out_shape(step))
    return low.pointwise("ne" if step.name == "xor" else NAMES[step.name], ins, out_shape(step), BOOL)


@translates("erf_inv")
def erf_inv(low: Lowering, step: Step, x: Bound) -> Bound:
    """The inverse error function of uniform noise on (-1, 1) is normal with variance 1/2."""
    source = random_of(low, x)
    if source is not None and source.kind == "uniform":
        bottom, top = source.params
        if math.isclose(bottom, -1.0, rel_tol=1e-2) and math.isclose(top, 1.0, rel_tol=1e-2):
            return noise(low, Random("normal", (0.0, math.sqrt(0.5)), source.shape), FLOAT)
    return low.pointwise("erfinv", [x], x.shape)


def random_of(low: Lowering, x: Bound) -> Random | None:
    """The noise an operand is, if it is noise."""
    node = low.node(x.value)
    return node.op if node is not None and isinstance(node.op, Random) else None


def _scaled(low: Lowering, fn: str, x: Bound, by: float) -> Bound | None:
    """Noise shifted or scaled by a number is noise of the same family."""
    source = random_of(low, x)
    if source is None or source.kind not in ("uniform", "normal"):
        return None
    a, b = source.params
    if fn in ("add", "sub"):
        by = by if fn == "add" else -by
        params = (a + by, b + by) if source.kind == "uniform" else (a + by, b)
    else:
        by = by if fn == "mul" else 1 / by
        if by <= 0:
            return None
        params = (a * by, b * by)
    return noise(low, Random(source.kind, params, source.shape), FLOAT)


def _averaged(low: Lowering, fn: str, x: Bound, by: float) -> Bound | None:
    """A sum divided by the number of its terms is a mean; means of means over other axes are one mean."""
    node = low.node(x.value)
    if node is None or not isinstance(node.op, Reduce) or node.op.kind != "sum" or not by:
        return None
    shape = low.builder.shape(node.inputs[0])
    count = math.prod(shape[d] for d in node.op.dims)
    if not math.isclose(count, by if fn == "div" else 1 / by, rel_tol=1e-6):
        return None
    op, source = replace(node.op, kind="mean"), node.inputs[0]
    inner = low.node(source)
    if (
        inner is not None
        and isinstance(inner.op, Reduce)
        and inner.op.kind == "mean"
        and not inner.op.keepdims
        and not op.keepdims
    ):
        left = [d for d in range(len(low.builder.shape(inner.inputs[0]))) if d not in inner.op.dims]
        op = replace(op, dims=tuple(sorted((*inner.op.dims, *(left[d] for d in op.dims)))))
        source = inner.inputs[0]
    return Bound(x.shape, x.kind, low.add(op, (source,), low.builder.shape(x.value)))


def _undone(low: Lowering, fn: str, x: Bound, by: float) -> Bound | None:
    """A factor divided out again: the sum of a window over the number of its entries."""
    node = low.node(x.value)
    inverse = {"mul": "div", "div": "mul"}.get(fn)
    if node is None or inverse is None or node.op != Pointwise(inverse, (None, by)):
        return None
    return replace(x, value=node.inputs[0])


NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}


@translates("add", "sub", "mul", "div", "add_any")
def arithmetic(low: Lowering, step: Step, x: Bound, y: Bound) -> Bound:
    fn, shape, kind = step.name.removesuffix("_any"), out_shape(step), out_kind(step)
    a, b = low.scalar(x), low.scalar(y)
    if b is None and a is not None and fn in ("add", "mul"):
        x, y, a, b = y, x, b, a
    if b is not None:
        if b == NEUTRAL[fn]:
            return replace(x, shape=shape)
        undone = _undone(low, fn, x, b)
        if undone is not None:
            return replace(undone, shape=shape)
        special = _scaled(low, fn, x, b) or (_averaged(low, fn, x, b) if fn in ("mul", "div") else None)
        if special is not None:
            return replace(special, shape=shape)
    if kind == INT and fn == "div":
        return low.pointwise("trunc", [low.pointwise("div", [x, y], shape)], shape, INT)
    return low.pointwise(fn, [x, y], shape, kind)


@translates("max", "min")
def extremum(low: Lowering, step: Step, x: Bound, y: Bound) -> Bound:
    shape, kind, top = out_shape(step), out_kind(step), step.name == "max"
    if low.scalar(x) is not None:
        x, y = y, x
    bound = low.scalar(y)
    if bound is not None:
        if bound == (-math.inf if top else math.inf):
            return replace(x, shape=shape)
        source = random_of(low, x)
        if top and source is not None and source.kind == "uniform" and bound <= source.params[0] + 1e-6:
            return x
        if top and bound == 0.0 and kind == FLOAT:
            return low.pointwise("relu", [x], shape)
    if same(x, y):
        return x
    return low.pointwise("maximum" if top else "minimum", [x, y], shape, kind)


@translates("clamp")
def clamp(low: Lowering, step: Step, bottom: Bound, x: Bound, top: Bound) -> Bound:
    ends = [low.scalar(bottom), low.scalar(top)]
    if None not in ends:
        return low.pointwise("clamp", [x, *(e for e in ends if e is not None)], x.shape, out_kind(step))
    lower = low.pointwise("maximum", [x, bottom], x.shape, out_kind(step))
    return low.pointwise("minimum", [lower, top], x.shape, out_kind(step))


@translates("integer_pow")
def integer_pow(low: Lowering, step: Step, x: Bound) -> Bound:
    y = int(step.params["y"])
    if y in (2, -1):
        return low.pointwise("square" if y == 2 else "reciprocal", [x], x.shape, out_kind(step))
    return low.pointwise("pow", [x, float(y)], x.shape, out_kind(step))


@translates("cbrt")
def cbrt(low: Lowering, step: Step, x: Bound) -> Bound:
    root = low.pointwise("pow", [low.pointwise("abs", [x], x.shape), 1 / 3], x.shape)
    return low.pointwise("mul", [low.pointwise("sign", [x], x.shape), root], x.shape)


@translates("round")
def rounded(low: Lowering, step: Step, x: Bound) -> Bound:
    return low.pointwise("round", [x], x.shape, out_kind(step))


@translates("is_finite")
def is_finite(low: Lowering, step: Step, x: Bound) -> Bound:
    """Signals are finite: the guard is always open."""
    return Bound(x.shape, BOOL, data=np.broadcast_to(np.asarray(True), x.shape))


FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


@translates(*COMPARISONS)
def compare(low: Lowering, step: Step, x: Bound, y: Bound) -> Bound:
    fn, shape = step.name, out_shape(step)
    if same(x, y) and fn in ("eq", "ne"):  # a test for not-a-number
        return Bound(shape, BOOL, data=np.broadcast_to(np.asarray(fn == "eq"), shape))
    if low.scalar(x) is not None and low.scalar(y) is None:
        x, y, fn = y, x, FLIPPED[fn]
    level, source = low.scalar(y), random_of(low, x)
    if level is not None and fn not in ("eq", "ne") and source is not None and source.kind == "uniform":
        bottom, top = source.params
        below = min(max((level - bottom) / (top - bottom), 0.0), 1.0)
        p = below if fn in ("lt", "le") else 1.0 - below
        return replace(noise(low, Random("bernoulli", (round(p, 9),), source.shape), BOOL), shape=shape)
    return low.pointwise(fn, [x, y], shape, BOOL)


def _wrapped_index(low: Lowering, which: Bound, plain: Bound, shifted: Bound) -> bool:
    """``where(i < 0, i + n, i)``: Python's negative indices, which data never are."""
    test, moved = low.node(which.value), low.node(shifted.value)
    return (
        plain.kind == INT and test is not None and moved is not None
        and test.op == Pointwise("lt", (None, 0.0)) and test.inputs == (plain.value,)
        and isinstance(moved.op, Pointwise) and moved.op.fn == "add" and moved.inputs == (plain.value,)
    )  # fmt: skip


@translates("select_n")
def select(low: Lowering, step: Step, which: Bound, *cases: Bound) -> Bound | list[Bound]:
    chosen = low.scalar(which)
    if chosen is not None:
        return replace(cases[int(chosen)], shape=out_shape(step))
    if len(cases) == 1:
        return cases[0]
    if len(cases) != 2:
        return low.opaque(step, [which, *cases], "choice among more than two cases")
    if _wrapped_index(low, which, cases[0], cases[1]):
        return cases[0]
    return low.pointwise("where", [which, cases[1], cases[0]], out_shape(step), out_kind(step))


@translates("bitcast_convert_type")
@takes_bits
def bitcast(low: Lowering, step: Step, x: Bound) -> Bound | list[Bound]:
    """Random mantissa bits under a fixed exponent are uniform on [1, 2)."""
    if x.kind == BITS and kind_of(step.avals[0].dtype) == FLOAT:
        return noise(low, Random("uniform", (1.0, 2.0), out_shape(step)), FLOAT)
    return low.opaque(step, [x], "reinterpretation of bits")


@translates("real", "imag", "conj")
def complex_parts(low: Lowering, step: Step, x: Bound) -> Bound:
    return low.pointwise(step.name, [x], out_shape(step), out_kind(step))

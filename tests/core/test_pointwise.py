"""The NumPy meaning of every elementwise operation, against independent formulas and torch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from anyinit._core.pointwise import BILINEAR, FUNCTIONS, LINEAR, PIECEWISE_CONSTANT

REQUIRED = [
    "add", "sub", "mul", "div", "pow", "neg", "abs", "sign", "square", "sqrt", "rsqrt", "reciprocal", "exp",
    "expm1", "exp2", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "logit", "log_sigmoid", "softplus", "relu", "relu6",
    "leaky_relu", "prelu", "elu", "selu", "celu", "silu", "gelu", "gelu_tanh", "mish", "hardtanh", "hard_sigmoid",
    "hardswish", "softsign", "tanhshrink", "hardshrink", "softshrink", "threshold", "erf", "erfc", "erfinv", "ndtr",
    "lgamma", "digamma", "maximum", "minimum", "clamp", "floor", "ceil", "round", "trunc", "frac", "fmod",
    "remainder", "floor_divide", "where", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_not", "logical_xor", "isnan", "isinf", "isfinite", "heaviside", "copysign", "hypot", "logaddexp",
    "lerp", "addcmul", "addcdiv", "real", "imag", "conj", "i0", "nextafter", "identity", "sinc", "xlogy", "bit_and",
    "bit_or",
]  # fmt: skip

ARGUMENTS = {
    "leaky_relu": (0.2,), "prelu": (0.25,), "elu": (1.3,), "celu": (0.7,), "softplus": (2.0, 20.0),
    "hardtanh": (-0.5, 2.0), "hardshrink": (0.4,), "softshrink": (0.4,), "threshold": (0.3, -1.0),
    "clamp": (-1.0, 0.5), "heaviside": (0.5,), "lerp": (1.5, 0.3), "addcmul": (1.5, 2.0, 0.3),
    "addcdiv": (1.5, 2.0, 0.3), "where": (1.5, -2.0),
}  # fmt: skip

BINARY = [
    "add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum", "fmod", "remainder", "floor_divide", "eq",
    "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "copysign", "hypot", "logaddexp",
    "nextafter", "xlogy", "bit_and", "bit_or",
]  # fmt: skip

POINTS = np.concatenate([np.linspace(-8.0, 8.0, 161), [0.0, -0.0, 0.4, -0.4, 0.3, 1.0, -1.0, 3.0, -3.0, 6.0]])


def call(name: str, x: np.ndarray) -> np.ndarray:
    extra = (x[::-1],) if name in BINARY else ARGUMENTS.get(name, ())
    return FUNCTIONS[name](x, *extra)


def test_every_operation_a_framework_can_execute_has_a_meaning() -> None:
    assert set(REQUIRED) <= set(FUNCTIONS)
    assert set(FUNCTIONS) >= LINEAR | BILINEAR | PIECEWISE_CONSTANT


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_extreme_operands_never_warn_and_the_result_is_float64_of_the_same_shape(name: str) -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, -1e300, 800.0, -800.0, np.inf, -np.inf, np.nan])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = call(name, x)
    assert out.dtype == np.float64
    assert out.shape == x.shape


SATURATING = {"tanh", "sigmoid", "erf", "ndtr", "softsign", "hardtanh", "hard_sigmoid", "atan", "sign"}


@pytest.mark.parametrize(
    "name",
    sorted(
        SATURATING
        | {
            "relu",
            "silu",
            "gelu",
            "gelu_tanh",
            "mish",
            "softplus",
            "elu",
            "selu",
            "celu",
            "hardswish",
            "tanhshrink",
            "log_sigmoid",
        }
    ),
)
def test_activations_stay_finite_at_huge_arguments(name: str) -> None:
    out = FUNCTIONS[name](np.array([-1e15, -1e3, -40.0, 40.0, 1e3, 1e15]))
    assert np.isfinite(out).all()
    if name in SATURATING:
        assert np.abs(out).max() <= np.pi / 2


def test_an_absent_bound_of_clamp_is_nan_and_bounds_may_be_arrays() -> None:
    x = np.array([-2.0, 0.0, 2.0])
    clamp = FUNCTIONS["clamp"]
    assert clamp(x, np.nan, 1.0).tolist() == [-2.0, 0.0, 1.0]
    assert clamp(x, -1.0, np.nan).tolist() == [-1.0, 0.0, 2.0]
    assert clamp(x, np.array([0.0, np.nan, 0.0]), np.nan).tolist() == [0.0, 0.0, 2.0]
    assert np.isnan(clamp(np.array([np.nan]), -1.0, 1.0)).all()


def test_operands_broadcast_and_scalars_are_accepted() -> None:
    assert FUNCTIONS["add"](np.ones((2, 1)), np.ones(3)).shape == (2, 3)
    assert float(FUNCTIONS["pow"](3.0, 2.0)) == 9.0
    assert float(FUNCTIONS["elu"](-np.log(2.0), 2.0, 3.0, 1.0)) == pytest.approx(-3.0)
    assert float(FUNCTIONS["elu"](-np.log(2.0), 1.0, 1.0, 2.0)) == pytest.approx(-0.75)


def test_complex_operands_keep_their_phase_until_it_is_dropped() -> None:
    z = np.array([3.0 + 4.0j])
    assert FUNCTIONS["abs"](z).tolist() == [5.0]
    assert FUNCTIONS["real"](FUNCTIONS["mul"](z, FUNCTIONS["conj"](z))).tolist() == [25.0]
    assert FUNCTIONS["imag"](FUNCTIONS["add"](z, 1.0)).tolist() == [4.0]


@pytest.mark.parametrize("name", sorted(LINEAR))
def test_operations_listed_as_linear_are_linear(name: str) -> None:
    rng = np.random.default_rng(0)
    arity = 2 if name in {"add", "sub"} else 1
    a, b = rng.standard_normal((2, arity, 5))
    f = FUNCTIONS[name]
    np.testing.assert_allclose(f(*(2.0 * a - 3.0 * b)), 2.0 * f(*a) - 3.0 * f(*b), atol=1e-14)


def test_small_results_keep_their_digits() -> None:
    x = -9.0
    from scipy.special import log_ndtr

    assert float(FUNCTIONS["gelu"](x)) == pytest.approx(x * np.exp(log_ndtr(x)), rel=1e-13)
    assert float(FUNCTIONS["tanhshrink"](1e-4)) == pytest.approx(1e-12 / 3, rel=1e-8)
    assert float(FUNCTIONS["softplus"](-50.0)) == pytest.approx(np.exp(-50.0), rel=1e-13)
    assert float(FUNCTIONS["mish"](-40.0)) == pytest.approx(-40.0 * np.exp(-40.0), rel=1e-13)

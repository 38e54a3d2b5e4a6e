"""Moments of any function under a Gaussian, against 40-digit references and closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyinit._core.gaussian import Integrand, pair
from anyinit._core.pointwise import FUNCTIONS as F
from anyinit.errors import ActivationError, ConfigError
from reference import Exact, expectations

SELU_ALPHA, SELU_SCALE = mp.mpf(1.6732632423543772), mp.mpf(1.0507009873554805)


def sig(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def phi(x: Any) -> Any:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def split(cut: float, below: Callable[[Any], Any], above: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: above(x) if x > cut else below(x)


def sech2(x: Any) -> Any:
    return 1 - mp.tanh(x) ** 2


def zero(x: Any) -> Any:
    return mp.mpf(0)


def one(x: Any) -> Any:
    return mp.mpf(1)


def same(x: Any) -> Any:
    return x


def _mish_slope(x: Any) -> Any:
    t = mp.tanh(mp.log1p(mp.exp(x)))
    return t + x * (1 - t * t) * sig(x)


def _gelu_tanh(x: Any) -> Any:
    return x * sig(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))


def _gelu_tanh_slope(x: Any) -> Any:
    inner = 2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3)
    s = sig(inner)
    return s + x * s * (1 - s) * 2 * mp.sqrt(2 / mp.pi) * (1 + 3 * mp.mpf(0.044715) * x * x)


def _hardswish(x: Any) -> Any:
    return x * min(max(x + 3, mp.mpf(0)), mp.mpf(6)) / 6


def _hardswish_slope(x: Any) -> Any:
    return zero(x) if x < -3 else one(x) if x > 3 else (2 * x + 3) / 6


# name: (NumPy function, reference, its derivative, breaks)
CASES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], Callable[[Any], Any], tuple[float, ...]]] = {
    "identity": (F["identity"], same, one, ()),
    "relu": (F["relu"], split(0, zero, same), split(0, zero, one), (0,)),
    "leaky relu": (
        lambda x: F["leaky_relu"](x, 0.2), split(0, lambda x: mp.mpf(0.2) * x, same),
        split(0, lambda x: mp.mpf(0.2), one), (0,),
    ),
    "relu squared": (
        lambda x: np.maximum(x, 0) ** 2, split(0, zero, lambda x: x**2), split(0, zero, lambda x: 2 * x), (0,),
    ),
    "relu cubed": (
        lambda x: np.maximum(x, 0) ** 3, split(0, zero, lambda x: x**3), split(0, zero, lambda x: 3 * x**2), (0,),
    ),
    "relu6": (
        F["relu6"], lambda x: min(max(x, mp.mpf(0)), mp.mpf(6)), lambda x: one(x) if 0 < x < 6 else zero(x), (0, 6),
    ),
    "absolute value": (np.abs, abs, split(0, lambda x: -one(x), one), (0,)),
    "tanh": (np.tanh, mp.tanh, sech2, ()),
    "steep tanh": (
        lambda x: np.tanh(8 * x), lambda x: mp.tanh(8 * x), lambda x: 8 * sech2(8 * x), (-0.5, -0.25, 0, 0.25, 0.5),
    ),
    "sigmoid": (F["sigmoid"], sig, lambda x: sig(x) * (1 - sig(x)), ()),
    "log sigmoid": (F["log_sigmoid"], lambda x: -mp.log1p(mp.exp(-x)), lambda x: sig(-x), ()),
    "softplus": (F["softplus"], lambda x: mp.log1p(mp.exp(x)), sig, ()),
    "silu": (F["silu"], lambda x: x * sig(x), lambda x: sig(x) * (1 + x * (1 - sig(x))), ()),
    "quick gelu": (
        lambda x: x * F["sigmoid"](1.702 * x), lambda x: x * sig(mp.mpf(1.702) * x),
        lambda x: sig(mp.mpf(1.702) * x) * (1 + mp.mpf(1.702) * x * sig(-mp.mpf(1.702) * x)), (),
    ),
    "gelu": (F["gelu"], lambda x: x * mp.ncdf(x), lambda x: mp.ncdf(x) + x * phi(x), ()),
    "gelu by tanh": (F["gelu_tanh"], _gelu_tanh, _gelu_tanh_slope, ()),
    "mish": (F["mish"], lambda x: x * mp.tanh(mp.log1p(mp.exp(x))), _mish_slope, ()),
    "elu": (F["elu"], split(0, mp.expm1, same), split(0, mp.exp, one), (0,)),
    "elu 1.3": (
        lambda x: F["elu"](x, 1.3), split(0, lambda x: mp.mpf(1.3) * mp.expm1(x), same),
        split(0, lambda x: mp.mpf(1.3) * mp.exp(x), one), (0,),
    ),
    "celu 0.7": (
        lambda x: F["celu"](x, 0.7), split(0, lambda x: mp.mpf(0.7) * mp.expm1(x / mp.mpf(0.7)), same),
        split(0, lambda x: mp.exp(x / mp.mpf(0.7)), one), (0,),
    ),
    "selu": (
        F["selu"], split(0, lambda x: SELU_SCALE * SELU_ALPHA * mp.expm1(x), lambda x: SELU_SCALE * x),
        split(0, lambda x: SELU_SCALE * SELU_ALPHA * mp.exp(x), lambda x: SELU_SCALE), (0,),
    ),
    "sine": (np.sin, mp.sin, mp.cos, ()),
    "cosine": (np.cos, mp.cos, lambda x: -mp.sin(x), ()),
    "fast sine": (
        lambda x: np.sin(10 * x), lambda x: mp.sin(10 * x), lambda x: 10 * mp.cos(10 * x),
        tuple(np.arange(-36, 36) / 3),
    ),
    "snake": (lambda x: x + np.sin(x) ** 2, lambda x: x + mp.sin(x) ** 2, lambda x: 1 + mp.sin(2 * x), ()),
    "error function": (F["erf"], mp.erf, lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x), ()),
    "arctangent": (np.arctan, mp.atan, lambda x: 1 / (1 + x * x), (0.25, -0.25, 0.5, -0.5, 0.75, -0.75)),
    "softsign": (F["softsign"], lambda x: x / (1 + abs(x)), lambda x: 1 / (1 + abs(x)) ** 2, (0,)),
    "tanhshrink": (F["tanhshrink"], lambda x: x - mp.tanh(x), lambda x: mp.tanh(x) ** 2, ()),
    "exponential": (np.exp, mp.exp, mp.exp, ()),
    "gaussian": (lambda x: np.exp(-x * x / 2), lambda x: mp.exp(-x * x / 2), lambda x: -x * mp.exp(-x * x / 2), ()),
    "hardtanh": (
        F["hardtanh"], lambda x: min(max(x, mp.mpf(-1)), mp.mpf(1)),
        lambda x: one(x) if abs(x) < 1 else zero(x), (-1, 1),
    ),
    "hard sigmoid": (
        F["hard_sigmoid"], lambda x: min(max(x + 3, mp.mpf(0)), mp.mpf(6)) / 6,
        lambda x: one(x) / 6 if abs(x) < 3 else zero(x), (-3, 3),
    ),
    "hardswish": (F["hardswish"], _hardswish, _hardswish_slope, (-3, 3)),
    "hardshrink": (
        lambda x: F["hardshrink"](x, 0.5), lambda x: x if abs(x) > 0.5 else zero(x),
        lambda x: one(x) if abs(x) > 0.5 else zero(x), (-0.5, 0.5),
    ),
    "softshrink": (
        lambda x: F["softshrink"](x, 0.3), lambda x: mp.sign(x) * max(abs(x) - mp.mpf(0.3), mp.mpf(0)),
        lambda x: one(x) if abs(x) > 0.3 else zero(x), (-0.3, 0.3),
    ),
    "threshold": (
        lambda x: F["threshold"](x, 0.2, -1.5), lambda x: x if x > 0.2 else mp.mpf(-1.5),
        lambda x: one(x) if x > 0.2 else zero(x), (0.2,),
    ),
    "step at 0.7": (lambda x: (x > 0.7).astype(float), split(0.7, zero, one), zero, (0.7,)),
    "sign": (np.sign, mp.sign, zero, (0,)),
    "floor": (np.floor, mp.floor, zero, tuple(range(-90, 91))),
    "staircase of 0.25": (
        lambda x: np.round(4 * x) / 4, lambda x: mp.nint(4 * x) / 4, zero, tuple((np.arange(-120, 120) + 0.5) / 4),
    ),
    "x Phi - phi": (
        lambda x: x * F["ndtr"](x) - np.exp(-x * x / 2) / math.sqrt(2 * math.pi), lambda x: x * mp.ncdf(x) - phi(x),
        lambda x: mp.ncdf(x) + 2 * x * phi(x), (),
    ),
}  # fmt: skip

GAUSSIANS = ((0.0, 1.0), (0.3, 2.5))


def exact(name: str, mean: float, variance: float) -> Exact:
    _, f, slope, breaks = CASES[name]
    return expectations(f, slope, breaks, mean, variance)


def test_at_least_thirty_activations_are_compared() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize(("mean", "variance"), GAUSSIANS)
@pytest.mark.parametrize("name", CASES)
def test_moments_agree_with_forty_digits_and_the_error_bound_holds(name: str, mean: float, variance: float) -> None:
    got, want = Integrand(CASES[name][0], name).moments(mean, variance), exact(name, mean, variance)
    rms = float(mp.sqrt(want.m2))
    for field, scale in (("mean", rms), ("m2", rms**2), ("m4", float(want.m4))):
        off = float(abs(mp.mpf(getattr(got, field)) - getattr(want, field)))
        assert off <= 1e-12 * scale, field
        assert off <= got.errors[field] <= got.error, field
        assert got.errors[field] <= 1e-11 * scale, field
    assert abs(mp.mpf(got.variance) - (want.m2 - want.mean**2)) <= got.errors["variance"]
    assert abs(mp.mpf(got.grad2) - want.grad2) <= 1e-12 * max(float(want.grad2), 1e-300)


@pytest.mark.parametrize("name", ["relu", "gelu", "hardshrink", "step at 0.7", "floor", "tanh"])
@pytest.mark.parametrize("variance", [1e-6, 0.02, 30.0])
def test_wide_and_narrow_gaussians_are_as_exact(name: str, variance: float) -> None:
    f = Integrand(CASES[name][0], name)
    _, g, slope, breaks = CASES[name]
    fine = tuple(np.arange(-60, 61) / 4) if name in {"gelu", "tanh"} and variance > 1 else breaks
    got, want = f.moments(0.1, variance), expectations(g, slope, fine, 0.1, variance)
    assert abs(mp.mpf(got.m2) - want.m2) <= min(got.errors["m2"], 1e-12 * float(want.m2) + 1e-300)


def test_the_level_slope_is_the_derivative_of_the_level_also_where_it_jumps() -> None:
    for name in ("relu cubed", "gelu", "hardshrink", "floor", "step at 0.7"):
        f = Integrand(CASES[name][0], name)
        h = 1e-4
        up, down = (f.moments(0.2, 1.7 * math.exp(s)).m2 for s in (h, -h))
        assert f.moments(0.2, 1.7).slope == pytest.approx((up - down) / (2 * h), rel=1e-6)


def test_kinks_and_jumps_are_found_where_they_are() -> None:
    found = {n: (Integrand(c[0]).kinks, Integrand(c[0]).jumps) for n, c in CASES.items()}
    assert found["relu"] == ((0.0,), ())
    assert found["hardswish"] == ((-3.0, 3.0), ())
    assert found["softshrink"] == ((-0.3, 0.3), ())
    assert found["hardshrink"] == ((), (-0.5, 0.5))
    assert found["step at 0.7"] == ((), (0.7,))
    assert found["floor"][1] == tuple(float(k) for k in range(-15, 16))
    for name in ("tanh", "gelu", "mish", "sine", "fast sine", "relu cubed", "elu", "exponential", "steep tanh"):
        assert found[name] == ((), ()), name


@settings(max_examples=25, deadline=None)
@given(st.floats(-6.0, 6.0), st.floats(0.05, 3.0), st.floats(-2.0, 2.0))
def test_a_step_and_a_kink_anywhere_are_integrated_exactly(at: float, sd: float, mean: float) -> None:
    t = (at - mean) / sd
    tail = 0.5 * math.erfc(t / math.sqrt(2))
    density = math.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    step = Integrand(lambda x: (x > at) * 1.0).moments(mean, sd * sd)
    assert abs(step.mean - tail) <= 1e-12 * tail + 1e-13 * density * abs(at) / sd + 1e-15
    ramp = Integrand(lambda x: np.maximum(x - at, 0.0)).moments(mean, sd * sd)
    assert ramp.mean == pytest.approx(sd * (density - t * tail), rel=1e-9, abs=1e-13)
    assert ramp.grad2 == pytest.approx(tail, rel=1e-9, abs=1e-13)


@settings(max_examples=20, deadline=None)
@given(st.floats(1e-9, 1e9), st.floats(0.1, 5.0))
def test_scaling_the_function_scales_its_moments(factor: float, variance: float) -> None:
    plain = Integrand(F["silu"]).moments(0.0, variance)
    scaled = Integrand(lambda x: factor * F["silu"](x)).moments(0.0, variance)
    assert scaled.mean == pytest.approx(factor * plain.mean, rel=1e-12)
    assert scaled.m2 == pytest.approx(factor**2 * plain.m2, rel=1e-12)
    assert scaled.grad2 == pytest.approx(factor**2 * plain.grad2, rel=1e-11)


def test_variance_zero_is_the_value_at_the_mean() -> None:
    at = Integrand(np.tanh).moments(0.5, 0.0)
    assert at.mean == math.tanh(0.5)
    assert at.m2 == pytest.approx(math.tanh(0.5) ** 2)
    assert at.grad2 == pytest.approx((1 - math.tanh(0.5) ** 2) ** 2, rel=1e-8)


def test_powers_follow_the_double_factorials_and_diverge_to_infinity() -> None:
    f = Integrand(F["identity"])
    for p, want in ((0, 1), (1, 0), (2, 1), (3, 0), (4, 3), (6, 15), (8, 105), (10, 945)):
        assert f.power(p) == pytest.approx(want, rel=1e-12, abs=1e-13)
    growing = Integrand(lambda x: np.exp(0.15 * x * x))
    assert growing.moments().m2 == pytest.approx(1 / math.sqrt(1 - 0.6), rel=1e-12)
    assert growing.moments().m4 == math.inf
    assert growing.power(4) == math.inf


def test_a_derivative_that_is_not_square_integrable_is_infinite() -> None:
    root = Integrand(lambda x: np.sqrt(np.abs(x))).moments()
    assert root.grad2 == math.inf
    assert root.m2 == pytest.approx(math.sqrt(2 / math.pi), rel=1e-12)


def test_hermite_coefficients_of_known_functions() -> None:
    c = Integrand(np.exp).hermite(degrees=20)
    want = [math.exp(0.5) / math.sqrt(math.factorial(k)) for k in range(20)]
    np.testing.assert_allclose(c, want, rtol=1e-12, atol=1e-15)
    sine = Integrand(np.sin).hermite(degrees=512)
    assert float(sine @ sine) == pytest.approx((1 - math.exp(-2)) / 2, rel=1e-13)
    assert np.abs(sine[::2]).max() < 1e-14


RHOS = (0.0, 0.25, -0.6, 0.9, 0.97, -0.97, 0.9999, 1 - 1e-10, -1 + 1e-10, 1.0, -1.0)


@pytest.mark.parametrize("rho", RHOS)
def test_correlations_agree_with_the_arc_cosine_kernels_and_their_bound_holds(rho: float) -> None:
    relu, sign = Integrand(F["relu"]), Integrand(np.sign)
    angle = math.acos(rho)
    got, bound = pair(relu, relu, rho)
    want = (math.sqrt(max(1 - rho * rho, 0.0)) + (math.pi - angle) * rho) / (2 * math.pi)  # Cho & Saul 2009
    assert abs(got - want) <= min(bound, 1e-12 * 0.5)
    got, bound = pair(sign, sign, rho)
    assert abs(got - 2 / math.pi * math.asin(rho)) <= min(bound + 4e-16, 1e-12)


@pytest.mark.parametrize("rho", RHOS)
def test_correlations_of_the_error_function_and_of_waves_have_closed_forms(rho: float) -> None:
    erf, wave = Integrand(F["erf"]), Integrand(lambda x: np.sin(30 * x))
    got, bound = pair(erf, erf, rho)  # Williams 1997
    assert abs(got - 2 / math.pi * math.asin(2 * rho / 3)) <= min(bound, 1e-12)
    got, bound = pair(wave, wave, rho)
    want = 0.5 * (math.exp(-900 * (1 - rho)) - math.exp(-900 * (1 + rho)))
    assert abs(got - want) <= min(bound, 1e-12)


def test_two_different_functions_of_different_gaussians_are_correlated_exactly() -> None:
    f, g = Integrand(np.exp), Integrand(F["identity"])
    got, bound = pair(f, g, 0.4, (0.2, 1.0), (0.5, 2.0))  # Stein's lemma
    e = math.exp(0.2 + 0.25)
    want = e * 1.0 + 0.4 * math.sqrt(0.5 * 2.0) * e
    assert abs(got - want) <= min(bound, 1e-12 * want)
    step, ramp = Integrand(lambda x: (x > 0) * 1.0), Integrand(F["relu"])
    for rho in (0.3, 0.99, 0.99999):
        got, bound = pair(step, ramp, rho)
        assert abs(got - (1 + rho) / (2 * math.sqrt(2 * math.pi))) <= min(bound, 1e-12)


BAD: dict[str, tuple[Callable[..., Any], str]] = {
    "nan": (np.log, "gives NaN"),
    "nan far out": (lambda x: np.where(x > 9, np.nan, x), "gives NaN"),
    "growth": (lambda x: np.exp(x * x), "grows faster than a Gaussian"),
    "borderline growth": (lambda x: np.exp(x * x / 4), "grows faster than a Gaussian"),
    "noise": (lambda x: x + 1e-9 * np.random.standard_normal(x.shape), "is random"),
    "dropout": (lambda x: x * (np.random.random(x.shape) > 0.5), "is random"),
    "softmax": (lambda x: np.exp(x) / np.exp(x).sum(), "not elementwise"),
    "centering": (lambda x: x - x.mean(), "not elementwise"),
    "scaling by the largest": (lambda x: x / np.abs(x).max(), "not elementwise"),
    "sorting": (np.sort, "not elementwise"),
    "running sum": (np.cumsum, "not elementwise"),
    "reversal": (lambda x: x[::-1], "not elementwise"),
    "shortening": (lambda x: x[1:], "another shape"),
    "reduction to one number": (lambda x: x.sum(), "not elementwise"),
    "complex": (lambda x: x + 1j, "real numbers"),
    "pole": (lambda x: 1 / x, "has a pole"),
    "exception": (lambda x: x.no_such_method(), "could not be evaluated"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_function_that_cannot_be_profiled_is_refused_with_the_reason(name: str) -> None:
    f, reason = BAD[name]
    with pytest.raises(ActivationError, match=reason):
        Integrand(f, name).moments()


def test_checking_a_random_function_leaves_the_random_state_to_the_guard() -> None:
    from anyinit._core.registry import preserved

    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    with pytest.raises(ActivationError, match="is random"):
        Integrand(BAD["dropout"][0], "dropout", preserved)
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize(("mean", "variance"), [(0.0, -1.0), (math.nan, 1.0), (0.0, math.inf)])
def test_an_impossible_gaussian_is_refused(mean: float, variance: float) -> None:
    with pytest.raises(ConfigError, match="finite variance"):
        Integrand(np.tanh).moments(mean, variance)


def test_an_impossible_correlation_is_refused() -> None:
    f = Integrand(np.tanh)
    with pytest.raises(ConfigError, match=r"\[-1, 1\]"):
        pair(f, f, 1.5)


def test_a_function_that_computes_in_single_precision_keeps_its_digits_and_says_so() -> None:
    f = Integrand(lambda x: np.tanh(x.astype(np.float32)))
    got, want = f.moments(), exact("tanh", 0.0, 1.0)
    assert abs(got.m2 - float(want.m2)) <= got.errors["m2"] <= 1e-5


def test_a_mean_too_small_to_see_is_no_mean():
    ramp = Integrand(lambda x: np.maximum(x, 0.0))
    assert ramp.moments(1.1e-308, 1.0) == ramp.moments(0.0, 1.0)

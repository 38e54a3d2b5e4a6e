"""Profiles: every reference number, every definition, and what has none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyinit._core.pointwise import FUNCTIONS as F
from anyinit._core.profile import activation_profile, gain
from anyinit.errors import ActivationError, ConfigError


def smooth_gelu(x: np.ndarray) -> np.ndarray:
    return x * F["ndtr"](x) - np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def relu_cubed(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0) ** 3


def profile(name: object):
    if isinstance(name, tuple):
        return activation_profile(name[0], **name[1])
    return activation_profile(name)


# activation, E f, E f^2, gains: rms, std, grad (None where not tabulated)
TABLE = [
    ("relu", 0.3989422804, 0.5, 1.4142135624, 1.7128585504, 1.4142135624),
    (("leaky_relu", {"negative_slope": 0.01}), 0.3949528576, 0.50005, 1.4141428570, 1.7048316272, 1.4141428570),
    (("leaky_relu", {"negative_slope": 0.2}), 0.3191538243, 0.52, 1.3867504906, 1.5464600604, 1.3867504906),
    ("tanh", 0.0, 0.3942944904, 1.5925374197, 1.5925374197, 1.4674135916),
    ("gelu", 0.2820947918, 0.4252214826, 1.5335304412, 1.7009262434, 1.4811144127),
    ("gelu_tanh", 0.2820385881, 0.4251937110, 1.5335805217, 1.7009165617, 1.4811680581),
    ("silu", 0.2066209641, 0.3557755198, 1.6765324703, 1.7871872221, 1.6233202580),
    ("elu", 0.1605205723, 0.6449454175, 1.2451983007, 1.2708434179, 1.2234285576),
    ("selu", 0.0, 1.0, 1.0, 1.0, 0.9660257770),
    ("mish", 0.2404038884, 0.4523421924, 1.4868475813, 1.5920253811, 1.4447552325),
    ("softplus", 0.8060591833, 0.9212459089, 1.0418668355, 1.9191259801, 1.8462285453),
    ("sigmoid", 0.5, 0.2933790359, 1.8462285453, 4.8013133720, 4.7226460859),
    ("sin", 0.0, 0.4323323584, 1.5208666232, 1.5208666232, 1.3272506003),
    (smooth_gelu, 0.0, 0.4252214826, 1.5335304412, 1.5335304412, 1.2503642567),
    ("squared_relu", 0.5, 1.5, 0.8164965809, 0.8944271910, 0.7071067812),
    (relu_cubed, 0.7978845608, 7.5, 0.3651483717, None, None),
    ("hardswish", 0.1662167007, 0.3315673751, 1.7366572128, 1.8138714738, 1.6700763674),
    ("hardtanh", 0.0, 0.5160585510, 1.3920361404, 1.3920361404, 1.2102870624),
    ("softsign", 0.0, 0.1830140213, 2.3375333631, 2.3375333631, 2.0957806089),
    ("snake", 0.4323323584, 1.3073742912, 0.8745809829, 0.9447159235, 0.8165422354),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: getattr(row[0], "__name__", row[0]))
def test_levels_and_gains_match_the_table_to_ten_digits(row: tuple) -> None:
    p = profile(row[0])
    got = (p.moments().mean, p.moments().m2, p.gain("rms"), p.gain("std"), p.gain("grad"))
    for mine, want in zip(got, row[1:], strict=True):
        assert want is None or abs(mine - want) < 1.0e-10


def test_the_profile_of_relu_cubed_is_exact_to_twelve_digits() -> None:
    p = profile(relu_cubed)
    assert p.moments(0.0, 1.0).mean == pytest.approx(math.sqrt(2 / math.pi), rel=1e-12)
    assert p.moments(0.0, 1.0).m2 == pytest.approx(7.5, rel=1e-12)
    assert p.homogeneous_degree == 3.0
    assert p.chi == pytest.approx(3.0, rel=1e-12)
    assert p.chi_1 == pytest.approx(9 / 5, rel=1e-12)
    assert p.diagnostics.sigma_star == pytest.approx(7.5 ** (-1 / 6), rel=1e-12)
    assert p.diagnostics.error < 1e-12


SELF_CONSISTENT = {
    "relu": (math.sqrt(2), 1e-10, 1.0), "gelu": (1.46801126055, 1e-11, 1.084), "silu": (1.55875993007, 1e-11, 1.147),
    "elu": (1.2779600754, 1e-10, 0.898), "mish": (1.45149123996, 1e-11, 1.052), "selu": (1.0, 1e-10, 0.783),
    "softplus": (1.08312188151, 1e-11, 0.535),
}  # fmt: skip


@pytest.mark.parametrize("name", SELF_CONSISTENT)
def test_self_consistent_levels_and_their_slopes_match_the_references(name: str) -> None:
    sigma, tolerance, chi = SELF_CONSISTENT[name]
    p = profile(name)
    assert abs(p.diagnostics.sigma_star - sigma) < tolerance
    assert p.diagnostics.reachable is None
    assert p.moments(0.0, p.diagnostics.sigma_star**2).m2 == pytest.approx(1.0, abs=1e-13)
    assert abs(p.chi - chi) < 5e-4


UNREACHABLE = {"tanh": (0.0, 1.0), "sigmoid": (0.25, 0.5), "sin": (0.0, 0.5), "hardtanh": (0.0, 1.0), "erf": (0.0, 1.0),
               "cos": (0.5, 1.0), "sign": (1.0, 1.0)}  # fmt: skip


@pytest.mark.parametrize("name", UNREACHABLE)
def test_where_unit_level_is_out_of_reach_the_range_is_reported(name: str) -> None:
    p = profile(name)
    assert p.diagnostics.sigma_star is None
    assert p.diagnostics.reachable == pytest.approx(UNREACHABLE[name], abs=2e-5)
    assert p.operating_variance == 1.0
    assert p.chi == p.level_slope(1.0)


def test_a_level_that_falls_with_the_variance_is_still_found() -> None:
    p = activation_profile(lambda x: 1.5 * np.exp(-0.5 * x * x))  # E f^2 = 2.25 / sqrt(1 + 2 q)
    assert p.diagnostics.sigma_star == pytest.approx(math.sqrt((2.25**2 - 1) / 2), rel=1e-12)
    assert p.chi < 0


def test_growth_beyond_a_variance_bounds_the_search_instead_of_breaking_it() -> None:
    p = activation_profile(lambda x: 0.5 * np.exp(0.1 * x * x))  # finite up to variance 2.5
    q = p.diagnostics.sigma_star**2
    assert 0.25 / math.sqrt(1 - 0.4 * q) == pytest.approx(1.0, rel=1e-9)


HOMOGENEOUS = [
    (1, F["relu"]), (2, np.square), (0.5, lambda x: np.sqrt(np.abs(x))), (0, np.sign),
    (1.5, lambda x: np.abs(x) ** 1.5),
]  # fmt: skip


@pytest.mark.parametrize(("degree", "f"), HOMOGENEOUS)
def test_homogeneous_functions_have_their_degree(degree: float, f: object) -> None:
    p = activation_profile(f)
    assert p.homogeneous_degree == degree
    assert p.level_slope(2.3) == pytest.approx(degree, abs=1e-11)


@pytest.mark.parametrize("name", ["gelu", "tanh", "elu", "hardtanh", "softshrink", "exp", "cos", "softplus"])
def test_other_functions_have_no_degree(name: str) -> None:
    assert profile(name).homogeneous_degree is None


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 20.0), st.floats(0.0, 2.0))
def test_leaky_relu_holds_level_and_gradient_at_any_slope(variance: float, slope: float) -> None:
    p = activation_profile("leaky_relu", negative_slope=slope)
    assert p.moments(0.0, variance).m2 == pytest.approx(variance * (1 + slope**2) / 2, rel=1e-12)
    assert p.chi == pytest.approx(1.0, abs=1e-11)
    assert p.chi_1 == pytest.approx(1.0, abs=1e-11)


@pytest.mark.parametrize("name", ["relu", "tanh", "silu", "elu", "hardtanh", "sin"])
def test_chi_1_is_the_slope_of_the_angle_map_at_one(name: str) -> None:
    p = profile(name)
    q, h = p.operating_variance, 1e-7
    smooth = 1.0 - p.angle_map(1.0 - h, variance=q)
    assert smooth / h == pytest.approx(p.chi_1, rel=2e-3)


def test_the_angle_map_of_relu_is_the_arc_cosine_kernel_and_keeps_the_shape() -> None:
    rho = np.array([[-1.0, -0.3, 0.0], [0.5, 0.99, 1.0]])
    want = (np.sqrt(1 - rho**2) + (math.pi - np.arccos(rho)) * rho) / math.pi
    np.testing.assert_allclose(profile("relu").angle_map(rho), want, atol=1e-13)
    assert isinstance(profile("relu").angle_map(0.5), float)
    assert profile("tanh").angle_map(0.0) == pytest.approx(0.0, abs=1e-14)


def test_the_angle_map_agrees_with_the_hermite_series() -> None:
    p = profile("gelu")
    c = p.hermite(64)
    series = sum(c[k] ** 2 * 0.6**k for k in range(64)) / p.moments().m2
    assert p.angle_map(0.6) == pytest.approx(series, rel=1e-12)


def test_the_edge_of_chaos_of_tanh_is_known() -> None:
    p = profile("tanh")
    point = p.edge_of_chaos(sigma_b2=0.05)
    assert point.sigma_w == pytest.approx(1.3270096607, abs=1e-10)
    assert point.q == pytest.approx(0.5700478816, abs=1e-10)
    for q in (1e-3, 1e-4):
        sigma_w, sigma_b2, level = p.edge_of_chaos(q)
        assert level == q
        assert sigma_w**2 == pytest.approx(1 + 2 * q, abs=3 * q * q)
        assert sigma_b2 == pytest.approx(4 / 3 * q**3, rel=20 * q)


@pytest.mark.parametrize(("name", "limit"), [("tanh", 1.0), ("gelu", 2.0), ("silu", 2.0), ("mish", 5 / 3), ("sin", 1.0),
                                             ("erf", math.sqrt(math.pi) / 2), ("relu", math.sqrt(2))])  # fmt: skip
def test_the_edge_of_chaos_begins_at_its_limit(name: str, limit: float) -> None:
    assert profile(name).edge_of_chaos(0.0).sigma_w == pytest.approx(limit, rel=1e-9)
    assert profile(name).edge_of_chaos(0.0).sigma_b2 == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(("name", "q", "sigma_w", "sigma_b2"), [
    ("gelu", 3.56155281, 1.40821101, 0.17292239), ("silu", 14.32017362, 1.40996620, 0.55514317),
    ("mish", 1.67016913, 1.41898699, 0.09452179),
])  # fmt: skip
def test_the_edge_attracts_only_above_its_turning_point(name: str, q: float, sigma_w: float, sigma_b2: float) -> None:
    p = profile(name)
    point = p.edge_of_chaos(q)
    assert (point.sigma_w, point.sigma_b2) == pytest.approx((sigma_w, sigma_b2), abs=1e-8)
    assert p.edge_slope(q) == pytest.approx(1.0, abs=1e-8)
    assert p.edge_slope(0.9 * q) > 1.0 > p.edge_slope(1.1 * q)


def test_an_edge_without_bias_is_found_where_there_is_one() -> None:
    point = activation_profile(smooth_gelu).edge_of_chaos(sigma_b2=0.0)
    assert point == pytest.approx((1.3864265521, 0.0, 0.3535533906), abs=1e-10)


def test_what_is_not_on_the_edge_is_refused() -> None:
    softplus = profile("softplus")
    with pytest.raises(ActivationError, match="does not pass through this level"):
        softplus.edge_of_chaos(1.0)
    with pytest.raises(ActivationError, match="no point of this bias variance"):
        softplus.edge_of_chaos(sigma_b2=0.1)
    with pytest.raises(ActivationError, match="no edge of chaos"):
        profile("sign").edge_of_chaos(1.0)
    with pytest.raises(ConfigError, match="exactly one"):
        softplus.edge_of_chaos()
    with pytest.raises(ConfigError, match="finite variance"):
        softplus.edge_of_chaos(-1.0)


def test_gains_have_three_conventions_and_refuse_others() -> None:
    assert gain("gelu") == pytest.approx(1.5335304412, abs=1e-10)
    assert gain("gelu", convention="std") == pytest.approx(1.7009262434, abs=1e-10)
    assert gain("leaky_relu", negative_slope=0.2) == pytest.approx(1.3867504906, abs=1e-10)
    assert gain(lambda x: 2.0 * x) == pytest.approx(0.5)
    with pytest.raises(ConfigError, match=r"Unknown convention.*rms, std, grad"):
        gain("relu", convention="max")  # pyright: ignore[reportArgumentType]


def test_a_gain_that_would_divide_by_zero_is_refused() -> None:
    with pytest.raises(ActivationError, match="no grad gain"):
        gain("sign", convention="grad")
    with pytest.raises(ActivationError, match="no std gain"):
        gain(lambda x: 0.0 * x + 3.0, convention="std")
    with pytest.raises(ActivationError, match="no rms gain"):
        gain(lambda x: 0.0 * x)


def test_a_constant_function_has_a_level_and_nothing_else() -> None:
    p = activation_profile(lambda x: 3.0)
    assert p.moments().m2 == pytest.approx(9.0)
    assert p.moments().variance == pytest.approx(0.0, abs=1e-13)
    assert p.angle_map(0.3) == pytest.approx(1.0)
    assert p.chi == pytest.approx(0.0, abs=1e-14)


def test_the_zero_function_has_no_slopes() -> None:
    p = activation_profile(lambda x: 0.0 * x)
    assert p.moments().m2 == 0.0
    assert math.isnan(p.chi)
    assert math.isnan(p.chi_1)
    with pytest.raises(ActivationError, match="zero almost everywhere"):
        p.angle_map(0.5)


def test_a_profile_is_computed_once_and_passes_through() -> None:
    p = profile("gelu")
    assert profile("gelu") is p
    assert activation_profile(p) is p
    assert activation_profile("leaky_relu", negative_slope=0.1) is not activation_profile("leaky_relu")
    assert p.moments() is p.moments(0.0, 1.0)


def test_it_prints_what_matters() -> None:
    text = repr(activation_profile("leaky_relu", negative_slope=0.2))
    assert text.startswith("Profile(leaky_relu(negative_slope=0.2): E f = 0.3191538243; E f^2 = 0.52;")
    assert "degree = 1" in text
    assert "kinks = 0" in text
    assert "E f = 0;" in repr(profile("tanh"))
    assert "E f^2 between" in repr(profile("tanh"))
    assert "and 27 more" in repr(activation_profile(np.floor))
    page = activation_profile("hardshrink")._repr_html_()
    assert "<b>hardshrink</b>" in page
    assert ">jumps</td>" in page and ">-0.5, 0.5</td>" in page

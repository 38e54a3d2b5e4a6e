"""``target="critical"`` puts layers on the edge of chaos, and says where there is none."""

from __future__ import annotations

import math

import pytest

from anyinit._core.profile import activation_profile
from anyinit.errors import ConfigError
from small_graphs import Net, Solved, chain, solve


def scales(found: Solved, layer: int) -> tuple[float, float, float]:
    """``sigma_w``, ``sigma_b^2`` and the level before the activation of a layer that is 64 wide."""
    parts = {w.name: w.parts[0] for w in found.plan.weights}
    weight, bias = parts[f"{layer}.weight"], parts[f"{layer}.bias"]
    assert weight.predicted_output is not None
    return (
        weight.draw.std * 8,
        bias.draw.std**2 if bias.draw.distribution != "constant" else 0.0,
        weight.predicted_output,
    )


def critical(fn: str, depth: int = 20, **options: object) -> Solved:
    return solve(chain(fn, depth, 64, **options), auto=False, critical=True)  # type: ignore[arg-type]


def test_relu_gets_its_gain_of_two_and_no_bias():
    sigma_w, sigma_b2, level = scales(critical("relu"), 10)
    assert (sigma_w**2, sigma_b2, level) == pytest.approx((2.0, 0.0, 1.0), rel=1e-6)


@pytest.mark.parametrize("depth", [10, 50])
def test_tanh_stays_at_one_over_the_depth_on_its_curve(depth: int):
    sigma_w, sigma_b2, level = scales(critical("tanh", depth), 5)
    assert level == pytest.approx(1 / (depth + 1), rel=1e-6)
    exact = activation_profile("tanh").edge_of_chaos(level)
    assert sigma_w == pytest.approx(exact.sigma_w, rel=1e-4)
    assert sigma_b2 == pytest.approx(exact.sigma_b2, rel=0.01)
    assert sigma_w**2 == pytest.approx(1 + 2 * level, rel=3 * level**2)


@pytest.mark.parametrize(
    ("fn", "least", "sigma_w"),
    [("gelu", 3.56155281, 1.40821101), ("silu", 14.32017362, 1.40996620)],
)
def test_smooth_relus_take_the_least_level_that_attracts(fn: str, least: float, sigma_w: float):
    found = scales(critical(fn), 10)
    assert found[2] == pytest.approx(least, rel=1e-3)
    assert found[0] == pytest.approx(sigma_w, rel=1e-3)
    exact = activation_profile(fn).edge_of_chaos(found[2])
    assert found[1] == pytest.approx(exact.sigma_b2, rel=1e-3)


def test_every_layer_has_the_same_scales():
    found = critical("elu", 12)
    first = scales(found, 1)
    assert all(scales(found, k) == pytest.approx(first, rel=2e-3) for k in range(1, 12))


@pytest.mark.parametrize("fn", ["square", "softplus", "exp"])
def test_functions_without_an_attracting_point_are_refused_by_name(fn: str):
    with pytest.raises(ConfigError, match=rf"{fn}.* has no critical point that attracts.*0\.weight.*'auto' or 'unit'"):
        critical(fn)


def test_needed_biases_that_are_missing_are_asked_for():
    with pytest.raises(ConfigError, match=r"needs biases .*0\.weight has no bias"):
        critical("tanh", bias=False)
    assert critical("relu", bias=False).plan.weights


def test_residual_branches_and_normalized_layers_keep_their_own_levels():
    net = Net()
    x = net.input(64, 64)
    for k in range(4):
        x = net.both("add", x, net.act("tanh", net.dense(x, f"{k}", 64)))
    branch = solve(net.graph(x), auto=False, critical=True)
    plain = solve(net.graph(x), auto=False)
    assert [w.parts[0].draw.std for w in branch.plan.weights] == [w.parts[0].draw.std for w in plain.plan.weights]
    net = Net()
    x = net.input(64, 64)
    for k in range(3):
        x = net.act("square", net.norm(net.dense(x, f"{k}", 64)))
    assert solve(net.graph(x), auto=False, critical=True).plan.weights


def test_the_reason_names_the_level_and_the_slope():
    part = next(w for w in critical("gelu").plan.weights if w.name == "3.weight").parts[0]
    assert "critical: chi_1 = 1 at level" in part.why
    slope = float(part.why.split("slope ")[1].split()[0])
    assert math.isclose(slope, 1.0, abs_tol=0.001)

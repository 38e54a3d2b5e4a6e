"""Slopes along a path, what they multiply to, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import anyinit
from anyinit._graph.graph import Graph
from anyinit._solve.plan import Stability
from small_graphs import Net, Solved, chain, solve


def cubed(depth: int, *, normed: bool = False) -> Graph:
    net = Net()
    x = net.input(64, 64)
    for k in range(depth):
        y = net.dense(x, str(k), 64, bias=False)
        x = net.act("pow", net.act("relu", net.norm(y) if normed else y), None, 3.0)
    return net.graph(net.dense(x, "head", 8))


def of(found: Solved, *kinds: str) -> Stability:
    return next(r for r in found.plan.stability if r.kind in kinds)


@pytest.fixture
def relucubed() -> Iterator[str]:
    name = "relucubed"
    anyinit.register_activation(lambda x: np.maximum(x, 0.0) ** 3, name=name)
    yield name
    anyinit.unregister_activation(name)


@pytest.mark.parametrize("depth", [1, 2, 3, 20])
def test_products_are_powers_of_the_slope(depth: int):
    found = solve(cubed(depth), auto=False)
    level, gradient = of(found, "level"), of(found, "gradient")
    assert level.chi == pytest.approx(3.0, rel=1e-8) and level.product == pytest.approx(3.0**depth, rel=1e-6)
    assert gradient.chi == pytest.approx(1.8, rel=1e-8) and gradient.product == pytest.approx(1.8**depth, rel=1e-6)
    assert level.depth == depth and len(level.layers) == depth + 1


def test_a_registered_function_is_called_by_its_name(relucubed: str):
    found = solve(cubed(2), auto=False)
    assert found.part("0.weight").activation == relucubed
    assert {r.activation for r in found.plan.stability} == {relucubed}
    assert of(found, "level").advice().startswith("relucubed: chi = 3 ")


def test_an_unregistered_one_by_what_it_is_made_of():
    assert solve(cubed(2), auto=False).part("0.weight").activation == "relu pow"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda net, y: net.both("mul", y, net.act("sigmoid", y)), "silu"),
        (lambda net, y: net.both("mul", y, net.act("sigmoid", net.times(y, 1.702))), "quick_gelu"),
        (lambda net, y: net.act("square", net.act("relu", y)), "squared_relu"),
        (lambda net, y: net.both("mul", y, net.act("tanh", net.act("softplus", y))), "mish"),
    ],
)
def test_a_function_written_out_is_known_by_its_values(make, name: str):
    net = Net()
    y = net.dense(net.input(64, 64), "a", 64)
    assert solve(net.graph(net.dense(make(net, y), "b", 8)), auto=False).part("a.weight").activation == name


def test_advice_at_two_layers_and_at_twenty():
    two, twenty = (of(solve(cubed(d), auto=False), "level") for d in (2, 20))
    assert two.held and "9 times in all: usable at this depth" in two.advice()
    assert not twenty.held and "normalize between layers" in twenty.advice()


@pytest.mark.parametrize(
    ("fn", "depth"), [("relu", 1), ("relu", 30), ("gelu", 1), ("gelu", 8), ("silu", 1), ("tanh", 6)]
)
def test_nothing_is_said_where_nothing_needs_doing(fn: str, depth: int):
    found = solve(chain(fn, depth, 64, bias=False))
    assert all(r.held and r.advice() == "" for r in found.plan.stability)


def test_a_gradient_that_dies_is_named():
    found = solve(chain("sigmoid", 30, 64, bias=False), auto=False)
    record = of(found, "vanishing gradient")
    assert not record.held
    assert record.product == pytest.approx(record.chi**30, rel=1e-6)
    assert "shrinks" in record.advice()


def test_normalization_ends_a_path():
    found = solve(cubed(20, normed=True), auto=False)
    assert all(r.product < 30 and r.held for r in found.plan.stability)


def test_a_residual_sum_weighs_slopes_by_shares():
    net = Net()
    x = net.input(64, 64)
    for k in range(4):
        y = net.act("pow", net.act("relu", net.dense(x, f"{k}.a", 64, bias=False)), None, 3.0)
        x = net.both("add", x, net.dense(y, f"{k}.b", 64, bias=False))
    found = solve(net.graph(net.dense(x, "head", 8)), auto=False)
    product = of(found, "level").product
    expected = 1.0
    for k in range(4):  # the branch adds 1/4 to a stream of 1 + k/4
        share = 0.25 / (1 + (k + 1) * 0.25)
        expected = expected ** (1 - share) * (expected * 3) ** share
    assert product == pytest.approx(expected, rel=0.02)
    assert product < 6

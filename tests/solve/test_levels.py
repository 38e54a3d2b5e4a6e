"""Levels are met where they are set, to the accuracy of quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest

from anyinit._graph import interpret, ops
from small_graphs import Net, chain, level, solve

SMOOTH = ["relu", "gelu", "silu", "elu", "softplus", "leaky_relu"]


@pytest.mark.parametrize("fn", SMOOTH)
def test_unit_second_moment_after_every_activation(fn: str):
    found = solve(chain(fn, 6, 96), auto=False)
    for k in range(6):
        part = found.part(f"{k}.weight")
        assert part.target == 1.0
        assert part.predicted == pytest.approx(1.0, abs=1e-6)
    assert found.part("head.weight").predicted_output == pytest.approx(1.0, abs=1e-6)


def test_the_scale_for_relu_is_the_one_of_he():
    found = solve(chain("relu", 1, 400), auto=False)
    assert found.part("0.weight").draw.std == pytest.approx(math.sqrt(2 / 400), rel=1e-9)
    assert found.part("head.weight").draw.std == pytest.approx(math.sqrt(1 / 400), rel=1e-6)


@pytest.mark.parametrize("target", [0.25, 3.0])
def test_a_number_is_met_as_well(target: float):
    found = solve(chain("gelu", 3, 96), auto=False, target=target)
    assert [found.part(f"{k}.weight").predicted for k in range(3)] == pytest.approx([target] * 3, abs=1e-6)


@pytest.mark.parametrize("fn", ["tanh", "sigmoid", "sin"])
def test_a_level_that_cannot_be_reached_is_said_and_unit_variance_taken_before_it(fn: str):
    found = solve(chain(fn, 2, 64), auto=False)
    part = found.part("1.weight")
    assert "unreachable" in part.flags and part.target is None
    assert part.predicted_output == pytest.approx(1.0, rel=1e-6)
    assert any("cannot be reached" in text for text in found.plan.assumptions)


def test_the_levels_are_those_of_a_run():
    graph = chain("silu", 3, 256, rows=128)
    found = solve(graph, auto=False)
    x = np.random.default_rng(1).standard_normal((128, 256))
    seen: list[list[float]] = []
    for seed in range(6):
        values = interpret.run(graph, {**found.weights(seed), "input.0": x})
        seen.append([level(values[n.output]) for n in graph.nodes if getattr(n.op, "fn", "") == "silu"])
    assert np.mean(seen, axis=0) == pytest.approx([1.0] * 3, rel=0.06)


def test_logits_have_unit_second_moment_whatever_the_size_of_heads():
    net = Net()
    x = net.input(4, 6, 64)
    q, k, v = (net.dense(x, name, 64, bias=False) for name in "qkv")
    logits = net.times(net.op(ops.Contract((0, 1, 3), (0, 2, 3), (0, 1, 2)), (q, k), (4, 6, 6)), 1 / 8)
    weights = net.op(ops.Softmax(2), (logits,), (4, 6, 6))
    found = solve(net.graph(net.op(ops.Contract((0, 1, 2), (0, 2, 3), (0, 1, 3)), (weights, v), (4, 6, 64))))
    assert found.solver.walk.signals[logits].m2 == pytest.approx(1.0, rel=1e-6)
    stds = [found.part(f"{name}.weight").draw.std for name in "qk"]
    assert stds == pytest.approx([1 / 8, 1 / 8], rel=1e-3)


def test_a_product_of_two_branches_is_set_as_a_whole():
    net = Net()
    x = net.input(64, 96)
    gate = net.act("silu", net.dense(x, "gate", 256))
    y = net.both("mul", gate, net.dense(x, "value", 256))
    found = solve(net.graph(net.dense(y, "back", 96)))
    assert found.part("back.weight").predicted_output == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("outputs", "expected"), [(1, 0.1), (4, 0.1), (5, 1.0), (1000, 1.0)])
def test_a_head_of_few_numbers_starts_small(outputs: int, expected: float):
    net = Net()
    x = net.act("relu", net.dense(net.input(64, 48), "body", 48))
    found = solve(net.graph(net.dense(x, "head", outputs)))
    assert found.part("head.weight").predicted_output == pytest.approx(expected, rel=1e-6)


def test_a_zero_input_gives_unit_gain_and_a_flag():
    net = Net()
    x = net.times(net.input(64, 48), 0.0)
    found = solve(net.graph(net.dense(x, "dead", 32)))
    assert found.part("dead.weight").flags[0] == "zero input"
    assert found.part("dead.weight").draw.std == pytest.approx(1 / math.sqrt(48))

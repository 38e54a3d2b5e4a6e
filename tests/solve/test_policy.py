"""What the default asks of weights: from a function's values, a depth or a shape alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from anyinit._graph import interpret
from anyinit._graph.graph import Graph
from small_graphs import Net, Solved, chain, level, solve


def modes(found: Solved) -> list[str]:
    return [p.draw.mirrored for w in found.plan.weights for p in w.parts if w.name.endswith("weight")]


@pytest.mark.parametrize("fn", ["relu", "leaky_relu", "abs_and_half", "gelu"])
def test_deep_plain_chains_with_a_linear_odd_part_are_mirrored(fn: str):
    depth = 40 if fn == "gelu" else 8
    graph = _sloped(depth) if fn == "abs_and_half" else chain(fn, depth, 64)
    assert modes(solve(graph)) == ["rows", *["both"] * (depth - 1), "cols"]


def _sloped(depth: int) -> Graph:
    """``x + |x| / 2`` written out: no name says that its odd part is linear."""
    net = Net()
    x = net.input(64, 64)
    for k in range(depth):
        y = net.dense(x, str(k), 64)
        x = net.both("add", y, net.times(net.act("abs", y), 0.5))
    return net.graph(net.dense(x, "head", 8))


@pytest.mark.parametrize("fn", ["tanh", "sin", "hardtanh", "square"])
def test_others_are_not(fn: str):
    assert set(modes(solve(chain(fn, 12, 64)))) == {""}


def test_short_chains_and_odd_widths_are_not_and_mirroring_can_be_refused():
    assert set(modes(solve(chain("relu", 2, 64)))) == {""}
    assert set(modes(solve(chain("relu", 8, 63)))) == {""}
    assert set(modes(solve(chain("relu", 8, 64), mirror=False))) == {""}


def test_a_mirrored_network_of_fifty_layers_is_linear_and_keeps_every_angle():
    graph = chain("relu", 50, 64, rows=16)
    found = solve(graph)
    weights = found.weights(3)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 64))
    names = {"0.weight": weights["0.weight"]}

    def last_hidden(inputs: np.ndarray) -> np.ndarray:
        values = interpret.run(graph, {**weights, "input.0": inputs})
        return [values[n.output] for n in graph.nodes if getattr(n.op, "fn", "") == "relu"][-1]

    def odd(h: np.ndarray) -> np.ndarray:
        half = h.shape[1] // 2
        return h[:, :half] - h[:, half:]

    one, two = odd(last_hidden(x)), odd(last_hidden(np.roll(x, 1, axis=0)))
    np.testing.assert_allclose(odd(last_hidden(2 * x - 3 * np.roll(x, 1, axis=0))), 2 * one - 3 * two, atol=1e-5)
    seen = x @ names["0.weight"].astype(np.float64)[:32].T  # all that the first layer lets through
    gram, through = one @ one.T, seen @ seen.T
    np.testing.assert_allclose(gram / np.trace(gram), through / np.trace(through), atol=1e-6)
    assert level(last_hidden(x)) == pytest.approx(1.0, rel=0.25)


@pytest.mark.parametrize("depth", [6, 20, 60])
def test_an_odd_saturating_chain_stands_where_the_gradient_grows_a_hundredfold(depth: int):
    found = solve(chain("tanh", depth, 96, bias=False))
    part = found.part("2.weight")
    q = part.predicted_output
    assert q is not None and part.chi_1 is not None
    z = np.random.default_rng(0).standard_normal(400_000)
    f, slope = np.tanh(math.sqrt(q) * z), 1 - np.tanh(math.sqrt(q) * z) ** 2
    assert part.chi_1 == pytest.approx(q * np.mean(slope**2) / np.mean(f**2), rel=0.02)
    grown = depth * math.log(part.chi_1)
    if q < 0.999:
        assert grown == pytest.approx(math.log(100.0), rel=0.2)
    else:
        assert grown < math.log(100.0)


def test_the_level_before_tanh_falls_with_depth():
    levels = [solve(chain("tanh", d, 96, bias=False)).part("2.weight").predicted_output for d in (6, 20, 60)]
    assert levels[0] is not None and levels[0] >= levels[1] > levels[2] > 0.05  # type: ignore[operator]


@pytest.mark.parametrize(("into", "drawn"), [(2, True), (64, False)])
def test_first_biases_are_drawn_where_lengths_of_samples_tell_them_apart(into: int, drawn: bool):
    found = solve(chain("tanh", 2, 64, into=into))
    bias = found.part("0.bias").draw
    assert (bias.distribution == "normal") == drawn
    if drawn:
        weight = found.part("0.weight").draw
        assert bias.std**2 == pytest.approx(into * weight.std**2, rel=1e-6)  # half of the level each
    assert found.part("1.bias").draw.distribution == "constant"


def test_data_on_a_sphere_needs_no_first_biases():
    graph = chain("tanh", 2, 64, into=2)
    x = np.random.default_rng(0).standard_normal((64, 2))
    x *= math.sqrt(2) / np.linalg.norm(x, axis=1, keepdims=True)
    assert solve(graph, {"input.0": x}).part("0.bias").draw.distribution == "constant"
    assert solve(graph, {"input.0": np.random.default_rng(0).standard_normal((64, 2))}).part("0.bias").draw.std > 0


def test_steep_activations_get_biases_that_hold_the_product_of_slopes_at_one():
    net = Net()
    x = net.input(64, 64)
    for k in range(6):
        x = net.act("pow", net.act("relu", net.dense(x, str(k), 64)), None, 3.0)
    found = solve(net.graph(net.dense(x, "head", 8)))
    part = found.part("2.weight")
    assert part.chi is not None and part.chi_1 is not None
    assert part.chi * part.chi_1 == pytest.approx(1.0, rel=1e-3)
    assert found.part("2.bias").draw.std > 0

"""The plan of a solved graph: predictions of every weight and what replays them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from anyinit._graph import ops
from anyinit._graph.graph import Graph
from anyinit._solve.apply import materialize
from anyinit._solve.plan import Plan
from small_graphs import Net, chain, solve


def held(fill: float, plan: Plan) -> dict[str, np.ndarray]:
    shapes = {w.name: w.shape for w in plan.weights}
    return materialize(plan, lambda names: {n: np.full(shapes[n], fill, np.float32) for n in names})


def test_a_plan_from_json_replays_the_same_bytes():
    plan = solve(chain("gelu", 4, 32), seed=7).plan
    again = Plan.from_json(plan.to_json())
    assert again == plan
    one, two = held(0.0, plan), held(5.0, again)
    assert one.keys() == two.keys()
    assert all(one[n].tobytes() == two[n].tobytes() for n in one)


def test_seeds_differ_in_every_weight_and_in_nothing_else():
    plan = solve(chain("silu", 3, 32), seed=1).plan
    other = solve(chain("silu", 3, 32), seed=2).plan
    assert plan.diff(other) == []
    one, two = held(0.0, plan), held(0.0, other)
    assert all((one[n] != two[n]).any() == n.endswith("weight") for n in one)


def attention(packed: bool, width: int = 16) -> Graph:
    net = Net()
    x = net.input(4, 6, width)
    if packed:
        whole = net.apply(x, net.param("qkv", 3 * width, width))
        cut = [ops.Slice(2, k * width, (k + 1) * width) for k in range(3)]
        q, k, v = (net.op(c, (whole,), (4, 6, width)) for c in cut)
    else:
        q, k, v = (net.apply(x, net.param(name, width, width)) for name in "qkv")
    logits = net.times(net.op(ops.Contract((0, 1, 3), (0, 2, 3), (0, 1, 2)), (q, k), (4, 6, 6)), 0.25)
    mixed = net.op(ops.Softmax(2), (logits,), (4, 6, 6))
    y = net.op(ops.Contract((0, 1, 2), (0, 2, 3), (0, 1, 3)), (mixed, v), (4, 6, width))
    return net.graph(net.apply(y, net.param("out", width, width)))


def test_a_packed_weight_holds_the_bytes_of_its_parts_held_apart():
    from anyinit._graph.rewrite import canonical

    packed, apart = solve(canonical(attention(True)), seed=4).plan, solve(attention(False), seed=4).plan
    whole, parts = held(0.0, packed), held(0.0, apart)
    assert len(next(w for w in packed.weights if w.name == "qkv").parts) == 3
    assert whole["qkv"].tobytes() == np.concatenate([parts[n] for n in "qkv"]).tobytes()
    assert whole["out"].tobytes() == parts["out"].tobytes()


def test_weights_stand_in_order_of_their_first_use():
    net = Net()
    late, early = net.param("late", 8, 16), net.param("early", 16, 12)
    net.param("never", 3)
    y = net.apply(net.apply(net.input(4, 12), early), late)
    plan = solve(net.graph(y)).plan
    assert [w.name for w in plan.weights] == ["early", "late", "never"]
    assert plan.unscaled == (("never", "never meets data in this run"),)


def test_parts_of_a_packed_weight_stand_together_in_their_own_order():
    weights = solve(attention(True)).plan.weights
    assert [w.name for w in weights] == ["qkv", "out"]
    assert [p.label for p in weights[0].parts] == ["0:16", "16:32", "32:48"]


def test_parameters_that_keep_their_value_by_design_are_no_failure():
    net = Net()
    x = net.op(ops.Pointwise("prelu", (None, None)), (net.dense(net.input(8, 16), "a", 16), net.param("s", 1)), (8, 16))
    x = net.both("mul", x, net.param("temperature"))
    found = solve(net.graph(net.both("maximum", x, net.param("floor", 16))))
    assert found.plan.unscaled == ()
    assert {n: found.part(n).draw.distribution for n in ("s", "temperature", "floor")} == dict.fromkeys(
        ("s", "temperature", "floor"), "keep"
    )
    assert found.part("temperature").why == "a scalar multiplier keeps its value"


@pytest.mark.parametrize(("fn", "chi_1"), [("relu", 1.0), ("abs", 1.0), ("square", 4 / 3)])
def test_slopes_of_known_functions(fn: str, chi_1: float):
    part = solve(chain(fn, 2, 64), auto=False).part("1.weight")
    degree = 2.0 if fn == "square" else 1.0
    assert part.chi == pytest.approx(degree, rel=1e-8)
    assert part.chi_1 == pytest.approx(chi_1, rel=1e-8)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_slopes_of_the_cube_of_relu_do_not_depend_on_the_tails_above_it(depth: int):
    net = Net()
    x = net.input(64, 64)
    for k in range(depth):
        x = net.act("pow", net.act("relu", net.dense(x, str(k), 64)), None, 3.0)
    found = solve(net.graph(net.dense(x, "head", 8)), auto=False)
    for k in range(depth):
        part = found.part(f"{k}.weight")
        assert part.chi == pytest.approx(3.0, rel=1e-8)
        assert part.chi_1 == pytest.approx(1.8, rel=1e-8)  # q E f'^2 / E f^2 = 9 * 1.5 / 7.5


def test_a_gradient_is_predicted_for_every_parameter_that_gets_one():
    found = solve(chain("relu", 2, 64), auto=False)
    # each output is a standard normal combination: a bias of the head gets one gradient a row, 64 rows
    assert found.part("head.bias").predicted_grad == pytest.approx(64.0, rel=1e-6)
    assert found.part("head.weight").predicted_grad == pytest.approx(64.0, rel=1e-6)  # E a^2 = 1 on 64 rows
    assert all(p.predicted_grad is not None and p.predicted_grad > 0 for w in found.plan.weights for p in w.parts)


def test_keys_are_positions_and_no_two_draws_share_one():
    plan = solve(chain("tanh", 4, 32, into=2)).plan
    keys = [p.draw.key for w in plan.weights for p in w.parts if p.draw.std > 0]
    assert len(set(keys)) == len(keys) == 6  # five weights and the drawn biases of the first
    clash = replace(plan.weights[2].parts[0], draw=replace(plan.weights[2].parts[0].draw, key=keys[0]))
    bad = plan.with_weights((*plan.weights[:2], replace(plan.weights[2], parts=(clash,)), *plan.weights[3:]))
    with pytest.raises(Exception, match="share a draw"):
        held(0.0, bad)


def test_fans_and_scales_agree_with_the_shapes():
    plan = solve(chain("relu", 2, 50, into=20), auto=False).plan
    parts = {w.name: w.parts[0] for w in plan.weights}
    assert [(parts[n].fan, parts[n].fan_out) for n in ("0.weight", "1.weight", "head.weight")] == [
        (20, 50), (50, 50), (50, 8),
    ]  # fmt: skip
    assert parts["head.weight"].flags == ("small fan-out: uncertain",)
    assert parts["0.weight"].draw.std == pytest.approx(math.sqrt(2 / 20), rel=1e-6)

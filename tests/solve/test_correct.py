"""One run of the drawn network settles every layer before the next, and the plan replays it."""

from __future__ import annotations

import numpy as np
import pytest

from anyinit._graph import ops
from anyinit._graph.graph import Graph
from anyinit._solve import correct
from anyinit._solve.apply import materialize, rematerialize
from anyinit._solve.plan import Plan
from small_graphs import Net, NumpyRuntime, Solved, chain, level, solve


def zeros(plan: Plan):
    shapes = {w.name: w.shape for w in plan.weights}
    return lambda names: {n: np.zeros(shapes[n], np.float32) for n in names}


def settled(found: Solved, x: np.ndarray, *, exact: bool = True) -> tuple[Plan, dict[str, np.ndarray], NumpyRuntime]:
    """The corrected plan, its weights, and a runtime that has run them."""
    runtime = NumpyRuntime(found.graph, {"input.0": x})
    weights = found.weights(found.plan.seed)
    chosen = {d.leaf for d in correct.placed(found.solver)}
    measured = correct.run(found.solver, runtime, weights, chosen, exact=exact)  # type: ignore[arg-type]
    plan = correct.record(found.plan, found.solver, measured, corrected=True)
    again = rematerialize(found.plan, weights, plan, zeros(plan))
    runtime.run(again, (), None)
    return plan, again, runtime


def skewed(rows: int, width: int) -> np.ndarray:
    """Positive, far from unit level, with correlated coordinates."""
    rng = np.random.default_rng(2)
    return 40 * np.abs(rng.standard_normal((rows, width)) + rng.standard_normal((rows, 1)))


@pytest.mark.parametrize("fn", ["relu", "gelu", "silu", "elu"])
def test_measured_levels_are_the_targets_to_one_per_cent(fn: str):
    graph = chain(fn, 5, 64, rows=128)
    x = skewed(128, 64)
    plan, _, runtime = settled(solve(graph, {"input.0": x}, auto=False), x)
    seen = [level(runtime.last[n.output]) for n in graph.nodes if getattr(n.op, "fn", "") == fn]
    assert seen == pytest.approx([1.0] * 5, rel=0.01)
    assert level(runtime.last[graph.outputs[0]]) == pytest.approx(1.0, rel=0.01)
    parts = [w.parts[0] for w in plan.weights if w.name.endswith("weight")]
    assert [p.measured for p in parts] == pytest.approx([1.0] * 6, rel=0.01)
    assert all(p.planned is not None for p in parts)


def test_what_the_record_says_was_measured_is_what_the_replayed_network_does():
    graph = chain("tanh", 6, 48, rows=96)
    x = np.random.default_rng(0).standard_normal((96, 48))
    found = solve(graph, {"input.0": x})
    plan, _, runtime = settled(found, x, exact=False)
    for d in correct.placed(found.solver):
        assert d.region is not None
        part = next(w for w in plan.weights if w.name == graph.leaves[d.leaf].name).parts[0]
        assert level(runtime.last[d.region.end]) == pytest.approx(part.measured, rel=1e-5)
        assert level(runtime.last[d.region.output]) == pytest.approx(part.measured_output, rel=1e-5)


def test_factors_replay_from_json_to_the_last_bit():
    x = np.random.default_rng(0).standard_normal((96, 48))
    plan, weights, _ = settled(solve(chain("relu", 5, 48, rows=96), {"input.0": x}, seed=11), x)
    again = Plan.from_json(plan.to_json())
    assert any(p.draw.factor != 1 for w in plan.weights for p in w.parts)
    fresh = materialize(again, zeros(again))
    assert all(fresh[n].tobytes() == weights[n].tobytes() for n in weights)


def test_correction_narrows_the_spread_over_seeds():
    graph = chain("relu", 12, 16, rows=256, into=16)
    x = np.random.default_rng(5).standard_normal((256, 16))
    plain: list[float] = []
    mended: list[float] = []
    for seed in range(8):
        found = solve(graph, {"input.0": x}, seed=seed, mirror=False)
        runtime = NumpyRuntime(graph, {"input.0": x})
        runtime.run(found.weights(seed), (), None)
        plain.append(np.log(level(runtime.last[graph.outputs[0]])))
        mended.append(np.log(level(settled(found, x)[2].last[graph.outputs[0]])))
    assert np.std(mended) < 0.01 < 0.1 < np.std(plain)


def test_shares_of_a_stream_are_met_on_data():
    net = Net()
    x = net.input(128, 48)
    for k in range(4):
        x = net.both("add", x, net.dense(net.act("relu", net.dense(x, f"{k}.a", 64)), f"{k}.b", 48))
    graph = net.graph(x)
    data = skewed(128, 48)
    plan, _, _ = settled(solve(graph, {"input.0": data}), data)
    stream = level(data)
    shares = [w.parts[0].measured for w in plan.weights if w.name.endswith("b.weight")]
    assert shares == pytest.approx([stream / 4] * 4, rel=0.01)


def test_a_batch_without_signal_leaves_the_draw_alone_and_says_so():
    x = np.full((64, 32), 1e-9)
    found = solve(chain("relu", 3, 32), {"input.0": x})
    plan, _, _ = settled(found, x, exact=False)
    assert all(p.draw.factor == 1 for w in plan.weights for p in w.parts)
    assert any("carries no usable signal" in w for w in plan.warnings)


def test_units_that_are_zero_for_every_sample_are_counted_and_named():
    graph = chain("relu", 1, 200, into=32)
    x = np.random.default_rng(0).standard_normal((64, 32)) * 0.05 + 1
    found = solve(graph, {"input.0": x}, auto=False)
    plan, _, runtime = settled(found, x)
    after = runtime.last[next(n.output for n in graph.nodes if getattr(n.op, "fn", "") == "relu")]
    share = float(np.mean(np.all(after == 0, axis=0)))
    assert 0.3 < share < 0.6
    assert f"{share:.0%} of the units after 0.weight are zero for every sample of the batch" in plan.warnings


def convolution() -> Graph:
    net = Net()
    x = net.input(8, 6, 10)
    window = (ops.Window(2, 5, 6, 3, pad_low=1, pad_high=1),)
    for k in range(3):
        weight = net.param(f"{k}", 24, net.shape(x)[1], 3)
        y = net.op(ops.Contract((0, 1, 2), (4, 1, 5), (0, 4, 6), window), (x, weight), (8, 24, 10))
        x = net.act("silu", net.both("add", y, net.param(f"{k}.bias", 24, 1)))
    return net.graph(x)


def test_padded_convolutions_are_settled_as_well():
    graph = convolution()
    x = np.random.default_rng(0).standard_normal((8, 6, 10)) * 3 + 1
    plan, _, _ = settled(solve(graph, {"input.0": x}, auto=False), x)
    assert [w.parts[0].measured for w in plan.weights if len(w.shape) == 3 and "bias" not in w.name] == pytest.approx(
        [1.0] * 3, rel=0.01
    )


def test_only_paths_whose_noise_grows_need_a_run():
    deep = solve(chain("square", 8, 64), auto=False)
    assert correct.needed(deep.solver, deep.plan)
    net = Net()
    x = net.input(64, 512)
    for k in range(3):
        x = net.norm(net.act("relu", net.dense(x, str(k), 512)))
    calm = solve(net.graph(x))
    assert correct.needed(calm.solver, calm.plan) == set()

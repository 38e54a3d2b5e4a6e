"""The lecture's Equinox network and a linen perceptron: leaves, contractions, runs and writes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

jnp = pytest.importorskip("jax.numpy")
eqx = pytest.importorskip("equinox")
nn = pytest.importorskip("flax.linen")
import jax  # noqa: E402

from anyinit._frameworks.jax import framework_of, open_model, recognizes  # noqa: E402
from anyinit._graph.ops import Contract, Pointwise  # noqa: E402


class Lecture(eqx.Module):
    layers: list

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip((1, 10, 10), (10, 10, 1), keys, strict=True)]

    @partial(jax.vmap, in_axes=(None, 0))
    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


class Perceptron(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = jnp.tanh(nn.Dense(16)(x))
        return nn.Dense(3)(x)


@pytest.fixture
def lecture():
    return Lecture(jax.random.key(0))


def batch(rows=20, columns=1):
    return np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)


def ops(graph):
    return [type(n.op).__name__ if not isinstance(n.op, Pointwise) else n.op.fn for n in graph.nodes]


def test_the_lecture_net_is_linear_maps_biases_and_relus(lecture):
    graph = open_model(lecture, batch()).record()
    assert ops(graph) == ["Contract", "add", "relu"] * 2 + ["Contract", "add"]
    assert [leaf.name for _, leaf in graph.params()] == [
        f"layers.{i}.{p}" for i in range(3) for p in ("weight", "bias")
    ]
    assert graph.unused == () and graph.notes == ()


def test_the_activation_comes_first_and_the_weight_second(lecture):
    graph = open_model(lecture, batch()).record()
    for node in graph.nodes:
        if isinstance(node.op, Contract):
            weight = graph.leaves[node.inputs[1]]
            assert weight.role == "param" and weight.trainable
            assert node.op.a[-1] == node.op.b[-1] and node.op.out == (node.op.a[0], node.op.b[0])


def test_a_run_shows_the_values_the_model_computes(lecture):
    x = batch()
    runtime = open_model(lecture, x)
    graph, seen = runtime.record(), {}
    runtime.run({}, [n.output for n in graph.nodes], lambda i, a: seen.update({i: a}))
    assert list(seen) == [n.output for n in graph.nodes]
    np.testing.assert_allclose(seen[graph.outputs[0]], lecture(x), rtol=1e-6)
    first = next(n for n in graph.nodes if isinstance(n.op, Pointwise))
    layer = lecture.layers[0]
    np.testing.assert_allclose(seen[first.output], x @ layer.weight.T + layer.bias, rtol=1e-6)


def test_a_value_given_back_by_the_visitor_replaces_the_signal(lecture):
    runtime = open_model(lecture, batch())
    graph, seen = runtime.record(), {}
    relus = [n.output for n in graph.nodes if n.op == Pointwise("relu", (None,))]

    def visit(value, array):
        seen[value] = array
        return np.zeros_like(array) if value == relus[-1] else None

    runtime.run({}, [*relus, graph.outputs[0]], visit)
    np.testing.assert_allclose(seen[graph.outputs[0]], np.broadcast_to(lecture.layers[-1].bias, (20, 1)))


def test_a_run_uses_the_weights_it_is_given_and_leaves_the_model_alone(lecture):
    runtime = open_model(lecture, batch())
    graph, seen = runtime.record(), {}
    before = np.asarray(lecture.layers[2].bias)
    weights = {leaf.name: np.zeros(graph.values[i].shape) for i, leaf in graph.params()}
    weights["layers.2.bias"] = np.array([2.5])
    runtime.run(weights, graph.outputs, lambda i, a: seen.update({i: a}))
    assert set(seen[graph.outputs[0]].ravel()) == {2.5}
    assert np.asarray(lecture.layers[2].bias) == before


def test_gradients_agree_with_finite_differences_of_the_probed_output(lecture):
    x = batch()
    runtime = open_model(lecture, x)
    found = runtime.gradients({}, seed=3)
    probe = np.random.default_rng(3).standard_normal((20, 1))

    def loss(bias):
        moved = eqx.tree_at(lambda m: m.layers[1].bias, lecture, lecture.layers[1].bias.at[4].add(bias))
        return float(np.sum(np.asarray(moved(x), np.float64) * probe))

    slope = (loss(1e-2) - loss(-1e-2)) / 2e-2
    assert found["layers.1.bias"][4] == pytest.approx(slope, rel=1e-2, abs=1e-3)
    assert set(found) == {f"layers.{i}.{p}" for i in range(3) for p in ("weight", "bias")}


def test_writing_makes_a_new_module_that_shares_every_other_leaf(lecture):
    runtime = open_model(lecture, batch())
    kept = np.asarray(lecture.layers[0].weight)
    runtime.write({"layers.0.weight": np.full((10, 1), 0.1)})
    assert type(runtime.result) is Lecture
    np.testing.assert_array_equal(runtime.result.layers[0].weight, np.full((10, 1), np.float32(0.1)))
    assert runtime.result.layers[0].weight.dtype == jnp.float32
    assert runtime.result.layers[1].weight is lecture.layers[1].weight
    np.testing.assert_array_equal(lecture.layers[0].weight, kept)
    np.testing.assert_array_equal(
        runtime.read(["layers.0.weight"])["layers.0.weight"], np.full((10, 1), np.float32(0.1))
    )


def test_linen_needs_no_parameters_to_be_recorded_and_returns_a_tree():
    model, x = Perceptron(), batch(8, 4)
    runtime = open_model(model, x)
    graph = runtime.record()
    assert ops(graph) == ["Contract", "add", "tanh"] * 2 + ["Contract", "add"]
    runtime.write({"Dense_1.kernel": np.zeros((16, 16))})
    out = model.apply(runtime.result, x)
    assert out.shape == (8, 3)
    assert not np.asarray(runtime.result["params"]["Dense_1"]["kernel"]).any()
    assert np.asarray(runtime.result["params"]["Dense_0"]["kernel"]).any()


def test_linen_and_equinox_twins_have_the_same_graph():
    linen = open_model(Perceptron(), (8, 4)).record()
    twin = open_model(eqx.nn.MLP(4, 3, 16, 2, jnp.tanh, key=jax.random.key(0)), (8, 4)).record()
    assert ops(linen) == ops(twin)
    assert [linen.values[n.output] for n in linen.nodes] == [twin.values[n.output] for n in twin.nodes]
    assert "one example at a time" in twin.notes[0] and not linen.notes


@pytest.mark.parametrize("model", [Perceptron(), eqx.nn.Identity(), lambda p, x: x, jax.jit(lambda p, x: x)])
def test_models_of_this_room_are_recognised(model):
    assert recognizes(model)


@pytest.mark.parametrize("model", [3, "net", np.zeros(3), {"w": 1}, None])
def test_other_objects_are_not(model):
    assert framework_of(model) is None

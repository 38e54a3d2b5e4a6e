"""Models that read values in Python are run on real numbers, and the report says so."""

from __future__ import annotations

import numpy as np
import pytest

from graph_numbers import evaluate

jnp = pytest.importorskip("jax.numpy")
nn = pytest.importorskip("flax.linen")
import jax  # noqa: E402

from anyinit._frameworks.jax import open_model  # noqa: E402
from anyinit._graph.ops import Contract, Pointwise  # noqa: E402

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32)


def branching(w, x):
    h = jax.nn.relu(x @ w)
    return jnp.sin(h) if h.sum() > 0 else jnp.cos(h)


def rescaled(w, x):
    return (x @ w) / float(jnp.abs(x).max())


def selected(w, x):
    return x[np.asarray(x[:, 0] > 0)] @ w


def counted(w, x):
    h, steps = x, 0
    while float(jnp.square(h).mean()) > 1e-3 and steps < 5:
        h, steps = jnp.tanh(h @ w * 0.3), steps + 1
    return h


def mapped(w, x):
    scale = 2.0 if x[0, 0] > -100 else 1.0
    return jax.vmap(lambda row: jax.nn.gelu(w @ row) * scale)(x)


def differentiated(w, x):
    scale = 2.0 if x[0, 0] > -100 else 1.0
    return jax.vmap(jax.grad(lambda row: jnp.sin(row @ w).sum() * scale))(x)


@pytest.mark.parametrize("net", [branching, rescaled, selected, counted, mapped, differentiated])
def test_a_model_that_reads_values_is_recorded_as_it_ran(net):
    runtime = open_model(lambda p, x: net(p["w"], x), (X,), params={"w": W})
    graph = runtime.record()
    assert any("recorded on real numbers" in note for note in graph.notes)
    expected = np.asarray(net(jnp.asarray(W), jnp.asarray(X)))
    np.testing.assert_allclose(
        evaluate(graph, {"w": W, "input.0": X})[graph.outputs[0]], expected, rtol=1e-4, atol=1e-5
    )
    seen = {}
    runtime.run({}, graph.outputs, lambda value, array: seen.update({value: array}))
    np.testing.assert_allclose(seen[graph.outputs[0]], expected, rtol=1e-5, atol=1e-6)


def test_gradients_follow_the_recorded_path():
    runtime = open_model(lambda p, x: branching(p["w"], x), (X,), params={"w": W})
    found = runtime.gradients({}, seed=0)["w"]
    probe = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    expected = jax.grad(lambda w: jnp.sum(jnp.sin(jax.nn.relu(X @ w)) * probe))(jnp.asarray(W))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_linen_module_without_weights_is_recorded_with_stand_ins():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return jnp.tanh(nn.Dense(4)(x)) if float(x[0, 0]) < 1e9 else x

    params = Net().init(jax.random.key(0), jnp.asarray(X))
    for given in (None, params, jax.eval_shape(lambda: params)):
        graph = open_model(Net(), (4, 3), params=given).record()
        assert [type(n.op) for n in graph.nodes] == [Contract, Pointwise, Pointwise]

"""Diagnosis of JAX models: planted faults, the lecture's four networks, and modules of every kind."""

from __future__ import annotations

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from tests.support.faults import DEPTH, FAULTS, Fault, batch, sound

import anyinit

ACTIVATION = {"relu": jax.nn.relu, "tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid}


def cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(logits), axis=-1))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_planted_fault_is_found_where_it_was_planted(fault: Fault):
    rng = np.random.default_rng(0)
    arrays = sound(rng)
    x, y = batch(rng)
    act = ACTIVATION[fault.activation]

    def net(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        for k in range(DEPTH):
            x = x @ params[f"w{k}"].T + params[f"b{k}"]
            x = act(x) if k < DEPTH - 1 else x
        return x

    loss = (lambda model, x: cross_entropy(model(x), y)) if fault.loss else None
    params = {k: jnp.asarray(v) for k, v in arrays.items()}
    assert anyinit.diagnose(net, x, loss, params=params).healthy
    fault.plant(arrays)
    planted = {k: jnp.asarray(v) for k, v in arrays.items()}
    found = anyinit.diagnose(net, x, loss, params=planted, optimizer=fault.optimizer)
    assert [t for t in found.findings if t.kind == fault.kind and fault.where in t.where], str(found)


def test_the_lectures_networks_get_the_findings_the_lecture_teaches():
    net = equinox.nn.MLP(1, 1, 64, 3, activation=jax.nn.relu, key=jax.random.key(0))
    x = jnp.linspace(-1, 1, 64)[:, None]
    y = jnp.sin(3 * x)

    def loss(model: equinox.Module, x: jax.Array) -> jax.Array:
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    def kinds(**how: object) -> set[str]:
        model = anyinit.initialize(net, x, seed=0, **how).model
        return {t.kind for t in anyinit.diagnose(model, x, loss).findings}

    assert {"zero weights", "no gradient"} <= kinds(scheme="zeros")
    assert "identical units" in kinds(scheme="constant", bias=0.1)
    assert kinds(scheme="xavier_normal", bias=0.1) == set()
    assert kinds(scheme="he_normal", bias=0.1) == set()
    assert kinds() == set()


def test_flax_modules_are_diagnosed_and_left_as_they_are():
    class Net(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = linen.relu(linen.Conv(16, (3, 3))(x))
            return linen.Dense(4)(x.reshape(x.shape[0], -1))

    x = jax.random.normal(jax.random.key(1), (16, 8, 8, 3))
    variables = Net().init(jax.random.key(0), x)
    assert anyinit.diagnose(Net(), x, params=variables).healthy
    broken = jax.tree_util.tree_map(jnp.zeros_like, variables)
    assert "zero weights" in {t.kind for t in anyinit.diagnose(Net(), x, params=broken).findings}

    model = nnx.Linear(8, 4, rngs=nnx.Rngs(0))
    before = np.asarray(model.kernel[...]).copy()
    assert anyinit.diagnose(model, jnp.asarray(np.random.default_rng(0).normal(size=(16, 8)), jnp.float32)).healthy
    assert np.array_equal(before, model.kernel[...])

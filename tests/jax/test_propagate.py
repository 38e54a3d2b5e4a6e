"""Norms and angles of JAX models as they stand."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyinit


def network(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ params["first"], approximate=False) @ params["second"]


def test_norms_and_cosines_of_a_function_of_its_parameters_are_those_of_its_layers():
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "first": jax.random.normal(keys[0], (64, 256)) / 8,
        "second": jax.random.normal(keys[1], (256, 128)) / 16,
    }
    before = {name: np.asarray(w).tobytes() for name, w in params.items()}
    batch = jax.random.normal(keys[2], (32, 64))
    found = anyinit.propagate(network, batch, params=params).curves[0]
    assert {name: np.asarray(w).tobytes() for name, w in params.items()} == before
    hidden = np.asarray(batch @ params["first"], np.float64)
    for row, layer in enumerate((hidden, np.asarray(network(params, batch), np.float64))):
        length = np.linalg.norm(layer, axis=1)
        assert np.allclose(found.norm[row], length.reshape(-1, 2).mean(1), rtol=1e-4)
        cosine = (layer[::2] * layer[1::2]).sum(1) / (length[::2] * length[1::2])
        assert np.allclose(found.cosine[row], cosine, atol=1e-4)
    assert found.norm.mean(axis=1) == pytest.approx(found.predicted_norm[:, 0], rel=0.1)


def test_an_equinox_module_is_followed_layer_by_layer():
    model = eqx.nn.MLP(16, 8, 64, 3, jax.nn.tanh, key=jax.random.key(0))
    found = anyinit.propagate(model, jnp.asarray(np.random.default_rng(0).standard_normal((8, 16)), jnp.float32))
    curve = found.curves[0]
    assert len(curve.layers) == 4
    assert np.isfinite(curve.norm).all() and np.isfinite(curve.predicted_norm).all()

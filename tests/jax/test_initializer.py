"""Initializers for ``kernel_init=``: levels, shapes, and the transformations of JAX."""

from __future__ import annotations

import flax.linen as nn
import jax
import numpy as np
import pytest

import anyinit.jax
from anyinit.errors import ConfigError

X = jax.random.normal(jax.random.key(0), (512, 256))


@pytest.mark.parametrize("law", ["normal", "truncated_normal", "uniform"])
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
def test_a_hidden_dense_layer_has_unit_level_behind_its_activation(activation, law):
    layer = nn.Dense(512, kernel_init=anyinit.jax.initializer("hidden", activation, distribution=law))
    out = getattr(jax.nn, activation)(layer.init_with_output(jax.random.key(1), X)[0])
    np.testing.assert_allclose(np.mean(np.square(out)), 1.0, rtol=0.08)


def test_a_grouped_convolution_counts_the_inputs_of_one_group():
    x = jax.random.normal(jax.random.key(0), (8, 16, 16, 64))
    init = anyinit.jax.initializer("output")
    layer = nn.Conv(64, (3, 3), padding="VALID", feature_group_count=4, kernel_init=init)
    out, held = layer.init_with_output(jax.random.key(1), x)
    assert held["params"]["kernel"].shape == (3, 3, 16, 64)
    np.testing.assert_allclose(np.mean(np.square(out)), 1.0, rtol=0.08)


def test_jit_and_vmap_change_nothing_and_another_key_changes_the_draw():
    init = anyinit.jax.initializer("hidden", "tanh")
    keys = jax.random.split(jax.random.key(3), 2)
    plain = init(keys[0], (8, 4))
    np.testing.assert_allclose(jax.jit(init, static_argnums=1)(keys[0], (8, 4)), plain, rtol=1e-6)
    mapped = jax.vmap(lambda key: init(key, (8, 4)))(keys)
    np.testing.assert_allclose(mapped[0], plain, rtol=1e-6)
    assert not np.allclose(mapped[1], plain)


def test_a_residual_kernel_is_zero_and_an_embedding_has_unit_entries():
    assert not anyinit.jax.initializer("residual")(jax.random.key(0), (8, 4)).any()
    table = anyinit.jax.initializer("embedding")(jax.random.key(0), (500, 64))
    np.testing.assert_allclose(np.std(table), 1.0, rtol=0.03)


def test_unknown_words_and_vectors_are_refused():
    with pytest.raises(ConfigError, match="role"):
        anyinit.jax.initializer("hiden")
    with pytest.raises(ConfigError, match="distribution"):
        anyinit.jax.initializer(distribution="cauchy")
    with pytest.raises(ConfigError, match="inputs and outputs"):
        anyinit.jax.initializer()(jax.random.key(0), (4,))

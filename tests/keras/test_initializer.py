"""Initializers for ``kernel_initializer=``: levels, shapes, seeds, and saving with a model."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import anyinit.keras
from anyinit.errors import ConfigError

X = np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32)


def array(value):
    return keras.ops.convert_to_numpy(value)


@pytest.mark.parametrize("law", ["normal", "truncated_normal", "uniform"])
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
def test_a_hidden_dense_layer_has_unit_level_behind_its_activation(activation, law):
    init = anyinit.keras.initializer("hidden", activation, distribution=law, seed=1)
    layer = keras.layers.Dense(512, activation=activation, kernel_initializer=init)
    np.testing.assert_allclose(np.mean(np.square(array(layer(X)))), 1.0, rtol=0.08)


@pytest.mark.parametrize("law", ["normal", "truncated_normal", "uniform"])
def test_every_law_has_the_standard_deviation_of_the_role(law):
    drawn = array(anyinit.keras.initializer("output", distribution=law, seed=0)((400, 500)))
    np.testing.assert_allclose(drawn.std(), 400**-0.5, rtol=5 / np.sqrt(2 * drawn.size))


def test_a_grouped_convolution_counts_the_inputs_of_one_group():
    kernel = array(anyinit.keras.initializer("output", seed=0)((3, 3, 16, 64)))
    np.testing.assert_allclose(kernel.std(), (9 * 16) ** -0.5, rtol=5 / np.sqrt(2 * kernel.size))


def test_a_depthwise_kernel_takes_the_fan_it_is_given():
    init = anyinit.keras.initializer("output", fan=9, seed=0)
    layer = keras.layers.DepthwiseConv2D(3, depthwise_initializer=init)
    layer.build((None, 8, 8, 512))
    kernel = array(layer.kernel)
    np.testing.assert_allclose(kernel.std(), 1 / 3, rtol=5 / np.sqrt(2 * kernel.size))


def test_one_object_draws_anew_for_every_layer_and_a_seed_repeats_itself():
    free, fixed = anyinit.keras.initializer("output"), anyinit.keras.initializer("output", seed=3)
    assert not np.array_equal(array(free((8, 4))), array(free((8, 4))))
    np.testing.assert_array_equal(array(fixed((8, 4))), array(fixed((8, 4))))
    keras.utils.set_random_seed(0)
    first = array(free((8, 4)))
    keras.utils.set_random_seed(0)
    np.testing.assert_array_equal(array(free((8, 4))), first)


def test_a_residual_kernel_is_zero_and_an_embedding_has_unit_entries():
    assert not array(anyinit.keras.initializer("residual")((8, 4))).any()
    layer = keras.layers.Embedding(500, 64, embeddings_initializer=anyinit.keras.initializer("embedding", seed=0))
    layer.build()
    np.testing.assert_allclose(array(layer.embeddings).std(), 1.0, rtol=0.03)


@pytest.mark.parametrize("activation", ["leaky_relu", keras.activations.gelu])
def test_a_configuration_makes_the_same_initializer_again(activation):
    params = {"negative_slope": 0.3} if activation == "leaky_relu" else {}
    init = anyinit.keras.initializer("hidden", activation, distribution="uniform", fan=7, seed=5, **params)
    again = keras.initializers.deserialize(keras.initializers.serialize(init))
    assert type(again) is type(init) and again.get_config() == init.get_config()
    np.testing.assert_array_equal(array(again((8, 4))), array(init((8, 4))))


def test_a_model_is_saved_loaded_and_cloned_with_it(tmp_path):
    init = anyinit.keras.initializer("hidden", "gelu", seed=2)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "gelu", kernel_initializer=init)])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for other in (loaded, keras.models.clone_model(model)):
        assert other.layers[0].kernel_initializer.get_config() == init.get_config()
        np.testing.assert_array_equal(array(other.layers[0].kernel), array(model.layers[0].kernel))


@pytest.mark.parametrize(
    ("function", "name"),
    [(keras.activations.gelu, "gelu"), (keras.activations.silu, "silu"), (keras.ops.tanh, "tanh")],
)
def test_a_function_of_keras_has_the_gain_of_its_formula(function, name):
    assert anyinit.gain(function) == pytest.approx(anyinit.gain(name), rel=1e-6)


def test_a_layer_of_keras_has_the_gain_of_its_slope():
    slope = 0.1
    expected = np.sqrt(2 / (1 + slope**2))
    assert anyinit.gain(keras.layers.LeakyReLU(negative_slope=slope)) == pytest.approx(expected, rel=1e-6)


def test_unknown_words_and_vectors_are_refused():
    with pytest.raises(ConfigError, match="role"):
        anyinit.keras.initializer("hiden")
    with pytest.raises(ConfigError, match="distribution"):
        anyinit.keras.initializer(distribution="cauchy")
    with pytest.raises(ConfigError, match="fan"):
        anyinit.keras.initializer(fan=0)
    with pytest.raises(ConfigError, match="inputs and outputs"):
        anyinit.keras.initializer()((4,))

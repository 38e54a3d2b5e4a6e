"""What a newcomer to Keras gets wrong first is answered with the value and the next step."""

from __future__ import annotations

import pytest

keras = pytest.importorskip("keras")

import anyinit  # noqa: E402


def net(built: bool = True) -> keras.Model:
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((4,)), *layers] if built else layers)


def test_a_wrong_width_is_answered_with_what_keras_expected():
    with pytest.raises(anyinit.TraceError, match=r"axis -1 .*to have value 4|incompatible") as caught:
        anyinit.initialize(net(), (8, 5))
    caught.match("the shape and type of the input")


def test_an_unbuilt_model_without_input_asks_for_one():
    with pytest.raises(anyinit.ConfigError, match=r"not built and no input was given.*a shape such as"):
        anyinit.initialize(net(built=False))


def test_a_class_and_a_list_of_weights_are_no_models():
    with pytest.raises(anyinit.BackendNotFoundError, match=r"the class Sequential.*an instance of it"):
        anyinit.initialize(keras.Sequential, (8, 4))
    with pytest.raises(anyinit.BackendNotFoundError, match="The model comes first"):
        anyinit.initialize(net().get_weights(), (8, 4))

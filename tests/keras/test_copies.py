"""``initialized`` leaves a Keras model as it was, and says so where no copy can be made."""

from __future__ import annotations

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import anyinit  # noqa: E402


def functional() -> keras.Model:
    given = keras.Input((4,))
    return keras.Model(given, keras.layers.Dense(2)(keras.layers.Dense(8, activation="relu")(given)))


def sequential() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])


@pytest.mark.parametrize("make", [functional, sequential])
def test_the_copy_gets_what_initialize_would_write_and_the_model_keeps_its_own(make):
    model = make()
    before = model.get_weights()
    new, _ = anyinit.initialized(model, (16, 4), seed=3)
    assert new is not model
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)
    anyinit.initialize(model, (16, 4), seed=3)
    for theirs, ours in zip(model.get_weights(), new.get_weights(), strict=True):
        np.testing.assert_array_equal(theirs, ours)
    assert not np.array_equal(before[0], new.get_weights()[0])


class Uncopyable(keras.Model):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner = inner

    def call(self, x):
        return self.inner(x)

    def get_config(self):
        raise NotImplementedError("this model has no configuration")


def test_a_model_without_a_configuration_is_refused_and_left_alone():
    model = Uncopyable(keras.layers.Dense(3))
    model(np.ones((2, 4), "float32"))
    before = model.get_weights()
    with pytest.raises(anyinit.ConfigError, match=r"cannot be copied.*Uncopyable.*Call initialize"):
        anyinit.initialized(model, (16, 4))
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)

"""What a Keras model cannot be initialized with is refused or named, and the model keeps its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import anyinit

JAX = keras.backend.backend() == "jax"
X = np.random.default_rng(0).standard_normal((16, 6)).astype("float32")


def chain(*layers: keras.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(4)])


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = keras.layers.Dense(8), keras.layers.Dense(4)

    def call(self, x):
        return self.b(keras.ops.relu(self.a(x)))


UNBUILT: dict[str, Callable[[], Any]] = {
    "chain": lambda: keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(4)]),
    "own": Own,
    "layer": lambda: keras.layers.Dense(4),
}


@pytest.mark.parametrize("kind", UNBUILT)
@pytest.mark.parametrize("function", [anyinit.initialize, anyinit.plan, anyinit.diagnose])
def test_an_unbuilt_model_without_a_shape_asks_for_one_and_stays_unbuilt(kind: str, function: Callable[..., Any]):
    model = UNBUILT[kind]()
    with pytest.raises(anyinit.ConfigError, match=rf"not built and no input was given.*{model.name}.*a shape such as"):
        function(model)
    assert not model.built
    assert model.weights == []


BATCHES: dict[str, tuple[Any, str]] = {
    "another width": ((8, 5), "incompatible.*the shape and type of the input"),
    "not finite": (X * np.nan, "not finite"),
    "no rows": (X[:0], "batch is empty"),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_a_batch_of_no_use_is_refused_and_the_weights_stay(kind: str):
    batch, words = BATCHES[kind]
    model = chain(keras.layers.Dense(8, "relu"))
    before = model.get_weights()
    with pytest.raises(anyinit.AnyInitError, match=words):
        anyinit.initialize(model, batch, seed=0)
    assert all(map(np.array_equal, model.get_weights(), before))


def test_a_model_that_fails_by_itself_says_why_and_keeps_its_weights():
    def broken(x):
        raise ZeroDivisionError("by itself")

    model = chain(keras.layers.Lambda(broken, output_shape=(6,)))
    before = model.get_weights()
    with pytest.raises(anyinit.TraceError, match="by itself"):
        anyinit.initialize(model, X, seed=0)
    assert all(map(np.array_equal, model.get_weights(), before))


def test_parameters_beside_the_model_are_refused():
    model = chain()
    with pytest.raises(anyinit.ConfigError, match=r"holds its variables.*Leave params out"):
        anyinit.initialize(model, X, params={"kernel": X})


def test_an_array_that_the_model_closes_over_is_named_and_a_variable_is_named_or_set():
    table = np.ones((6, 8), "float32")
    for held in (table, keras.ops.convert_to_tensor(table)):
        model = chain(keras.layers.Lambda(lambda x, held=held: keras.ops.matmul(x, held)))
        report = anyinit.initialize(model, X, seed=0)
        assert any("shape (6, 8) is closed over" in note for note in report.plan.notes)
    variable = keras.Variable(table)
    report = anyinit.initialize(chain(keras.layers.Lambda(lambda x: keras.ops.matmul(x, variable))), X, seed=0)
    named = any("shape (6, 8) is closed over" in note for note in report.plan.notes)
    drawn = any(layer.shape == (6, 8) for layer in report.layers)
    assert (named, drawn) == ((True, False) if JAX else (False, True))


@pytest.mark.skipif(not JAX, reason="arrays are deleted and bound to devices on JAX alone")
def test_a_deleted_variable_is_named():
    model = chain(keras.layers.Dense(8, "relu"))
    model.weights[2].value.delete()
    before = model.weights[0].numpy()
    with pytest.raises(anyinit.ConfigError, match=r"1 array was deleted: donated.*dense.*kernel"):
        anyinit.initialize(model, X, seed=0)
    np.testing.assert_array_equal(model.weights[0].numpy(), before)

"""Faults planted in a Keras model are found where they were planted, on every backend; the sound model has none."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.faults import DEPTH, FAULTS, INPUTS, Fault, batch, sound

keras = pytest.importorskip("keras")

import anyinit  # noqa: E402

SIZES = [a.shape[0] for name, a in sound(np.random.default_rng(0)).items() if name[0] == "w"]
NAMES = {f"w{k}": f"d{k}.kernel" for k in range(DEPTH)} | {f"b{k}": f"d{k}.bias" for k in range(DEPTH)}


def stack(arrays: dict[str, np.ndarray], activation: str) -> keras.Model:
    given = x = keras.Input((INPUTS,))
    layers = [keras.layers.Dense(n, name=f"d{k}") for k, n in enumerate(SIZES)]
    for k, layer in enumerate(layers):
        x = layer(x)
        x = keras.layers.Activation(activation)(x) if k < DEPTH - 1 else x
    for k, layer in enumerate(layers):
        layer.set_weights([arrays[f"w{k}"].T, arrays[f"b{k}"]])
    return keras.Model(given, x)


def diagnosed(fault: Fault, *, planted: bool) -> anyinit.Diagnosis:
    rng = np.random.default_rng(0)
    arrays = sound(rng)
    x, y = batch(rng)
    if planted:
        fault.plant(arrays)

    def loss(model, inputs):
        return -keras.ops.mean(keras.ops.sum(y * keras.ops.log_softmax(model(inputs)), -1))

    optimizer = fault.optimizer if planted else ("adam", 1e-3)
    model = stack(arrays, fault.activation)
    return anyinit.diagnose(model, x, loss if fault.loss else None, optimizer=optimizer)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_planted_fault_is_found_where_it_was_planted(fault: Fault):
    found, where = diagnosed(fault, planted=True), NAMES.get(fault.where, fault.where)
    assert [t for t in found.findings if t.kind == fault.kind and where in t.where], str(found)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_the_same_network_without_a_fault_has_no_finding(activation: str):
    fault = next(f for f in FAULTS if f.activation == activation and f.loss)
    assert diagnosed(fault, planted=False).findings == ()


LOSSES = {
    "dense": lambda y, z: keras.ops.mean(keras.ops.categorical_crossentropy(y, z, from_logits=True)),
    "sparse": lambda y, z: keras.ops.mean(
        keras.ops.sparse_categorical_crossentropy(np.argmax(y, -1), z, from_logits=True)
    ),
    "dense object": lambda y, z: keras.losses.CategoricalCrossentropy(from_logits=True)(y, z),
    "sparse object": lambda y, z: keras.losses.SparseCategoricalCrossentropy(from_logits=True)(np.argmax(y, -1), z),
    "probabilities": lambda y, z: keras.losses.CategoricalCrossentropy()(y, keras.ops.softmax(z)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_classes_are_seen_in_every_spelling_of_cross_entropy(name: str):
    rng = np.random.default_rng(0)
    arrays, (x, y) = sound(rng), batch(rng)
    sane = anyinit.diagnose(stack(arrays, "relu"), x, lambda model, inputs: LOSSES[name](y, model(inputs)))
    assert sane.facts.classes == y.shape[1]
    assert sane.findings == ()
    arrays[f"w{DEPTH - 1}"] *= 12
    wild = anyinit.diagnose(stack(arrays, "relu"), x, lambda model, inputs: LOSSES[name](y, model(inputs)))
    assert [t.kind for t in wild.findings] == ["first loss"]

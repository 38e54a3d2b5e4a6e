"""Keras models on whichever backend is set: placed in full under the paths of their variables, nothing else touched."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

keras = pytest.importorskip("keras")
from keras import layers, ops  # noqa: E402

import anyinit  # noqa: E402
from anyinit.errors import ConfigError, TraceError  # noqa: E402


class Net(keras.Model):
    """Never built before; a raw weight, a sublayer in a list, running statistics."""

    def __init__(self):
        super().__init__()
        self.hidden = [layers.Dense(32, activation="relu", kernel_initializer="zeros") for _ in range(2)]
        self.norm = layers.BatchNormalization()

    def build(self, shape):
        self.raw = self.add_weight(shape=(32, 4), name="raw")
        self.built = True

    def call(self, x):
        x = self.norm(x)
        for layer in self.hidden:
            x = layer(x)
        return ops.matmul(x, self.raw)


def image():
    x = start = layers.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    y = layers.SeparableConv2D(8, 3, padding="same")(layers.BatchNormalization()(x))
    y = layers.DepthwiseConv2D(3, padding="same")(y)
    x = layers.MaxPooling2D()(layers.add([x, y]))
    x = layers.Conv2DTranspose(8, 4, strides=2, padding="same", activation="relu")(x)
    return keras.Model(start, layers.Dense(4)(layers.Dropout(0.1)(layers.GlobalAveragePooling2D()(x))))


def transformer():
    ids = layers.Input((8,), dtype="int32")
    x = layers.Embedding(50, 32)(ids)
    h = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(4, 8)(h, h)
    x = x + layers.Dense(32)(layers.Dense(64, activation="gelu")(layers.LayerNormalization()(x)))
    return keras.Model(ids, layers.Dense(50)(x))


def recurrent():
    return keras.Sequential(
        [
            layers.Input((5, 8)),
            layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
            layers.GRU(8, return_sequences=True),
            layers.TimeDistributed(layers.Dense(8, activation="relu")),
            layers.SimpleRNN(4),
        ]
    )


def shared():
    x, layer = layers.Input((16,)), layers.Dense(16, activation="tanh")
    return keras.Model(x, layer(layer(x)))


def chain():
    return keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(32, activation="silu"), layers.Dense(4)])


IDS = np.random.default_rng(0).integers(0, 50, (4, 8)).astype("int32")
MODELS = {
    "unbuilt chain": (chain, (16, 16)),
    "subclassed": (Net, (16, 16)),
    "image": (image, (4, 8, 8, 3)),
    "transformer": (transformer, IDS),
    "recurrent": (recurrent, (16, 5, 8)),
    "shared": (shared, (16, 16)),
}


def values(variables):
    return [np.array(ops.convert_to_numpy(v)) for v in variables]


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_is_placed_under_its_path_and_states_are_left_alone(name):
    build, spec = MODELS[name]
    model = build()
    if name != "subclassed" and name != "unbuilt chain":
        before = values(model.non_trainable_variables)
    else:
        anyinit.plan(model, spec, seed=0)  # builds it
        before = values(model.non_trainable_variables)
    report = anyinit.initialize(model, spec, seed=0)
    assert not report.unscaled
    assert not report.opaque
    assert {w.name for w in report.plan.weights} == {v.path.replace("/", ".") for v in model.trainable_variables}
    assert all(np.abs(v).max() > 0 for v in values([v for v in model.trainable_variables if "kernel" in v.path]))
    for old, new in zip(before, values(model.non_trainable_variables), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_plan_leaves_a_built_model_as_it_is():
    model = image()
    before = values(model.variables)
    anyinit.plan(model, seed=0)  # its own inputs say what it takes
    for old, new in zip(before, values(model.variables), strict=True):
        np.testing.assert_array_equal(old, new)


def test_frozen_layers_are_kept_and_listed():
    model = keras.Sequential([layers.Input((16,)), layers.Dense(32, activation="relu"), layers.Dense(4)])
    model.layers[0].trainable = False
    before = values(model.layers[0].variables)
    report = anyinit.initialize(model, (8, 16), seed=0)
    for old, new in zip(before, values(model.layers[0].variables), strict=True):
        np.testing.assert_array_equal(old, new)
    assert report.counts["tensors"]["total"] == 4


def test_mixed_precision_weights_stay_in_their_type():
    model = keras.Sequential([layers.Input((16,)), layers.Dense(8, dtype="mixed_bfloat16"), layers.Dense(4)])
    anyinit.initialize(model, (8, 16), seed=0)
    assert {str(v.dtype) for v in model.trainable_variables} == {"float32"}


@pytest.mark.parametrize("name", ["unbuilt chain", "image", "transformer"])
def test_predicted_levels_are_those_of_many_draws(name):
    build, spec = MODELS[name]
    x = spec if isinstance(spec, np.ndarray) else np.random.default_rng(1).standard_normal(spec).astype("float32")
    model, predicted = build(), {}
    measured: dict[str, list[float]] = {}
    for seed in range(8):
        report = anyinit.initialize(model, x, seed=seed, correct="never")
        for layer in report.layers:
            if layer.measured_output:
                predicted[layer.name] = layer.predicted_output
                measured.setdefault(layer.name, []).append(layer.measured_output)
    errors = [abs(np.log2(predicted[n] / np.mean(v))) for n, v in measured.items()]
    assert len(errors) > 2
    assert np.median(errors) < 0.3
    assert max(errors) < 0.9


DRAWS = {
    "unbuilt chain": ("eec4cdac3c10556f", ("tensorflow", "jax", "torch")),
    "transformer": ("4cf270b827fece59", ("tensorflow", "jax")),
}


@pytest.mark.parametrize("name", [n for n, (_, backends) in DRAWS.items() if keras.backend.backend() in backends])
def test_one_seed_gives_the_same_bytes_on_every_backend_listed(name):
    build, spec = MODELS[name]
    model = build()
    anyinit.initialize(model, spec, seed=7, correct="never")
    whole = hashlib.sha256()
    for value in values(model.trainable_variables):
        whole.update(np.ascontiguousarray(value, np.float32).tobytes())
    assert whole.hexdigest()[:16] == DRAWS[name][0]


def test_bad_input_is_refused_with_a_remedy():
    with pytest.raises(ConfigError, match=r"not built and no input was given.*Pass input_spec"):
        anyinit.initialize(chain(), seed=0)
    with pytest.raises(TraceError):
        anyinit.initialize(image(), (4, 8, 8, 2), seed=0)
    with pytest.raises(ConfigError, match="holds its variables"):
        anyinit.initialize(image(), (4, 8, 8, 3), params={}, seed=0)

"""Empirical mode on Keras, on every backend: levels over pairs of inputs and labels, exact to 1 %."""

from __future__ import annotations

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import anyinit  # noqa: E402


def test_levels_hold_over_batches_with_labels():
    layers = [keras.layers.Dense(48, "relu") for _ in range(4)]
    net = keras.Sequential([keras.Input((20,)), *layers, keras.layers.Dense(3)])
    x = (np.random.default_rng(0).standard_normal((96, 20)) * np.linspace(0.5, 3, 96)[:, None]).astype(np.float32)
    pairs = [(part, np.zeros(len(part), np.int32)) for part in np.split(x, 3)]
    anyinit.initialize(net, iter(pairs), "empirical", seed=0, target="unit")
    for layer in layers:
        x = keras.ops.convert_to_numpy(layer(x))
        assert float(np.mean(np.square(x.astype(np.float64)))) == pytest.approx(1.0, rel=0.01)


def test_a_batch_of_zeros_is_refused():
    net = keras.Sequential([keras.Input((20,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
    with pytest.raises(anyinit.ConfigError, match="the input is all zero"):
        anyinit.initialize(net, np.zeros((8, 20), np.float32), "empirical")

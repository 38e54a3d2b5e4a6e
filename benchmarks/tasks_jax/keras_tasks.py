"""Tasks in Keras, on its JAX backend."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from tasks import data
from tasks_jax.models import Keras
from tasks_jax.task import Task, classes, entropy, rows, spread, squares, windows


def memory(count: int) -> Any:
    """One layer of an LSTM on letters."""
    ids = layers.Input((32,), dtype="int32")
    x = layers.Embedding(count, 48, name="token")(ids)
    x = layers.LSTM(64, return_sequences=True, name="lstm")(x)
    return keras.Model(ids, layers.Dense(count, name="head")(x))


def normed() -> Any:
    """Convolutions, batch norm and relu, with pooling."""
    x = start = layers.Input((8, 8, 1))
    for k, channels in enumerate((16, 16, 32, 32)):
        x = layers.Conv2D(channels, 3, padding="same", use_bias=False, name=f"conv_{k}")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.MaxPooling2D()(x) if k % 2 else x
    return keras.Model(start, layers.Dense(10, name="head")(layers.Flatten()(x)))


def chain(width: int, depth: int) -> Any:
    """A plain net with silu."""
    x = start = layers.Input((2,))
    for k in range(depth - 1):
        x = layers.Dense(width, activation="silu", name=f"hidden_{k}")(x)
    return keras.Model(start, layers.Dense(1, name="head")(x))


def tasks() -> list[Task]:
    points, heights = data.surface()
    heights = data.standard(heights)
    images, labels = data.digits()
    images, labels = data.standard(images)[..., None], labels.astype(np.int32)
    text, count = data.letters()
    return [
        Task("keras lstm", Keras(lambda: memory(count)),
             windows(text, 32, 16), classes, entropy(text), 150, "tanh", "head|lstm", ("token",)),
        Task("keras conv bn", Keras(normed),
             rows(images, labels, 64), classes, entropy(labels), 100, "relu", "head"),
        Task("keras silu 12", Keras(lambda: chain(64, 12)),
             rows(points, heights, 128), squares, spread(heights), 250, "silu", "head"),
    ]  # fmt: skip

"""The networks of ``golden.py`` in Keras, on whichever backend is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import layers, ops

from golden import Net


def MLP(x: Any) -> Any:
    for width in (32, 32, 32):
        x = layers.Dense(width, activation="silu")(x)
    return layers.Dense(4)(x)


def _padded(x: Any) -> Any:
    return layers.ZeroPadding2D(1)(x)


def CNN(x: Any) -> Any:
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(32, 3, strides=2, groups=4, activation="relu")(_padded(x))
    x = layers.DepthwiseConv2D(3, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(16, 4, strides=2, padding="same", activation="relu")(x)
    return layers.Dense(5)(layers.GlobalAveragePooling2D()(x))


def Residual(x: Any) -> Any:
    x = layers.Conv2D(16, 3, padding="same")(x)
    for k, width in enumerate((16, 32)):
        x = x if k == 0 else layers.Conv2D(32, 1, strides=2)(x)
        h = layers.ReLU()(layers.GroupNormalization(4, epsilon=1e-5)(x))
        h = layers.Conv2D(width, 3, padding="same", activation="relu")(h)
        x = layers.add([x, layers.Conv2D(width, 3, padding="same")(h)])
    return layers.Dense(5)(layers.GlobalAveragePooling2D()(layers.ReLU()(x)))


def Block(x: Any, packed: bool) -> Any:
    h = layers.LayerNormalization(epsilon=1e-5)(x)
    q, k, v = ops.split(layers.Dense(48)(h), 3, -1) if packed else (layers.Dense(16)(h) for _ in range(3))
    q, k, v = (layers.Reshape((6, 2, 8))(t) for t in (q, k, v))
    weights = ops.softmax(ops.einsum("bqhd,bkhd->bhqk", q, k) / 8**0.5, -1)
    x = x + layers.Dense(16)(layers.Reshape((6, 16))(ops.einsum("bhqk,bkhd->bqhd", weights, v)))
    h = layers.LayerNormalization(epsilon=1e-5)(x)
    return x + layers.Dense(16)(layers.Dense(64, activation="relu")(h))


def LSTM(x: Any) -> Any:
    return layers.Dense(3)(layers.LSTM(12, unit_forget_bias=False)(x))


def net(function: Callable[..., Any], shape: tuple[int, ...], **options: Any) -> Net:
    start = layers.Input(shape[1:])
    model = keras.Model(start, function(start, **options))
    return Net(model, lambda made, _, x: ops.convert_to_numpy(made(x)), shape)

"""The networks of ``golden.py`` as ``tf.Module``s of raw variables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from golden import Net


def _weight(*shape: int) -> Any:
    return tf.Variable(tf.zeros(shape))


def _dense(n_in: int, n_out: int) -> tuple[Any, Any]:
    return _weight(n_in, n_out), _weight(n_out)


def _conv(n_in: int, n_out: int, size: int = 3) -> tuple[Any, Any]:
    return _weight(size, size, n_in, n_out), _weight(n_out)


def _apply(x: Any, layer: tuple[Any, Any], stride: int = 1, padding: Any = "SAME") -> Any:
    return tf.nn.conv2d(x, layer[0], stride, padding) + layer[1]


def _affine(x: Any, layer: tuple[Any, Any]) -> Any:
    return x @ layer[0] + layer[1]


def _norm(width: int) -> tuple[Any, Any]:
    return tf.Variable(tf.ones(width)), _weight(width)


def _normalized(x: Any, norm: tuple[Any, Any], groups: int = 0) -> Any:
    shape = tuple(x.shape)
    axes = [-1] if not groups else [1, 2, 4]
    x = tf.reshape(x, (*shape[:-1], groups, shape[-1] // groups)) if groups else x
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return tf.reshape((x - mean) * tf.math.rsqrt(variance + 1e-5), shape) * norm[0] + norm[1]


class MLP(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [_dense(a, b) for a, b in ((16, 32), (32, 32), (32, 32), (32, 4))]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = tf.nn.silu(_affine(x, layer))
        return _affine(x, self.layers[-1])


class CNN(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.grouped, self.head = _conv(3, 16), _conv(4, 32), _dense(16, 5)
        self.depthwise, self.shift = _weight(3, 3, 32, 1), _weight(32)
        self.up, self.lift = _weight(4, 4, 16, 32), _weight(16)

    def __call__(self, x: Any) -> Any:
        x = tf.nn.relu(_apply(x, self.stem))
        x = tf.nn.relu(_apply(x, self.grouped, 2, [[0, 0], [1, 1], [1, 1], [0, 0]]))
        x = tf.nn.relu(tf.nn.depthwise_conv2d(x, self.depthwise, (1, 1, 1, 1), "SAME") + self.shift)
        x = tf.nn.relu(tf.nn.conv2d_transpose(x, self.up, (x.shape[0], 8, 8, 16), 2, "SAME") + self.lift)
        return _affine(tf.reduce_mean(x, (1, 2)), self.head)


class Residual(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.widen, self.head = _conv(3, 16), _conv(16, 32, 1), _dense(32, 5)
        self.norms = [_norm(16), _norm(32)]
        self.first, self.second = ([_conv(16, 16), _conv(32, 32)] for _ in range(2))

    def __call__(self, x: Any) -> Any:
        x = _apply(x, self.stem)
        for k in range(2):
            x = x if k == 0 else _apply(x, self.widen, 2)
            h = _apply(tf.nn.relu(_normalized(x, self.norms[k], 4)), self.first[k])
            x = x + _apply(tf.nn.relu(h), self.second[k])
        return _affine(tf.reduce_mean(tf.nn.relu(x), (1, 2)), self.head)


class Block(tf.Module):
    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.norms = [_norm(16), _norm(16)]
        self.qkv = [_dense(16, 48)] if packed else [_dense(16, 16) for _ in range(3)]
        self.out, self.up, self.down = _dense(16, 16), _dense(16, 64), _dense(64, 16)

    def __call__(self, x: Any) -> Any:
        h = _normalized(x, self.norms[0])
        parts = tf.split(_affine(h, self.qkv[0]), 3, -1) if len(self.qkv) == 1 else [_affine(h, f) for f in self.qkv]
        q, k, v = (tf.reshape(t, (*x.shape[:2], 2, 8)) for t in parts)
        weights = tf.nn.softmax(tf.einsum("bqhd,bkhd->bhqk", q, k) / 8**0.5)
        x = x + _affine(tf.reshape(tf.einsum("bhqk,bkhd->bqhd", weights, v), x.shape), self.out)
        return x + _affine(tf.nn.relu(_affine(_normalized(x, self.norms[1]), self.up)), self.down)


class LSTM(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.bias, self.head = _weight(8, 48), _weight(12, 48), _weight(48), _dense(12, 3)

    def __call__(self, x: Any) -> Any:
        h = c = tf.zeros((x.shape[0], 12))
        for t in range(x.shape[1]):
            i, f, g, o = tf.split(x[:, t] @ self.inner + h @ self.outer + self.bias, 4, -1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
        return _affine(h, self.head)


def net(model: Any, shape: tuple[int, ...], **options: Any) -> Net:
    return Net(model(**options), lambda made, _, x: made(tf.constant(x)).numpy(), shape)

"""The networks of ``golden.py`` in Flax NNX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from flax import nnx

from golden import Net


class MLP(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in ((16, 32), (32, 32), (32, 32), (32, 4))])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = nnx.silu(layer(x))
        return self.layers[-1](x)


class CNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(3, 16, (3, 3), rngs=rngs)
        self.grouped = nnx.Conv(16, 32, (3, 3), strides=2, padding=1, feature_group_count=4, rngs=rngs)
        self.depthwise = nnx.Conv(32, 32, (3, 3), feature_group_count=32, rngs=rngs)
        self.up = nnx.ConvTranspose(32, 16, (4, 4), strides=(2, 2), rngs=rngs)
        self.head = nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.grouped(nnx.relu(self.stem(x))))
        x = nnx.relu(self.up(nnx.relu(self.depthwise(x))))
        return self.head(x.mean((1, 2)))


class Residual(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        conv = partial(nnx.Conv, kernel_size=(3, 3), rngs=rngs)
        self.stem, self.widen = conv(3, 16), nnx.Conv(16, 32, (1, 1), strides=2, rngs=rngs)
        self.norms = nnx.List([nnx.GroupNorm(c, num_groups=4, epsilon=1e-5, rngs=rngs) for c in (16, 32)])
        self.first, self.second = (nnx.List([conv(c, c) for c in (16, 32)]) for _ in range(2))
        self.head = nnx.Linear(32, 5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.stem(x)
        for k in range(2):
            x = x if k == 0 else self.widen(x)
            x = x + self.second[k](nnx.relu(self.first[k](nnx.relu(self.norms[k](x)))))
        return self.head(nnx.relu(x).mean((1, 2)))


class Block(nnx.Module):
    def __init__(self, packed: bool, rngs: nnx.Rngs) -> None:
        linear = partial(nnx.Linear, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(16, epsilon=1e-5, rngs=rngs) for _ in range(2)])
        self.qkv = nnx.List([linear(16, 48)] if packed else [linear(16, 16) for _ in range(3)])
        self.out, self.up, self.down = linear(16, 16), linear(16, 64), linear(64, 16)

    def __call__(self, x: Any) -> Any:
        h = self.norms[0](x)
        q, k, v = jax.numpy.split(self.qkv[0](h), 3, -1) if len(self.qkv) == 1 else (f(h) for f in self.qkv)
        q, k, v = (t.reshape(*t.shape[:2], 2, 8) for t in (q, k, v))
        h = nnx.dot_product_attention(q, k, v)
        x = x + self.out(h.reshape(x.shape))
        return x + self.down(nnx.relu(self.up(self.norms[1](x))))


class LSTM(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.cell, self.head = nnx.RNN(nnx.LSTMCell(8, 12, rngs=rngs)), nnx.Linear(12, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(self.cell(x)[:, -1])


def net(model: Any, shape: tuple[int, ...], **options: Any) -> Net:
    return Net(model(**options, rngs=nnx.Rngs(0)), lambda module, _, x: module(x), shape)

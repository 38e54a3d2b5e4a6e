"""The networks of ``golden.py`` in Equinox: modules of one example, mapped over a batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from golden import Net, channels_first

KEY = jax.random.key(0)
linear, conv = partial(eqx.nn.Linear, key=KEY), partial(eqx.nn.Conv2d, key=KEY)


class MLP(eqx.Module):
    layers: list[Any]

    def __init__(self) -> None:
        self.layers = [linear(a, b) for a, b in ((16, 32), (32, 32), (32, 32), (32, 4))]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = jax.nn.silu(layer(x))
        return self.layers[-1](x)


class CNN(eqx.Module):
    stem: Any
    grouped: Any
    depthwise: Any
    up: Any
    head: Any

    def __init__(self) -> None:
        self.stem, self.head = conv(3, 16, 3, padding=1), linear(16, 5)
        self.grouped = conv(16, 32, 3, stride=2, padding=1, groups=4)
        self.depthwise = conv(32, 32, 3, padding=1, groups=32)
        self.up = eqx.nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1, key=KEY)

    def __call__(self, x: Any) -> Any:
        x = jax.nn.relu(self.grouped(jax.nn.relu(self.stem(x))))
        x = jax.nn.relu(self.up(jax.nn.relu(self.depthwise(x))))
        return self.head(x.mean((1, 2)))


class Residual(eqx.Module):
    stem: Any
    norms: list[Any]
    first: list[Any]
    second: list[Any]
    widen: Any
    head: Any

    def __init__(self) -> None:
        self.stem, self.widen, self.head = conv(3, 16, 3, padding=1), conv(16, 32, 1, stride=2), linear(32, 5)
        self.norms = [eqx.nn.GroupNorm(4, c) for c in (16, 32)]
        self.first, self.second = ([conv(c, c, 3, padding=1) for c in (16, 32)] for _ in range(2))

    def __call__(self, x: Any) -> Any:
        x = self.stem(x)
        for k in range(2):
            x = x if k == 0 else self.widen(x)
            x = x + self.second[k](jax.nn.relu(self.first[k](jax.nn.relu(self.norms[k](x)))))
        return self.head(jax.nn.relu(x).mean((1, 2)))


class Block(eqx.Module):
    norms: list[Any]
    qkv: list[Any]
    out: Any
    up: Any
    down: Any

    def __init__(self, packed: bool) -> None:
        self.norms = [eqx.nn.LayerNorm(16) for _ in range(2)]
        self.qkv = [linear(16, 48)] if packed else [linear(16, 16) for _ in range(3)]
        self.out, self.up, self.down = linear(16, 16), linear(16, 64), linear(64, 16)

    def __call__(self, x: Any) -> Any:
        each = jax.vmap
        h = each(self.norms[0])(x)
        q, k, v = jnp.split(each(self.qkv[0])(h), 3, -1) if len(self.qkv) == 1 else (each(f)(h) for f in self.qkv)
        q, k, v = (t.reshape(-1, 2, 8).swapaxes(0, 1) for t in (q, k, v))
        weights = jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / 8**0.5, -1)
        x = x + each(self.out)(jnp.einsum("hqk,hkd->qhd", weights, v).reshape(x.shape))
        return x + each(self.down)(jax.nn.relu(each(self.up)(each(self.norms[1])(x))))


class LSTM(eqx.Module):
    cell: Any
    head: Any

    def __init__(self) -> None:
        self.cell, self.head = eqx.nn.LSTMCell(8, 12, key=KEY), linear(12, 3)

    def __call__(self, x: Any) -> Any:
        state, _ = jax.lax.scan(lambda s, v: (self.cell(v, s), None), (jnp.zeros(12), jnp.zeros(12)), x)
        return self.head(state[0])


def _run(model: Any, params: Any, x: Any) -> Any:
    return jax.vmap(model)(x.transpose(0, 3, 1, 2) if x.ndim == 4 else x)


def net(model: Any, shape: tuple[int, ...], **options: Any) -> Net:
    return Net(model(**options), _run, channels_first(shape))

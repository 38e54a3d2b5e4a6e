"""The networks of ``golden.py`` in Haiku."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from golden import Net


def MLP(x: Any) -> Any:
    for width in (32, 32, 32):
        x = jax.nn.silu(hk.Linear(width)(x))
    return hk.Linear(4)(x)


def CNN(x: Any) -> Any:
    x = jax.nn.relu(hk.Conv2D(16, 3)(x))
    x = jax.nn.relu(hk.Conv2D(32, 3, stride=2, padding=[(1, 1), (1, 1)], feature_group_count=4)(x))
    x = jax.nn.relu(hk.DepthwiseConv2D(1, 3)(x))
    x = jax.nn.relu(hk.Conv2DTranspose(16, 4, stride=2)(x))
    return hk.Linear(5)(x.mean((1, 2)))


def Residual(x: Any) -> Any:
    x = hk.Conv2D(16, 3)(x)
    for k, width in enumerate((16, 32)):
        x = x if k == 0 else hk.Conv2D(32, 1, stride=2)(x)
        h = jax.nn.relu(hk.GroupNorm(4)(x))
        x = x + hk.Conv2D(width, 3)(jax.nn.relu(hk.Conv2D(width, 3)(h)))
    return hk.Linear(5)(jax.nn.relu(x).mean((1, 2)))


def Block(x: Any, packed: bool) -> Any:
    h = hk.LayerNorm(-1, True, True)(x)
    q, k, v = jnp.split(hk.Linear(48)(h), 3, -1) if packed else (hk.Linear(16, name=n)(h) for n in "qkv")
    q, k, v = (t.reshape(*t.shape[:2], 2, 8) for t in (q, k, v))
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8**0.5, -1)
    x = x + hk.Linear(16)(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))
    return x + hk.Linear(16)(jax.nn.relu(hk.Linear(64)(hk.LayerNorm(-1, True, True)(x))))


class Cell(hk.RNNCore):
    """An LSTM cell without Haiku's forget bias of one, in which data and state have a matrix each."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __call__(self, x: Any, state: Any) -> Any:
        h, c = state
        gates = hk.Linear(4 * self.size, name="x")(x) + hk.Linear(4 * self.size, with_bias=False, name="h")(h)
        i, f, g, o = jnp.split(gates, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return h, (h, c)

    def initial_state(self, batch_size: int | None) -> Any:
        return jnp.zeros((batch_size, self.size)), jnp.zeros((batch_size, self.size))


def LSTM(x: Any) -> Any:
    cell = Cell(12)
    out, _ = hk.dynamic_unroll(cell, x, cell.initial_state(x.shape[0]), time_major=False)
    return hk.Linear(3)(out[:, -1])


def net(function: Callable[..., Any], shape: tuple[int, ...], **options: Any) -> Net:
    made = hk.transform(partial(function, **options))
    params = made.init(jax.random.key(0), jnp.zeros(shape))
    return Net(made, lambda _, params, x: made.apply(params, None, x), shape, params)

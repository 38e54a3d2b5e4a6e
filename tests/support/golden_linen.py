"""The networks of ``golden.py`` in Flax linen."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax

from golden import Net


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for width in (32, 32, 32):
            x = nn.silu(nn.Dense(width)(x))
        return nn.Dense(4)(x)


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(16, (3, 3))(x))
        x = nn.relu(nn.Conv(32, (3, 3), strides=2, padding=1, feature_group_count=4)(x))
        x = nn.relu(nn.Conv(32, (3, 3), feature_group_count=32)(x))
        x = nn.relu(nn.ConvTranspose(16, (4, 4), strides=(2, 2))(x))
        return nn.Dense(5)(x.mean((1, 2)))


class Residual(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(16, (3, 3))(x)
        for k, width in enumerate((16, 32)):
            x = x if k == 0 else nn.Conv(32, (1, 1), strides=2)(x)
            h = nn.relu(nn.GroupNorm(4, epsilon=1e-5)(x))
            x = x + nn.Conv(width, (3, 3))(nn.relu(nn.Conv(width, (3, 3))(h)))
        return nn.Dense(5)(nn.relu(x).mean((1, 2)))


class Block(nn.Module):
    packed: bool

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = nn.LayerNorm(epsilon=1e-5)(x)
        if self.packed:
            q, k, v = (t.reshape(*t.shape[:2], 2, 8).swapaxes(1, 2) for t in jax.numpy.split(nn.Dense(48)(h), 3, -1))
        else:
            q, k, v = (nn.DenseGeneral((2, 8), name=n)(h).swapaxes(1, 2) for n in "qkv")
        h = nn.softmax(q @ k.swapaxes(2, 3) / 8**0.5, -1) @ v
        x = x + nn.DenseGeneral(16, axis=(-2, -1))(h.swapaxes(1, 2))
        return x + nn.Dense(16)(nn.relu(nn.Dense(64)(nn.LayerNorm(epsilon=1e-5)(x))))


class LSTM(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(3)(nn.RNN(nn.OptimizedLSTMCell(12))(x)[:, -1])


def net(model: Any, shape: tuple[int, ...], **options: Any) -> Net:
    made = model(**options)
    variables = made.init(jax.random.key(0), jax.numpy.zeros(shape))
    return Net(made, lambda _, params, x: made.apply(params, x), shape, variables)

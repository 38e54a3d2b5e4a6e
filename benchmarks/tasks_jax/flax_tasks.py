"""Tasks in Flax linen and NNX."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from tasks import data
from tasks_jax.models import NNX, Linen
from tasks_jax.task import Task, classes, entropy, rows, spread, squares, windows


class Chain(linen.Module):
    """A plain tanh net of ``depth`` weights."""

    width: int
    depth: int

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(self.depth - 1):
            x = jnp.tanh(linen.Dense(self.width)(x))
        return linen.Dense(1, name="head")(x)


class Filters(nnx.Module):
    """3 x 3 convolutions with relu at full resolution, then one linear layer."""

    def __init__(self, channels: int, depth: int, rngs: nnx.Rngs) -> None:
        sizes = [1, *[channels] * (depth - 1)]
        pairs = pairwise(sizes)
        self.convs = nnx.List([nnx.Conv(a, b, (3, 3), rngs=rngs) for a, b in pairs])
        self.head = nnx.Linear(64 * channels, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for conv in self.convs:
            x = nnx.relu(conv(x))
        return self.head(x.reshape(len(x), -1))


class Block(linen.Module):
    """A pre-norm transformer block."""

    width: int

    @linen.compact
    def __call__(self, x: Any, mask: Any) -> Any:
        h = linen.LayerNorm()(x)
        x = x + linen.MultiHeadDotProductAttention(4, name="attention")(h, mask=mask)
        h = linen.gelu(linen.Dense(4 * self.width, name="up")(linen.LayerNorm()(x)))
        return x + linen.Dense(self.width, name="down")(h)


class Letters(linen.Module):
    """A GPT on letters."""

    count: int
    width: int
    blocks: int

    @linen.compact
    def __call__(self, ids: Any) -> Any:
        x = linen.Embed(self.count, self.width, name="token")(ids)
        x = x + linen.Embed(ids.shape[1], self.width, name="position")(jnp.arange(ids.shape[1]))
        for _ in range(self.blocks):
            x = Block(self.width)(x, linen.make_causal_mask(ids))
        return linen.Dense(self.count, use_bias=False, name="head")(linen.LayerNorm()(x))


class Patches(nnx.Module):
    """A mixer: layers over positions and over channels of 2 x 2 patches in turn, layer norms, residual sums."""

    def __init__(self, width: int, blocks: int, rngs: nnx.Rngs) -> None:
        def dense(a: int, b: int) -> nnx.Linear:
            return nnx.Linear(a, b, rngs=rngs)

        self.patch, self.head = dense(4, width), dense(width, 10)
        self.up = nnx.List([dense(n, 2 * n) for _ in range(blocks) for n in (16, width)])
        self.down = nnx.List([dense(2 * n, n) for _ in range(blocks) for n in (16, width)])
        self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2 * blocks + 1)])

    def __call__(self, x: Any) -> Any:
        x = x.reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4)
        x = self.patch(x)
        for k, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            h = self.norms[k](x)
            h = h.swapaxes(1, 2) if k % 2 == 0 else h
            h = down(nnx.gelu(up(h)))
            x = x + (h.swapaxes(1, 2) if k % 2 == 0 else h)
        return self.head(self.norms[len(self.up)](x).mean(1))


def tasks() -> list[Task]:
    points, heights = data.surface()
    heights = data.standard(heights)
    images, labels = data.digits()
    images = data.standard(images)[..., None]
    text, count = data.letters()
    most, last = entropy(labels), entropy(text)
    return [
        Task("linen tanh 40", Linen(Chain(64, 40)),
             rows(points, heights, 128), squares, spread(heights), 200, "tanh", "head"),
        Task("nnx conv 12", NNX(lambda rngs: Filters(16, 12, rngs)),
             rows(images, labels.astype(np.int32), 64), classes, most, 120, "relu", "head"),
        Task("linen gpt", Linen(Letters(count, 48, 2)),
             windows(text, 32, 16), classes, last, 150, "gelu", "head|down|attention", ("token", "position")),
        Task("nnx mixer", NNX(lambda rngs: Patches(32, 4, rngs)),
             rows(images[..., 0], labels.astype(np.int32), 64), classes, most, 150, "gelu", "head|down|patch"),
    ]  # fmt: skip

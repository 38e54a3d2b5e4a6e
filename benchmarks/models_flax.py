"""A decoder-only transformer in Flax, of the size of the small GPT-2 unless told otherwise."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


class Block(nn.Module):
    """Causal attention and a perceptron, each behind a layer norm and beside a residual stream."""

    heads: int

    @nn.compact
    def __call__(self, x: Any, mask: Any) -> Any:
        batch, length, width = x.shape
        packed = nn.Dense(3 * width)(nn.LayerNorm()(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (packed[:, :, i] for i in range(3))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)
        x = x + nn.Dense(width)(mixed.reshape(x.shape))
        return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x))))


class GPT(nn.Module):
    """Token ids to logits; the table is tied."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    length: int = 1024

    @nn.compact
    def __call__(self, ids: Any) -> Any:
        table, places = nn.Embed(self.vocabulary, self.width), nn.Embed(self.length, self.width)
        x = table(ids) + places(jnp.arange(ids.shape[1]))
        mask = jnp.tril(jnp.ones((ids.shape[1], ids.shape[1]), bool))
        for _ in range(self.layers):
            x = Block(self.heads)(x, mask)
        return table.attend(nn.LayerNorm()(x))


def ids(length: int = 1024) -> Any:
    """One abstract text."""
    return jax.ShapeDtypeStruct((1, length), jnp.int32)

"""Networks written in JAX get the plan of their PyTorch twins: same roles, fans, keys, scales and predictions.

The PyTorch side is a saved graph (tests/support/twins), checked against a fresh recording by tests/torch/test_twins.py.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from twin_graphs import IDS, NAMES, Recorded, load

jnp = pytest.importorskip("jax.numpy")
eqx = pytest.importorskip("equinox")
nn = pytest.importorskip("flax.linen")
import jax  # noqa: E402

import anyinit  # noqa: E402
from anyinit import _api  # noqa: E402


class Lecture(eqx.Module):
    layers: list

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip((1, 10, 10), (10, 10, 1), keys, strict=True)]

    @partial(jax.vmap, in_axes=(None, 0))
    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(6):
            x = nn.silu(nn.Dense(32)(x))
        return nn.Dense(10)(x)


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=False)(nn.Conv(16, (3, 3), use_bias=False)(x))
        x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
        x = nn.gelu(nn.Conv(32, (3, 3), strides=2, padding=1, feature_group_count=4)(x), approximate=False)
        return nn.Dense(10)(x.mean((1, 2)))


class Attention(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (nn.Dense(width, name=n)(x).reshape(split).transpose(0, 2, 1, 3) for n in "qkv")
        logits = (q / (width // self.heads) ** 0.5) @ k.transpose(0, 1, 3, 2)
        seen = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(seen, logits, -1e30), -1)
        return nn.Dense(width, name="o")((weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + Attention(2)(nn.LayerNorm()(x))
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x))))


class GPT(nn.Module):
    width: int = 32

    @nn.compact
    def __call__(self, ids):
        tokens = nn.Embed(50, self.width)
        x = tokens(ids) + self.param("positions", nn.initializers.zeros, (16, self.width))
        for _ in range(2):
            x = Block()(x)
        return tokens.attend(nn.LayerNorm()(x))


MODELS = {
    "lecture": (lambda: Lecture(jax.random.key(0)), (20, 1)),
    "mlp": (MLP, (8, 32)),
    "cnn": (CNN, (4, 8, 8, 3)),
    "gpt": (GPT, IDS.astype(np.int32)),
}
PREDICTIONS = (
    "draw.std",
    "target",
    "predicted",
    "predicted_output",
    "predicted_grad",
    "band",
    "output_band",
    "chi",
    "chi_1",
)


def twin_plan(name, monkeypatch):
    """The plan of the saved PyTorch graph."""
    arrays = {"input.0": IDS} if name == "gpt" else {}
    opened = SimpleNamespace(open_model=lambda *args, **kwargs: Recorded(load(name), arrays))
    with monkeypatch.context() as patch:
        patch.setattr(_api, "_backend", lambda model: ("torch", opened))
        return anyinit.plan(object(), (1,), seed=0)


@pytest.mark.parametrize("name", NAMES)
def test_twins_have_one_plan(name, monkeypatch):
    build, given = MODELS[name]
    mine, theirs = anyinit.plan(build(), given, seed=0), twin_plan(name, monkeypatch)
    assert len(mine.weights) == len(theirs.weights)
    assert not mine.opaque and not mine.unscaled
    for a, b in zip(mine.weights, theirs.weights, strict=True):
        for x, y in zip(a.parts, b.parts, strict=True):
            for field in ("role", "fan", "fan_out", "draw.key", "draw.distribution", "draw.mirrored"):
                assert value(x, field) == value(y, field), (a.name, field)
            for field in PREDICTIONS:
                close(value(x, field), value(y, field), (a.name, field))


def value(part, field):
    for name in field.split("."):
        part = getattr(part, name)
    return part


def close(x, y, where):
    assert (x is None) == (y is None), where
    if x is not None:
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-12, err_msg=str(where))

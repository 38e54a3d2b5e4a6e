"""Tasks in Equinox and as plain functions."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tasks import data
from tasks_jax.models import Equinox, Function
from tasks_jax.task import Task, classes, entropy, rows, spread, squares

FREQUENCY = 30.0


class Residual(eqx.Module):
    """Residual blocks of two layers with gelu between them, no normalization."""

    stem: eqx.nn.Linear
    inner: list[eqx.nn.Linear]
    outer: list[eqx.nn.Linear]
    head: eqx.nn.Linear

    def __init__(self, width: int, blocks: int, key: Any) -> None:
        keys = jax.random.split(key, 2 * blocks + 2)
        self.stem, self.head = eqx.nn.Linear(64, width, key=keys[0]), eqx.nn.Linear(width, 10, key=keys[1])
        self.inner = [eqx.nn.Linear(width, width, key=k) for k in keys[2::2]]
        self.outer = [eqx.nn.Linear(width, width, key=k) for k in keys[3::2]]

    def __call__(self, x: Any) -> Any:
        x = self.stem(x)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            x = x + outer(jax.nn.gelu(inner(x)))
        return self.head(x)


def oscillator(key: Any) -> eqx.nn.MLP:
    return eqx.nn.MLP(1, 1, 48, 6, activation=jnp.tanh, key=key)


def residual(model: Any, x: Any) -> Any:
    """``u'' + 100 u - f`` of an oscillator that is driven off its resonance, in units of the force."""

    def one(point: Any) -> Any:
        def u(t: Any) -> Any:
            return model(t[None])[0]

        bend = jax.grad(jax.grad(u))(point[0])
        force = (100 - (2 * math.pi) ** 2) * jnp.sin(2 * math.pi * point[0])
        return jnp.stack([(bend + 100 * u(point[0]) - force) / ((100 - (2 * math.pi) ** 2) * math.sqrt(0.5))])

    return jax.vmap(one)(x)


def equation(call: Any, x: Any, _: Any) -> Any:
    """Mean squared residual, and the values at both ends."""
    ends = call(jnp.array([[0.0], [1.0]]))
    return jnp.mean(jnp.square(residual(lambda t: call(t[None])[0], x))) + 10 * jnp.mean(jnp.square(ends))


def waves(params: Any, x: Any) -> Any:
    """A SIREN (Sitzmann et al. 2020)."""
    for layer in params["layers"]:
        x = jnp.sin(FREQUENCY * (x @ layer["w"] + layer["b"]))
    return x @ params["head"]["w"] + params["head"]["b"]


def drawn(key: Any, width: int = 48, depth: int = 4) -> Any:
    """Its paper's own initialization."""
    sizes = [2, *[width] * (depth - 1), 1]
    layers: list[Any] = []
    for k, (a, b) in enumerate(pairwise(sizes)):
        key, one, two = jax.random.split(key, 3)
        bound = math.sqrt(6 / a) / FREQUENCY if k else 1 / a
        bias = jax.random.uniform(two, (b,), minval=-1 / math.sqrt(a), maxval=1 / math.sqrt(a))
        layers.append({"w": jax.random.uniform(one, (a, b), minval=-bound, maxval=bound), "b": bias})
    return {"layers": layers[:-1], "head": layers[-1]}


def tasks() -> list[Task]:
    images, labels = data.digits()
    flat, labels = data.standard(images).reshape(-1, 64), labels.astype(np.int32)
    grey = data.standard(data.photograph("flower.jpg"))
    sides = np.meshgrid(*(np.linspace(-1, 1, n, dtype=np.float32) for n in grey.shape), indexing="ij")
    pixels = np.stack(sides, -1).reshape(-1, 2)
    line = np.linspace(0, 1, 512, dtype=np.float32)[:, None]
    return [
        Task("equinox residual 16", Equinox(lambda key: Residual(64, 16, key)),
             rows(flat, labels, 64), classes, entropy(labels), 150, "gelu", "head|stem|outer"),
        Task("equinox pinn", Equinox(oscillator),
             rows(line, line, 128), equation, 1.0, 400, "tanh", r"layers\[6\]", forward=residual, whole=True),
        Task("function siren", Function(waves, drawn),
             rows(pixels, grey.reshape(-1, 1), 512), squares, spread(grey), 400, "sin", "head"),
    ]  # fmt: skip

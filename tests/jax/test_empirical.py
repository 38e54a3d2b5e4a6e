"""Empirical mode on JAX: levels exact to 1 %, over one batch or several, labels left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyinit

Tree = dict[str, Any]


def skewed(*shape: int) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) ** 3 + 0.5).astype(np.float32)


def zeros(**shapes: tuple[int, ...]) -> Tree:
    return {name: jnp.zeros(shape) for name, shape in shapes.items()}


def chain(act: Callable[[Any], Any]) -> tuple[Callable[[Tree, Any], Any], Tree]:
    def net(p: Tree, x: Any) -> Any:
        for k in range(5):
            x = act(x @ p[f"w{k}"] + p[f"b{k}"])
        return x @ p["head"]

    sizes = {f"w{k}": (48 if k else 20, 48) for k in range(5)} | {f"b{k}": (48,) for k in range(5)}
    return net, zeros(**sizes, head=(48, 10))


def convolution() -> tuple[Callable[[Tree, Any], Any], Tree]:
    def net(p: Tree, x: Any) -> Any:
        for name in ("a", "b"):
            x = jax.nn.silu(jax.lax.conv_general_dilated(x, p[name], (1, 1), "SAME"))
        return x.mean((2, 3)) @ p["head"]

    return net, zeros(a=(16, 3, 3, 3), b=(16, 16, 3, 3), head=(16, 5))


def attention() -> tuple[Callable[[Tree, Any], Any], Tree]:
    def net(p: Tree, x: Any) -> Any:
        q, k, v = (x @ p[n] for n in "qkv")
        x = x + jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2) / 24**0.5) @ v @ p["o"]
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

    return net, zeros(q=(24, 24), k=(24, 24), v=(24, 24), o=(24, 24), up=(24, 48), down=(48, 24))


def gated() -> tuple[Callable[[Tree, Any], Any], Tree]:
    def net(p: Tree, x: Any) -> Any:
        return (jax.nn.silu(x @ p["gate"]) * (x @ p["value"])) @ p["out"]

    return net, zeros(gate=(20, 64), value=(20, 64), out=(64, 20))


def scanned() -> tuple[Callable[[Tree, Any], Any], Tree]:
    def net(p: Tree, x: Any) -> Any:
        for _ in range(3):
            x = x + jax.nn.relu(x @ p["again"])
        return x @ p["out"]

    return net, zeros(again=(20, 20), out=(20, 4))


def sorted_in_the_middle() -> tuple[Callable[[Tree, Any], Any], Tree]:
    def net(p: Tree, x: Any) -> Any:
        x = jax.lax.cummax(x @ p["a"], axis=1)
        return jax.nn.relu(jax.scipy.special.i0e(x) @ p["b"]) @ p["c"]

    return net, zeros(a=(20, 32), b=(32, 32), c=(32, 5))


def squared() -> tuple[Callable[[Tree, Any], Any], Tree]:
    return chain(lambda x: jax.nn.relu(x) ** 2)


MODELS: dict[str, tuple[Callable[[], Any], np.ndarray]] = {
    "gelu": (lambda: chain(jax.nn.gelu), skewed(128, 20)),
    "relu": (lambda: chain(jax.nn.relu), skewed(128, 20)),
    "relu squared": (squared, skewed(128, 20)),
    "convolution": (convolution, skewed(16, 3, 8, 8)),
    "attention": (attention, skewed(16, 9, 24)),
    "gated": (gated, skewed(128, 20)),
    "applied again": (scanned, skewed(128, 20)),
    "sorted": (sorted_in_the_middle, skewed(128, 20)),
}


@pytest.mark.parametrize("name", MODELS)
def test_corrected_levels_are_exact_to_one_per_cent(name: str):
    (net, params), x = MODELS[name][0](), MODELS[name][1]
    report = anyinit.initialize(net, x, "empirical", params=params, seed=0, target="unit")
    found = {k.name: k.measured / k.predicted for k in report.layers if k.measured is not None and k.predicted}
    assert len(found) >= 2
    assert found == pytest.approx(dict.fromkeys(found, 1.0), rel=0.01)


def levels(params: Tree, x: np.ndarray) -> list[float]:
    out: list[float] = []
    for k in range(5):
        x = np.asarray(jax.nn.gelu(x @ params[f"w{k}"] + params[f"b{k}"]))
        out.append(float(np.mean(np.square(x.astype(np.float64)))))
    return out


@pytest.mark.parametrize("labelled", [False, True])
def test_levels_hold_over_all_batches(labelled: bool):
    net, params = chain(jax.nn.gelu)
    x = skewed(240, 20) * np.linspace(0.5, 3, 240, dtype=np.float32)[:, None]
    parts = [(b, np.zeros(len(b), int)) if labelled else b for b in np.split(x, 5)]
    report = anyinit.initialize(net, iter(parts), "empirical", params=params, seed=0, target="unit")
    assert levels(report.params, x) == pytest.approx([1.0] * 5, rel=0.01)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_tiny_and_huge_inputs(size: float):
    net, params = chain(jax.nn.relu)
    report = anyinit.initialize(net, skewed(64, 20) * size, "empirical", params=params, seed=0, target="unit")
    assert all(k.measured == pytest.approx(k.predicted, rel=0.01) for k in report.layers)


def test_a_batch_of_zeros_is_refused():
    net, params = chain(jax.nn.gelu)
    with pytest.raises(anyinit.ConfigError, match="the input is all zero"):
        anyinit.initialize(net, np.zeros((8, 20), np.float32), "empirical", params=params)

"""Textbook schemes mean the same in every kind of JAX model."""

from __future__ import annotations

import math

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

import anyinit


class Net(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = jnp.tanh(linen.Conv(24, (3, 3))(x))
        return linen.Dense(10)(x.reshape(x.shape[0], -1))


@pytest.mark.parametrize(
    ("scheme", "conv", "dense"),
    [
        ("he_normal", math.sqrt(2 / 27), math.sqrt(2 / 1536)),
        ("xavier_uniform", math.sqrt(2 / (27 + 216)), math.sqrt(2 / 1546)),
        ("lecun_normal", math.sqrt(1 / 27), math.sqrt(1 / 1536)),
    ],
)
def test_fans_of_flax_layers_come_from_the_graph(scheme: str, conv: float, dense: float):
    params, report = anyinit.initialize_params(Net(), None, (4, 8, 8, 3), scheme=scheme, bias=0.1, seed=0)
    found = {w.name: w.parts[0].draw for w in report.plan.weights}
    assert found["Conv_0.kernel"].std == pytest.approx(conv)
    assert found["Dense_0.kernel"].std == pytest.approx(dense)
    assert found["Dense_0.bias"].value == 0.1
    kernel = np.asarray(jax.tree_util.tree_leaves(params)[-1])
    assert kernel.std() == pytest.approx(dense, rel=0.02)


def test_the_lectures_schemes_are_one_line_each_for_an_equinox_module():
    net = equinox.nn.MLP(1, 1, 64, 3, activation=jax.nn.relu, key=jax.random.key(0))
    x = jnp.linspace(-1, 1, 50)[:, None]
    for scheme, std in (("zeros", 0.0), ("constant", 0.0), ("xavier_normal", 1 / 8), ("he_normal", math.sqrt(2 / 64))):
        report = anyinit.initialize(net, x, scheme=scheme, bias=0.1, overrides={"layers.3": "xavier_normal"}, seed=0)
        weight = np.asarray(report.model.layers[1].weight)
        assert float(weight.std()) == pytest.approx(std, rel=0.05, abs=1e-7)
        assert np.all(np.asarray(report.model.layers[1].bias) == np.float32(0.1))


def test_framework_keeps_what_the_model_holds_and_says_so():
    net = equinox.nn.MLP(4, 2, 32, 2, key=jax.random.key(0))
    report = anyinit.initialize(net, (8, 4), scheme="framework")
    assert np.array_equal(report.model.layers[0].weight, net.layers[0].weight)
    assert "as the framework drew it" in str(report)

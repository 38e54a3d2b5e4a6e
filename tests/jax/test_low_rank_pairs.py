"""Low-rank pairs in functions of parameters, applied on their own or inside the weight."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyinit

KEYS = jax.random.split(jax.random.key(0), 4)
PARAMS = {
    "w": jax.random.normal(KEYS[0], (32, 48)),
    "a": jax.random.normal(KEYS[1], (32, 4)),
    "b": jax.random.normal(KEYS[2], (4, 48)),
}
X = jax.random.normal(KEYS[3], (64, 32))


def beside(p, x):
    return jnp.tanh(x @ p["w"] + 2.0 * (x @ p["a"]) @ p["b"])


def within(p, x):
    return jnp.tanh(x @ (p["w"] + 2.0 * p["a"] @ p["b"]))


@pytest.mark.parametrize("apply", [beside, within])
def test_the_factor_applied_last_is_zero_and_the_other_has_unit_gain(apply):
    params, _ = anyinit.initialize_params(apply, PARAMS, X, seed=0)
    assert not np.any(params["b"])
    assert float(jnp.mean(params["a"] ** 2)) * 32 == pytest.approx(1, rel=0.2)
    assert float(jnp.mean(params["w"] ** 2)) > 0

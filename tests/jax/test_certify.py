"""Certificates of JAX models are the numbers a direct computation gives."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyinit


def test_the_tangent_kernel_agrees_with_jacobians():
    def net(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ params["a"]) @ params["b"]

    x = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    start = {"a": jnp.zeros((5, 16)), "b": jnp.zeros((16, 1))}
    report = anyinit.initialize(net, x, params=start, seed=0, certify=True)
    params = report.params
    c = np.random.default_rng(0).standard_normal((6, 1))
    rows = jax.jacobian(lambda p: net(p, x)[:, 0] * jnp.asarray(c[:, 0], jnp.float32))(params)
    flat = np.concatenate([np.asarray(g, np.float64).reshape(6, -1) for g in rows.values()], axis=1)
    spectrum = np.linalg.eigvalsh(flat @ flat.T)
    found = {k.name: k.value for k in report.certificates}
    assert found["kernel condition"] == pytest.approx(math.log10(spectrum[-1] / spectrum[0]), rel=1e-3)
    hidden = np.tanh(x @ np.asarray(params["a"], np.float64))
    assert found["forward spread"] == pytest.approx(0.0, abs=1e-9)
    share = np.clip(np.linalg.eigvalsh(hidden @ hidden.T), 1e-300, None)
    share /= share.sum()
    assert found["feature rank"] == pytest.approx(math.exp(-float(np.sum(share * np.log(share)))), rel=1e-3)

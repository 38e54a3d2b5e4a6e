"""Activations written for JAX, Equinox and Flax are profiled in double precision."""

from __future__ import annotations

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from anyinit._core.profile import activation_profile
from anyinit.errors import ActivationError


class EquinoxSquare(eqx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x) ** 2


class LinenSquare(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x) ** 2


class NNXSquare(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x) ** 2


@pytest.mark.parametrize("target", [EquinoxSquare, EquinoxSquare(), LinenSquare, LinenSquare(), NNXSquare, NNXSquare()])
def test_a_module_or_its_class_is_profiled(target: object):
    profile = activation_profile(target)
    assert profile.moments().m2 == pytest.approx(1.5, rel=1e-12)
    assert profile.homogeneous_degree == 2.0


@pytest.mark.parametrize(
    ("target", "name"),
    [(jnp.tanh, "tanh"), (jax.nn.gelu, "gelu_tanh"), (jax.jit(lambda x: x * jax.nn.sigmoid(1.702 * x)), "quick_gelu")],
)
def test_a_function_is_evaluated_in_double_precision_and_the_default_stays_single(target: object, name: str):
    mine, named = activation_profile(target).moments(), activation_profile(name).moments()
    assert mine.m2 == pytest.approx(named.m2, rel=1e-12)
    assert jnp.ones(2).dtype == jnp.float32


@pytest.mark.parametrize("target", [jax.nn.softmax, jax.nn.standardize])
def test_what_mixes_entries_is_refused(target: object):
    with pytest.raises(ActivationError, match="not elementwise"):
        activation_profile(target)

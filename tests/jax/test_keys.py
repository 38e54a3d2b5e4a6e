"""Seeds that are JAX keys, raw or typed."""

from __future__ import annotations

import jax
import pytest

from anyinit import ConfigError
from anyinit._options import resolve_seed


def test_a_raw_key_and_a_typed_key_of_the_same_seed_agree():
    assert resolve_seed(jax.random.PRNGKey(7)) == (7, "from a JAX key")
    assert resolve_seed(jax.random.key(7)) == (7, "from a JAX key")


def test_split_keys_give_different_seeds():
    first, second = jax.random.split(jax.random.key(0))
    assert resolve_seed(first) != resolve_seed(second)


def test_an_array_of_keys_is_refused():
    with pytest.raises(ConfigError, match="seed"):
        resolve_seed(jax.random.split(jax.random.key(0)))

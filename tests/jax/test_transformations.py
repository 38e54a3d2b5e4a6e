"""After a call models are compiled, differentiated, mapped and donated as before, and nothing is compiled again."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import flax.linen as linen
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import anyinit

X = jax.random.normal(jax.random.key(0), (16, 6))
Y = jax.random.normal(jax.random.key(1), (16, 4))


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(4)(linen.relu(linen.Dense(8)(x)))


def plain(params, x):
    return jnp.tanh(x @ params["a"]) @ params["b"]


HAIKU = hk.transform(lambda x: hk.nets.MLP([8, 4])(x))


def started(kind: str) -> tuple[Any, Any, Any]:
    """A function of parameters and a batch, parameters before, and those of this library."""
    if kind == "linen":
        old = Net().init(jax.random.key(0), X)
        return Net().apply, old, anyinit.initialize_params(Net(), old, X, seed=0)[0]
    if kind == "haiku":
        old = HAIKU.init(jax.random.key(0), X)
        return lambda p, x: HAIKU.apply(p, None, x), old, anyinit.initialize_params(HAIKU, old, X, seed=0)[0]
    if kind == "equinox":
        net = eqx.nn.MLP(6, 4, 8, 1, key=jax.random.key(0))
        old, fixed = eqx.partition(net, eqx.is_inexact_array)
        new, rest = eqx.partition(anyinit.initialized(net, X, seed=0)[0], eqx.is_inexact_array)
        assert eqx.tree_equal(rest, fixed)
        return lambda p, x: jax.vmap(eqx.combine(p, fixed))(x), old, new
    old = {"a": jnp.ones((6, 8)), "b": jnp.ones((8, 4), jnp.bfloat16)}
    return plain, old, anyinit.initialize_params(plain, old, X, seed=0)[0]


KINDS = ("linen", "haiku", "equinox", "function")


@pytest.mark.parametrize("kind", KINDS)
def test_new_parameters_take_the_place_of_the_old_ones_in_every_compiled_function(kind: str):
    run, old, new = started(kind)

    @jax.jit
    def step(params, x, y):
        loss = lambda p: jnp.mean((run(p, x).astype(jnp.float32) - y) ** 2)  # noqa: E731
        return jax.tree.map(lambda p, g: p - (0.1 * g).astype(p.dtype), params, jax.grad(loss)(params))

    mapped = jax.jit(jax.vmap(run, in_axes=(None, 0)))
    step(old, X, Y), mapped(old, X[:, None])
    assert (step._cache_size(), mapped._cache_size()) == (1, 1)
    after, each = step(new, X, Y), mapped(new, X[:, None])
    assert (step._cache_size(), mapped._cache_size()) == (1, 1)
    assert jax.tree.structure(new) == jax.tree.structure(old)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), new, old)))
    np.testing.assert_allclose(np.float32(each[:, 0]), np.float32(run(new, X)), rtol=2e-2, atol=1e-2)
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), after, new)
    assert all(jax.tree.leaves(moved))


@pytest.mark.parametrize("kind", KINDS)
def test_new_parameters_are_donated_and_the_plan_draws_them_again(kind: str):
    run, old, new = started(kind)
    expected = jax.tree.map(np.array, new)  # copies: a view would keep the buffers
    before = jax.tree.map(np.asarray, old)

    @partial(jax.jit, donate_argnums=0)
    def halved(params):
        return jax.tree.map(lambda a: a / 2, params)

    half = halved(new)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(new))
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(2 * a, b), half, expected))
    assert jax.tree.all(jax.tree.map(np.array_equal, old, before))
    again = started(kind)[2]
    assert jax.tree.all(jax.tree.map(np.array_equal, again, expected))
    assert run(half, X).shape == (16, 4)


class Tied(nnx.Module):
    """One kernel in two places, dropout, and running statistics."""

    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(6, 6, rngs=rngs), nnx.Linear(6, 6, rngs=rngs)
        self.second.kernel = self.first.kernel
        self.norm, self.drop = nnx.BatchNorm(6, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.second(self.drop(nnx.relu(self.norm(self.first(x)))))


def state_of(module: nnx.Module, kind: Any) -> list[np.ndarray]:
    leaves = jax.tree.leaves(nnx.state(module, kind))
    is_key = lambda a: jnp.issubdtype(a.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(a) if is_key(a) else a) for a in leaves]


def test_an_nnx_module_keeps_its_ties_counters_statistics_and_compiled_functions():
    module, twin = Tied(nnx.Rngs(params=0, dropout=1)), Tied(nnx.Rngs(params=0, dropout=1))
    module(X), twin(X)  # counters and statistics have moved
    run = nnx.jit(lambda m, x: m(x))
    definition = nnx.graphdef(module)
    variables = [id(v) for v in (module.first.kernel, module.second.bias, module.norm.mean, module.drop.rngs)]
    anyinit.initialize(module, X, seed=0)
    assert [id(v) for v in (module.first.kernel, module.second.bias, module.norm.mean, module.drop.rngs)] == variables
    assert module.second.kernel is module.first.kernel
    assert nnx.graphdef(module) == definition
    for kind in (nnx.RngState, nnx.BatchStat):
        mine, theirs = state_of(module, kind), state_of(twin, kind)
        assert mine and all(map(np.array_equal, mine, theirs))
    assert not np.array_equal(module.first.kernel[...], twin.first.kernel[...])
    assert np.isfinite(run(module, X)).all()
    gradient = nnx.grad(lambda m, x: jnp.mean(m(x) ** 2))(module, X)
    assert len(jax.tree.leaves(gradient)) == len(jax.tree.leaves(nnx.state(module, nnx.Param)))


def test_an_nnx_module_is_not_compiled_again():
    module, traced = Tied(nnx.Rngs(0)), []

    @nnx.jit
    def run(m, x):
        traced.append(1)
        return m(x)

    run(module, X)
    anyinit.initialize(module, X, seed=0)
    run(module, X)
    assert len(traced) == 1


def test_an_equinox_module_is_not_compiled_again_and_the_old_one_is_as_it_was():
    net, traced = eqx.nn.MLP(6, 4, 8, 1, key=jax.random.key(0)), []
    before = jax.tree.map(np.asarray, eqx.filter(net, eqx.is_array))

    @eqx.filter_jit
    def run(m, x):
        traced.append(1)
        return jax.vmap(m)(x)

    run(net, X)
    new, _ = anyinit.initialized(net, X, seed=0)
    run(new, X)
    assert len(traced) == 1
    assert type(new) is type(net) and new.activation is net.activation
    assert jax.tree.all(jax.tree.map(np.array_equal, eqx.filter(net, eqx.is_array), before))


def test_a_committed_stand_in_would_be_compiled_again():
    run, count = jax.jit(lambda a: a + 1), 0
    run(jnp.zeros(3))
    run(jax.device_put(jnp.zeros(3), jax.devices()[0]))
    count = run._cache_size()
    assert count == 2

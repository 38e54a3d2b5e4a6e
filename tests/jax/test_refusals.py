"""Parameters that do not fit, are gone or lie apart, and weights out of reach: told so, with nothing changed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
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
from anyinit.errors import ConfigError

SRC = Path(__file__).parents[2] / "src"
X = np.random.default_rng(0).standard_normal((16, 6)).astype(np.float32)


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(4)(linen.relu(linen.Dense(8)(x)))


class Normed(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(4)(linen.BatchNorm(use_running_average=False)(linen.Dense(8)(x)))


class Twin(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x):
        return self.b(nnx.relu(self.a(x)))


def plain(params, x):
    return jnp.tanh(x @ params["a"]) @ params["b"]


def arrays():
    keys = jax.random.split(jax.random.key(0))
    return {"a": jax.random.normal(keys[0], (6, 8)), "b": jax.random.normal(keys[1], (8, 4))}


HAIKU = hk.transform(lambda x: hk.nets.MLP([8, 4])(x))
STATEFUL = hk.transform_with_state(
    lambda x: hk.Linear(4)(hk.BatchNorm(True, True, 0.9)(hk.Linear(8)(x), is_training=True))
)
LINEN = Net().init(jax.random.key(0), X)
INNER = LINEN["params"]
FLAT = HAIKU.init(jax.random.key(0), X)
PARAMS, STATE = STATEFUL.init(jax.random.key(0), X)
FIRST, SECOND = "mlp/~/linear_0", "mlp/~/linear_1"

MISFITS: dict[str, tuple[Any, Any, str]] = {
    "a layer is missing": (
        Net(), {"params": {"Dense_0": INNER["Dense_0"]}}, r"missing: Dense_1\.bias, Dense_1\.kernel"
    ),
    "a layer of the inner tree is missing": (Net(), {"Dense_1": INNER["Dense_1"]}, r"missing: Dense_0\.bias"),
    "another shape": (
        Net(), {"params": {**INNER, "Dense_0": {**INNER["Dense_0"], "kernel": jnp.zeros((5, 8))}}},
        r"Dense_0\.kernel has shape \(5, 8\) where \(8, 4\) is needed",
    ),
    "a collection is missing": (
        Normed(), {"params": Normed().init(jax.random.key(0), X)["params"]},
        r"missing: batch_stats\.BatchNorm_0\.mean, batch_stats\.BatchNorm_0\.var",
    ),
    "another tree": (Net(), [jnp.zeros((6, 8))], r"missing: Dense_0\.bias, .*; not asked for: 0"),
    "nothing": (Net(), {}, r"missing: Dense_0\.bias, Dense_0\.kernel, Dense_1\.bias, Dense_1\.kernel"),
    "a word": (Net(), "params", r"missing: Dense_0\.bias"),
    "a module of Haiku is missing": (HAIKU, {FIRST: FLAT[FIRST]}, rf"missing: {SECOND}\.b, {SECOND}\.w"),
    "another shape in Haiku": (
        HAIKU, {FIRST: FLAT[SECOND], SECOND: FLAT[SECOND]}, rf"{FIRST}\.w has shape \(8, 4\) where \(6, 8\) is needed"
    ),
    "state for parameters": (STATEFUL, STATE, r"missing: batch_norm\.offset, .* and 2 more"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_parameters_that_do_not_fit_are_named_with_what_is_needed(case: str):
    model, params, words = MISFITS[case]
    kind = ConfigError if "missing" in words else anyinit.TraceError  # shapes alone: the input may be at fault
    with pytest.raises(kind, match=rf"params do not fit.*{words}") as caught:
        anyinit.initialize_params(model, params, X, seed=0)
    caught.match("what the model's init returned")
    assert caught.value.__cause__ is not None


def test_what_fits_is_not_accused_when_the_model_fails_by_itself():
    class Broken(linen.Module):
        @linen.compact
        def __call__(self, x):
            out = linen.Dense(4)(x)
            if not self.is_initializing():
                raise ZeroDivisionError("by itself")
            return out

    with pytest.raises(anyinit.TraceError, match="by itself"):
        anyinit.initialize_params(Broken(), Broken().init(jax.random.key(0), X), X, seed=0)


@pytest.mark.parametrize(("params", "words"), [({"a": np.zeros((6, 8))}, "KeyError: 'b'"), ({}, "KeyError: 'a'")])
def test_a_function_that_misses_a_parameter_is_answered_with_its_name(params: Any, words: str):
    with pytest.raises(anyinit.TraceError, match=rf"{words}.*params holds what the function reads"):
        anyinit.initialize_params(plain, params, X, seed=0)


def test_plain_numbers_among_the_parameters_are_named():
    _, report = anyinit.initialize_params(lambda p, x: (x @ p["a"]) * p["s"], {**arrays(), "s": 2.0}, X, seed=0)
    assert any(note.startswith("s: plain numbers in params") for note in report.plan.notes)


def test_what_the_model_does_not_ask_for_is_listed_and_kept():
    extra = {"kernel": jnp.ones((2, 3))}
    new, report = anyinit.initialize_params(Net(), {"params": {**INNER, "Dense_7": extra}}, X, seed=0)
    assert dict(report.unscaled) == {"Dense_7.kernel": "never used in this run"}
    np.testing.assert_array_equal(new["params"]["Dense_7"]["kernel"], extra["kernel"])


def test_modules_that_hold_their_parameters_take_none():
    module = Twin(nnx.Rngs(0))
    before = jax.tree.map(np.asarray, nnx.state(module))
    with pytest.raises(ConfigError, match=r"holds its parameters.*Leave params out"):
        anyinit.initialize(module, X, params=INNER)
    assert jax.tree.all(jax.tree.map(np.array_equal, jax.tree.map(np.asarray, nnx.state(module)), before))
    with pytest.raises(ConfigError, match="holds its parameters"):
        anyinit.initialized(eqx.nn.MLP(6, 4, 8, 1, key=jax.random.key(0)), X, params=INNER)


def test_weights_that_are_closed_over_are_named_as_out_of_reach():
    held = arrays()
    _, report = anyinit.initialize_params(lambda p, x: jnp.tanh(x @ held["a"]) @ p, held["b"], X, seed=0)
    assert any("shape (6, 8) is closed over by the model and cannot be reached" in note for note in report.plan.notes)
    _, report = anyinit.initialized(eqx.nn.Lambda(lambda x: x @ held["a"]), X, seed=0)
    assert any("shape (6, 8) is closed over" in note for note in report.plan.notes)
    assert "no parameters" in str(report)


def test_a_batch_of_words_is_refused():
    with pytest.raises(ConfigError, match="The batch holds no numbers"):
        anyinit.initialize_params(plain, arrays(), np.array([["a"] * 6] * 16))


def gone(tree: Any, last: bool = False) -> Any:
    """Copies of all arrays of a tree, donated to a call: all of them, or the last alone."""
    copy = jax.tree.map(lambda a: jnp.array(np.asarray(a)), tree)
    leaves = jax.tree.leaves(copy)
    for leaf in leaves[-1:] if last else leaves:
        leaf.delete()
    return copy


def donated() -> Any:
    """Parameters after a step that took their buffers."""
    params = arrays()
    step = jax.jit(lambda p: jax.tree.map(lambda a: 0.9 * a, p), donate_argnums=0)
    step(params)
    return params


def gone_nnx() -> Any:
    module = Twin(nnx.Rngs(0))
    for leaf in jax.tree.leaves(nnx.state(module)):
        leaf.delete()
    return module


DELETED: dict[str, tuple[Callable[[], Any], str]] = {
    "donated": (lambda: anyinit.initialize_params(plain, donated(), X), "2 arrays were deleted.*a, b"),
    "one": (lambda: anyinit.initialize_params(Net(), gone(LINEN, last=True), X), r"1 array was.*Dense_1\.kernel"),
    "kept": (lambda: anyinit.initialize_params(plain, gone(arrays()), X, skip="a"), "2 arrays were deleted"),
    "haiku": (lambda: anyinit.initialize_params(HAIKU, gone(FLAT), X), "4 arrays were deleted"),
    "nnx": (lambda: anyinit.initialize(gone_nnx(), X), r"4 arrays were deleted.*a\.bias"),
    "batch": (lambda: anyinit.initialize_params(plain, arrays(), gone(X)), "1 array was deleted.*input"),
    "diagnosed": (lambda: anyinit.diagnose(plain, X, params=gone(arrays())), "2 arrays were deleted"),
}  # fmt: skip


@pytest.mark.parametrize("case", DELETED)
def test_deleted_arrays_are_named_with_the_likely_cause(case: str):
    call, words = DELETED[case]
    with pytest.raises(ConfigError, match=words) as caught:
        call()
    caught.match("donated to a call.*Pass the arrays which that call returned")


def on_two_devices(code: str) -> str:
    """What a program prints that sees two devices and the names of this file."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "PYTHONPATH": str(SRC)}
    program = textwrap.dedent(
        """
        import jax, jax.numpy as jnp, numpy as np, anyinit
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        one, two = jax.devices()
        x = np.random.default_rng(0).standard_normal((16, 6)).astype(np.float32)
        params = {"a": jnp.ones((6, 8)), "b": jnp.ones((8, 4))}
        plain = lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"]
        """
    ) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **flags}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_arrays_on_different_devices_are_refused_and_stay_where_they_are():
    printed = on_two_devices(
        """
        apart = {"a": jax.device_put(params["a"], one), "b": jax.device_put(params["b"], two)}
        for given in ((apart, x), (jax.device_put(params, one), jax.device_put(x, two))):
            for mode in ("analytic", "empirical"):
                try:
                    anyinit.initialize_params(plain, *given, mode, seed=0)
                except anyinit.ConfigError as error:
                    print(error)
        assert apart["a"].devices() == {one} and apart["b"].devices() == {two}
        assert bool((apart["b"] == 1).all())
        """
    )
    lines = printed.splitlines()
    assert len(lines) == 4
    assert all("different devices" in line and "jax.device_put" in line for line in lines)
    assert "a on cpu:0; b on cpu:1" in lines[0] and "a on cpu:0; input.0 on cpu:1" in lines[2]


def test_one_other_device_and_a_mesh_of_both_keep_their_placement():
    printed = on_two_devices(
        """
        mesh = NamedSharding(Mesh(np.array([one, two]), ("d",)), PartitionSpec(None, "d"))
        start = lambda p, batch: anyinit.initialize_params(plain, p, batch, seed=0, correct="never")[0]
        expected = {"given": start(params, x), "shape": start(params, (16, 6))}
        assert not expected["given"]["a"].committed
        for home in (two, mesh):
            placed = jax.device_put(params, home)
            for batch in (x, (16, 6), jax.device_put(x, two) if home is two else x):
                new = start(placed, batch)
                same = [new[k].sharding == placed[k].sharding and new[k].committed for k in new]
                wanted = expected["shape" if isinstance(batch, tuple) else "given"]
                print(all(same), all(np.array_equal(new[k], wanted[k]) for k in new))
        new, _ = anyinit.initialize_params(plain, params, jax.device_put(x, two), "empirical", seed=0)
        print(not new["a"].committed, True)
        """
    )
    assert printed.split() == ["True"] * 14

"""Planning on shapes alone makes no array of the model's size, whatever it is asked to plan."""

from __future__ import annotations

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyinit
from anyinit._frameworks.jax.inputs import Batch
from anyinit._frameworks.jax.runtime import JaxRuntime
from models_flax import GPT, ids

WIDE = GPT(layers=2)  # 768 wide, 50257 tokens, 1024 places: 54 million numbers
MIB = 2**20


def nothing_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for numbers of the model or the batch fails."""

    def asked(*_: object) -> None:
        raise AssertionError("numbers were asked for")

    for home, name in ((JaxRuntime, "_realize"), (JaxRuntime, "_arguments"), (Batch, "synthetic")):
        monkeypatch.setattr(home, name, asked)


@pytest.mark.parametrize("given", [False, True])
def test_a_model_of_the_width_of_gpt2_is_planned_without_its_numbers(given: bool, monkeypatch: pytest.MonkeyPatch):
    nothing_real(monkeypatch)
    params = jax.eval_shape(WIDE.init, jax.random.key(0), ids()) if given else None
    anyinit.plan(GPT(1, 32, 2, 64, 16), ids(16), seed=0)  # loads what is imported on first use
    before = sum(x.nbytes for x in jax.live_arrays())
    tracemalloc.start()
    try:
        plan = anyinit.plan(WIDE, ids(), params=params, seed=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    numbers = sum(int(np.prod(w.shape)) for w in plan.weights)
    assert numbers == 50257 * 768 + 1024 * 768 + 2 * (12 * 768**2 + 13 * 768) + 2 * 768
    assert not plan.opaque and not plan.unscaled
    assert peak < 40 * MIB < 4 * numbers
    assert sum(x.nbytes for x in jax.live_arrays()) - before < 1024


def test_the_check_sees_a_call_that_does_need_numbers(monkeypatch: pytest.MonkeyPatch):
    nothing_real(monkeypatch)
    with pytest.raises(AssertionError, match="numbers were asked for"):
        anyinit.initialize(GPT(1, 32, 2, 64, 16), ids(16), seed=0, correct="always")


def test_a_plan_on_shapes_is_the_plan_on_arrays_and_fills_them():
    small = GPT(1, 32, 2, 64, 16)
    params = small.init(jax.random.key(0), jnp.zeros((1, 16), jnp.int32))
    shapes = jax.eval_shape(lambda: params)
    plans = [anyinit.plan(small, ids(16), params=p, seed=0) for p in (None, shapes, params)]
    assert plans[0].to_json() == plans[1].to_json() == plans[2].to_json()
    filled = anyinit.apply(plans[0], small, ids(16), params=params).params
    assert jax.tree.structure(filled) == jax.tree.structure(params)
    assert not any(
        jax.tree.leaves(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)) and a.ndim > 1, filled, params))
    )

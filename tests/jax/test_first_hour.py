"""What a newcomer to JAX gets wrong first is answered with the value and the next step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

jax = pytest.importorskip("jax")
eqx = pytest.importorskip("equinox")
linen = pytest.importorskip("flax.linen")
import jax.numpy as jnp  # noqa: E402

import anyinit  # noqa: E402


class Net(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(4)(linen.relu(linen.Dense(8)(x)))


def mlp() -> Any:
    return eqx.nn.MLP(4, 2, 8, 2, key=jax.random.key(0))


def built() -> Any:
    return Net().init(jax.random.key(0), jnp.zeros((2, 4)))


MISTAKES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a class": (lambda: anyinit.initialized(eqx.nn.MLP, (8, 4)), "the class MLP", r"an instance of it, MLP\("),
    "a name": (lambda: anyinit.initialize("net", (8, 4)), "the string 'net'", "build the model first"),
    "parameters": (lambda: anyinit.initialize(built(), (8, 4)), "dict", "the model they belong to"),
    "no input": (lambda: anyinit.initialize(Net()), "cannot be inferred", "a shape such as"),
    "no parameters": (lambda: anyinit.initialize(lambda p, x: x @ p, (8, 4)), "needs its parameters", "Pass params="),
    "wrong width": (lambda: anyinit.initialized(mlp(), (8, 5)), "TypeError", "the shape and type of the input"),
    "wrong width of built": (
        lambda: anyinit.initialize_params(Net(), built(), (8, 5)),
        r"\(4, 8\)",
        "the shape and type of the input",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_its_value_and_the_next_step(mistake: str):
    call, value, step = MISTAKES[mistake]
    with pytest.raises(anyinit.AnyInitError, match=value) as caught:
        call()
    caught.match(step)

"""How each library's models become pure functions: templates are made once, values come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from flax import nnx

import anyinit


class Linen:
    """A Flax linen module; what AnyInit gets are its variables."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def fresh(self, seed: int, inputs: Any) -> Any:
        return self.module.init(jax.random.key(seed), inputs)

    def placed(self, held: Any, inputs: Any, **options: Any) -> Any:
        return anyinit.initialize_params(self.module, held, inputs, **options)[0]

    def split(self, held: Any) -> tuple[Any, Any]:
        return held["params"], {k: v for k, v in held.items() if k != "params"}

    def apply(self, params: Any, state: Any, inputs: Any) -> tuple[Any, Any]:
        return self.module.apply({"params": params, **state}, inputs), state


class Function:
    """A plain function of parameters and inputs; ``draw(key)`` is its author's own initialization."""

    def __init__(self, call: Callable[[Any, Any], Any], draw: Callable[[Any], Any]) -> None:
        self.call, self.draw = call, draw

    def fresh(self, seed: int, inputs: Any) -> Any:
        return self.draw(jax.random.key(seed))

    def placed(self, held: Any, inputs: Any, **options: Any) -> Any:
        return anyinit.initialize_params(self.call, held, inputs, **options)[0]

    def split(self, held: Any) -> tuple[Any, Any]:
        return held, {}

    def apply(self, params: Any, state: Any, inputs: Any) -> tuple[Any, Any]:
        return self.call(params, inputs), state


class NNX:
    """A Flax NNX module."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make
        self.graph, _, _ = nnx.split(make(nnx.Rngs(0)), nnx.Param, ...)

    def fresh(self, seed: int, inputs: Any) -> Any:
        return self.make(nnx.Rngs(seed))

    def placed(self, held: Any, inputs: Any, **options: Any) -> Any:
        anyinit.initialize(held, inputs, **options)
        return held

    def split(self, held: Any) -> tuple[Any, Any]:
        return nnx.split(held, nnx.Param, ...)[1:]

    def apply(self, params: Any, state: Any, inputs: Any) -> tuple[Any, Any]:
        model = nnx.merge(self.graph, params, state)
        out = model(inputs)
        return out, nnx.split(model, nnx.Param, ...)[2]


class Equinox:
    """An Equinox module that takes one example at a time."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make
        self.rest = eqx.partition(make(jax.random.key(0)), eqx.is_inexact_array)[1]

    def fresh(self, seed: int, inputs: Any) -> Any:
        return self.make(jax.random.key(seed))

    def placed(self, held: Any, inputs: Any, **options: Any) -> Any:
        return anyinit.initialized(held, inputs, **options)[0]

    def split(self, held: Any) -> tuple[Any, Any]:
        return eqx.filter(held, eqx.is_inexact_array), {}

    def apply(self, params: Any, state: Any, inputs: Any) -> tuple[Any, Any]:
        return jax.vmap(eqx.combine(params, self.rest))(inputs), state


class Keras:
    """A functional Keras model on the JAX backend."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.template = make, make()

    def fresh(self, seed: int, inputs: Any) -> Any:
        import keras

        keras.utils.set_random_seed(seed)
        return self.make()

    def placed(self, held: Any, inputs: Any, **options: Any) -> Any:
        anyinit.initialize(held, inputs, **options)
        return held

    def split(self, held: Any) -> tuple[Any, Any]:
        both = zip(self.template.trainable_variables, held.trainable_variables, strict=True)
        params = {f"{k:03d} {ours.path}": theirs.value for k, (ours, theirs) in enumerate(both)}
        return params, [v.value for v in held.non_trainable_variables]

    def apply(self, params: Any, state: Any, inputs: Any) -> tuple[Any, Any]:
        return self.template.stateless_call(list(params.values()), state, inputs, training=True)

"""Flax NNX: a mutable module, split and merged inside the traced function, updated in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anyinit._frameworks.jax.program import BUFFER, PARAM, Program, dotted, required_flags, tree_program


def program(model: Any, forward: Callable[..., Any] | None) -> Program:
    """An NNX module as a program; shared variables are one slot."""
    from flax import nnx

    definition, state = nnx.split(model)
    extra = required_flags(type(model).__call__) if callable(model) else {}

    def run(tree: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module = nnx.merge(definition, tree)
        return module(*args, **kwargs, **extra) if forward is None else forward(module, *args, **kwargs)

    made = tree_program(state, run, roles(state), name)
    assemble = made.rebuild

    def rebuild(values: Sequence[Any]) -> Any:
        nnx.update(model, assemble(values))
        return model

    made.rebuild, made.apart = rebuild, False
    return made


def roles(state: Any) -> Callable[[Any, Any], str]:
    """Which leaves of a state are parameters: those whose variable is an ``nnx.Param``."""
    from flax import nnx

    trained = {tuple(path) for path, variable in nnx.to_flat_state(state) if issubclass(_kind(variable), nnx.Param)}

    def role(path: Any, _: Any) -> str:
        keys = tuple(getattr(k, "key", getattr(k, "idx", None)) for k in path)
        return PARAM if any(keys[: len(t)] == t for t in trained) else BUFFER

    return role


def name(path: Any) -> str:
    """The dotted path of a variable."""
    return dotted(path, "value")


def _kind(variable: Any) -> type:
    return getattr(variable, "type", None) or type(variable)

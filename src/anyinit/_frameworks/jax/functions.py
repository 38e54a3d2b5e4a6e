"""Plain functions ``f(params, *inputs)``: every array of the parameter tree is a parameter, unless the tree
is a Flax one and says otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from jax.tree_util import tree_flatten_with_path

from anyinit._frameworks.jax import linen
from anyinit._frameworks.jax.program import Program, dotted, tree_program
from anyinit.errors import ConfigError, could_not_run


def program(model: Callable[..., Any], params: Any, forward: Callable[..., Any] | None) -> Program:
    """A function and its parameters as a program; ``forward(f, batch)`` sees ``f`` with parameters bound."""
    if params is None:
        raise ConfigError(
            "A plain function needs its parameters", value=model, remedy="Pass params=, a tree of arrays."
        )

    def run(tree: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if forward is not None:
            return forward(partial(model, tree), *args, **kwargs)
        return model(tree, *args, **kwargs)

    made = _program(params, run)
    made.refused = partial(could_not_run, also="Check that params holds what the function reads.")
    numbers = [dotted(path) for path, leaf in tree_flatten_with_path(params)[0] if isinstance(leaf, (float, complex))]
    if numbers:
        made.notes.append(f"{', '.join(numbers)}: plain numbers in params, which are no arrays and are left alone")
    return made


def _program(params: Any, run: Callable[..., Any]) -> Program:
    """The tree of parameters read as what it is."""
    if linen.is_variables(params):
        return tree_program(params, run, linen.role, linen.name)
    state = getattr(sys.modules.get("flax.nnx"), "State", None)
    if state is not None and isinstance(params, state):
        from anyinit._frameworks.jax import nnx

        return tree_program(params, run, nnx.roles(params), nnx.name)
    return tree_program(params, run)

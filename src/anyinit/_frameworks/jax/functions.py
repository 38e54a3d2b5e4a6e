"""Plain functions ``f(params, *inputs)``: every array of the parameter tree is a parameter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from anyinit._frameworks.jax.program import Program, tree_program
from anyinit.errors import ConfigError


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

    return tree_program(params, run)

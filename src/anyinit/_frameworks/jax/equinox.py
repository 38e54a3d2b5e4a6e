"""Equinox modules: a module is a tree; its floating arrays are parameters, other arrays buffers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax

from anyinit._frameworks.jax.program import Program, required_flags, tree_program

PER_EXAMPLE = "the module takes one example at a time: the batch was mapped over its first axis"


def program(model: Any, forward: Callable[..., Any] | None, *, mapped: bool = False) -> Program:
    """An Equinox module as a program; ``mapped`` calls it on every example of the batch."""
    extra = required_flags(type(model).__call__) if callable(model) else {}
    if _takes_key(model):
        extra["key"] = jax.random.key(0)

    def run(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if forward is not None:
            return forward(module, *args, **kwargs)
        if not mapped:
            return module(*args, **{**extra, **kwargs})
        each = dict(extra)
        if "key" in each:
            each["key"] = jax.random.split(each["key"], jax.tree_util.tree_leaves((args, kwargs))[0].shape[0])
        fixed = {name: each.pop(name) for name in extra if name != "key"}
        return jax.vmap(lambda a, k: module(*a, **fixed, **k))(args, {**each, **kwargs})

    made = tree_program(model, run)
    made.apart = False
    if mapped:
        made.notes.append(PER_EXAMPLE)
    return made


def _takes_key(model: Any) -> bool:
    """Whether a module may be called with a random key: without one, dropout refuses to train."""
    try:
        return "key" in inspect.signature(type(model).__call__).parameters
    except (TypeError, ValueError, AttributeError):
        return False


def fits_mapped(model: Any, args: tuple[Any, ...], out: Any) -> bool:
    """Whether a plain call that succeeded may have taken the batch for features: as many examples as some
    weight has columns, and a result that does not keep the batch first."""
    sizes = {leaf.shape[0] for leaf in jax.tree_util.tree_leaves(args) if getattr(leaf, "ndim", 0)}
    columns = {leaf.shape[-1] for leaf in jax.tree_util.tree_leaves(model) if getattr(leaf, "ndim", 0) > 1}
    return bool(sizes & columns) or any(not o.shape or o.shape[0] not in sizes for o in jax.tree_util.tree_leaves(out))

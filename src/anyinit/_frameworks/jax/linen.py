"""Flax linen: variables are collections of nested dictionaries; ``params`` is the one that is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from anyinit._frameworks.jax.arrays import misfit
from anyinit._frameworks.jax.inputs import Batch
from anyinit._frameworks.jax.program import (
    BUFFER,
    PARAM,
    READS,
    UNUSABLE,
    Program,
    dotted,
    named_arrays,
    part_of,
    required_flags,
    tree_program,
)
from anyinit.errors import AnyInitError

STREAMS = ("params", "dropout", "default", "noise", "gumbel")


def program(model: Any, params: Any, batch: Batch, forward: Callable[..., Any] | None) -> Program:
    """A linen module as a program. ``params`` is ``{"params": ..., "batch_stats": ...}``, the inner
    ``params`` alone, or nothing: then shapes come from an abstract ``init``."""
    streams = dict.fromkeys(STREAMS, jax.random.key(0))
    extra = required_flags(type(model).__call__)
    init = lambda a, k: model.init(streams, *a, **k, **extra)  # noqa: E731
    drawn = params is None
    if drawn:
        params = _fresh(init, batch)

    whole = is_variables(params)

    def run(tree: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        variables = tree if whole else {"params": tree}
        if forward is not None:
            return forward(model.bind(variables, rngs=streams, mutable=_state(variables)), *args, **kwargs)
        return model.apply(variables, *args, **kwargs, **extra, rngs=streams, mutable=_state(variables))[0]

    made = tree_program(params, run, role, name) if whole else tree_program(params, run, None, name_inside)
    if not drawn and forward is None:
        made.refused = lambda _: _misfit(params, init, batch, whole)
    if drawn:

        def realize(places: Sequence[int]) -> Any:
            real = batch.synthetic({})
            return jax.jit(
                lambda: [
                    jax.tree_util.tree_leaves(model.init(streams, *real[0], **real[1], **extra))[i] for i in places
                ]
            )()

        made.realize = realize
    return made


def is_variables(tree: Any) -> bool:
    """Whether a tree is a dictionary of collections, ``params`` among them."""
    return isinstance(tree, Mapping) and "params" in tree and isinstance(tree["params"], Mapping)


def role(path: Any, _: Any) -> str:
    """Only the collection ``params`` is trained."""
    return PARAM if part_of(path[0]) == "params" else BUFFER


def name(path: Any) -> str:
    """The path inside ``params``; other collections keep their name."""
    return name_inside(path[1:] if part_of(path[0]) == "params" else path)


def name_inside(path: Any) -> str:
    """A path without the boxes that hold sharding metadata."""
    return dotted(path, "value")


def _misfit(params: Any, init: Callable[..., Any], batch: Batch, whole: bool) -> AnyInitError | None:
    """How variables differ from those of an ``init`` on the same input; nothing if that fails too."""
    try:
        needed = _fresh(init, batch)
    except UNUSABLE:
        return None
    if whole:
        return misfit(named_arrays(params, name), named_arrays(needed, name))
    return misfit(named_arrays(params, name_inside), named_arrays(needed["params"], name_inside))


def _state(variables: Mapping[str, Any]) -> list[str]:
    return [name for name in variables if name != "params"]


def _fresh(init: Callable[..., Any], batch: Batch) -> Any:
    """Shapes of a new model's variables; the variables themselves if ``init`` reads values while it runs."""
    try:
        return jax.eval_shape(init, *batch.abstract())
    except READS:
        return init(*batch.synthetic({}))

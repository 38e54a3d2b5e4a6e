"""Haiku: a pair of pure functions; parameters (and state) are dictionaries of dictionaries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from anyinit._frameworks.jax.arrays import misfit
from anyinit._frameworks.jax.inputs import Batch
from anyinit._frameworks.jax.program import BUFFER, PARAM, UNUSABLE, Program, named_arrays, tree_program
from anyinit.errors import AnyInitError


def _takes_key(apply: Callable[..., Any]) -> bool:
    """Whether a transformed function wants a key; ``without_apply_rng`` takes that argument away."""
    return any(name in inspect.signature(apply).parameters for name in ("rng", "rng_key", "key"))


def _name(path: Any) -> str:
    """Module and parameter."""
    return ".".join(str(k.key) for k in path if hasattr(k, "key"))


def _misfit(params: Any, fresh: Callable[[], Any]) -> AnyInitError | None:
    """How parameters (and state) differ from those of an ``init`` on the same input; nothing if that fails too."""
    try:
        needed = fresh()
    except UNUSABLE:
        return None
    return misfit(named_arrays(params, _name), named_arrays(needed, _name))


def program(model: Any, params: Any, batch: Batch, forward: Callable[..., Any] | None) -> Program:
    """A transformed function as a program. ``params`` is its parameters, or ``(parameters, state)``."""
    stateful = type(model).__name__ == "TransformedWithState"
    key = jax.random.PRNGKey(0)
    args, kwargs = batch.abstract()
    alone = stateful and params is not None and not isinstance(params, tuple)
    drawn = params is None or alone
    if drawn:
        fresh = jax.eval_shape(model.init, key, *args, **kwargs)
        params = fresh if params is None else (params, fresh[1])

    noise = (key,) if _takes_key(model.apply) else ()

    def run(tree: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        apply = partial(model.apply, *(tree if stateful else (tree,)), *noise)
        call = (lambda *a, **k: apply(*a, **k)[0]) if stateful else apply
        return call(*args, **kwargs) if forward is None else forward(call, *args, **kwargs)

    def role(path: Any, _: Any) -> str:
        return BUFFER if stateful and path[0].idx == 1 else PARAM

    made = tree_program(params, run, role, _name)
    if (alone or not drawn) and forward is None:
        made.refused = lambda _: _misfit(params, lambda: jax.eval_shape(model.init, key, *args, **kwargs))
    if alone:
        assemble = made.rebuild
        made.rebuild = lambda values: assemble(values)[0]
    if drawn:

        def realize(places: Sequence[int]) -> Any:
            real = batch.synthetic({})
            return jax.jit(
                lambda: [jax.tree_util.tree_leaves(model.init(key, *real[0], **real[1]))[i] for i in places]
            )()

        made.realize = realize
    return made

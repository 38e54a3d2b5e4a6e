"""From a recognised model to its runtime: the one place that knows all five frameworks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from anyinit._frameworks.jax.infer import inferred
from anyinit._frameworks.jax.inputs import Batch, parse
from anyinit._frameworks.jax.program import UNUSABLE, Program
from anyinit._frameworks.jax.record import trace
from anyinit._frameworks.jax.runtime import JaxRuntime
from anyinit.errors import AnyInitError, ConfigError, could_not_run


def open_as(kind: str, model: Any, spec: Any, params: Any, forward: Callable[..., Any] | None) -> JaxRuntime:
    """The runtime of ``model``, known to be of framework ``kind``."""
    if params is not None and kind in ("nnx", "equinox"):
        raise ConfigError("This module holds its parameters", value="params=", remedy="Leave params out.")
    batch = parse(spec) if spec is not None else _guess(kind, model, params, forward)
    try:
        made = _program(kind, model, params, batch, forward)
    except AnyInitError:
        raise
    except Exception as error:
        raise could_not_run(error) from error
    if kind == "equinox" and forward is None:
        made = _equinox(model, made, batch)
    if batch.kwargs and not batch.args and not _runs(made, batch):
        single = Batch((dict(batch.kwargs),), {})
        if _runs(made, single):
            batch = single
    if batch.note:
        made.notes.insert(0, batch.note)
    return JaxRuntime(made, batch)


def _guess(kind: str, model: Any, params: Any, forward: Callable[..., Any] | None) -> Batch:
    """An input for a model that came without one, where its weights say what they take."""
    if params is None and kind in ("linen", "haiku"):
        return parse(None)
    made = _program(kind, model, params, Batch((), {}), forward)

    def runs(batch: Batch) -> bool:
        return _runs(_equinox(model, made, batch) if kind == "equinox" and forward is None else made, batch)

    found = inferred(made.slots, runs)
    return parse(None) if found is None else replace(found[0], note=_told(*found))


def _told(batch: Batch, name: str) -> str:
    leaf = batch.args[0]
    return f"no input was given: {leaf.dtype} of shape {leaf.shape} is what {name} takes"


def _program(kind: str, model: Any, params: Any, batch: Batch, forward: Callable[..., Any] | None) -> Program:
    if kind == "linen":
        from anyinit._frameworks.jax import linen

        return linen.program(model, params, batch, forward)
    if kind == "nnx":
        from anyinit._frameworks.jax import nnx

        return nnx.program(model, forward)
    if kind == "equinox":
        from anyinit._frameworks.jax import equinox

        return equinox.program(model, forward)
    if kind == "haiku":
        from anyinit._frameworks.jax import haiku

        return haiku.program(model, params, batch, forward)
    from anyinit._frameworks.jax import functions

    return functions.program(model, params, forward)


def _runs(program: Program, batch: Batch) -> bool:
    try:
        trace(program, batch)
    except UNUSABLE:
        return False
    return True


def _equinox(model: Any, plain: Program, batch: Batch) -> Program:
    """The plain call, or one call per example where only that works or where the plain one misreads the batch."""
    from anyinit._frameworks.jax import equinox

    mapped = equinox.program(model, None, mapped=True)
    args, kwargs = batch.abstract()
    values = [jax.ShapeDtypeStruct(s.value.shape, s.value.dtype) for s in plain.slots]
    try:
        out = jax.eval_shape(plain.call, values, args, kwargs)
    except UNUSABLE:
        return mapped if _runs(mapped, batch) else plain
    return mapped if equinox.fits_mapped(model, args, out) and _runs(mapped, batch) else plain

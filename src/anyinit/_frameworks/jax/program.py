"""A model as a pure function of its leaves: all that differs between the frameworks on JAX."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from anyinit._frameworks.primitives.flat import BUFFER, PARAM
from anyinit.errors import AnyInitError

FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}
READS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""What JAX raises when a model reads a value that tracing has not got."""

UNUSABLE = (TypeError, ValueError, RuntimeError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""What a model raises when it cannot take an input in the form it was tried."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One array of a model: its name, its role and its value (an array, or a shape and type only)."""

    name: str
    value: Any
    role: str = PARAM
    aliases: tuple[str, ...] = ()
    trainable: bool = True

    @property
    def abstract(self) -> bool:
        """Whether only shape and type are known."""
        return isinstance(self.value, jax.ShapeDtypeStruct)


@dataclass(slots=True)
class Program:
    """``call(values, args, kwargs)`` runs the model with ``values`` in its slots.

    ``rebuild(values)`` makes the framework's own object of them (``None`` in a slot keeps what was
    there); ``realize()`` gives initial values to a model that has none yet.
    ``apart``: the model keeps its parameters in a tree of their own. ``refused(error)``: what to say when the call
    failed, where more is known than its own ``error``; ``None`` if not.
    """

    call: Callable[[Sequence[Any], tuple[Any, ...], dict[str, Any]], Any]
    slots: list[Slot]
    rebuild: Callable[[Sequence[Any]], Any]
    realize: Callable[[Sequence[int]], Sequence[Any]] | None = None
    notes: list[str] = field(default_factory=list[str])
    apart: bool = True
    refused: Callable[[Exception], AnyInitError | None] = lambda _: None


def part_of(key: Any) -> str:
    """One step of a tree path as text."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key).strip(".[]'\"")


def dotted(path: Sequence[Any], drop_last: str = "") -> str:
    """A tree path as a dotted name."""
    parts = [part_of(k) for k in path]
    if drop_last and len(parts) > 1 and parts[-1] == drop_last:
        parts.pop()
    return ".".join(parts)


def is_array(value: Any) -> bool:
    """Whether a leaf holds numbers, or the shape of an array to come."""
    return isinstance(value, jax.ShapeDtypeStruct) or (hasattr(value, "shape") and hasattr(value, "dtype"))


def is_inexact(value: Any) -> bool:
    """Whether an array holds real or complex numbers."""
    return jnp.issubdtype(value.dtype, jnp.inexact)


def named_arrays(tree: Any, name: Callable[[Any], str]) -> dict[str, Any]:
    """The arrays of a tree by name."""
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {name(path): leaf for path, leaf in found if is_array(leaf)}


def filled(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """``new`` with ``old`` where it has ``None``."""
    return [o if n is None else n for o, n in zip(old, new, strict=True)]


def required_flags(fn: Callable[..., Any]) -> dict[str, Any]:
    """Arguments a model cannot be called without and whose value is plain: training flags and keys."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return {}
    flags = {p.name: FLAGS[p.name] for p in parameters if p.name in FLAGS and p.default is p.empty}
    keys = [p.name for p in parameters if p.name in ("key", "rng") and p.default is p.empty]
    return {**flags, **{name: jax.random.key(0) for name in keys}}


def tree_program(
    tree: Any,
    run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any],
    role: Callable[[Any, Any], str] | None = None,
    name: Callable[[Any], str] = dotted,
) -> Program:
    """The program of ``run(tree, args, kwargs)``: every array of ``tree`` is a slot, the rest is fixed."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
    held = [leaf for _, leaf in leaves]
    places = [i for i, leaf in enumerate(held) if is_array(leaf)]

    def assemble(values: Sequence[Any]) -> Any:
        whole = list(held)
        for place, value in zip(places, values, strict=True):
            whole[place] = value
        return jax.tree_util.tree_unflatten(treedef, whole)

    def role_of(path: Any, leaf: Any) -> str:
        plain = PARAM if is_inexact(leaf) else BUFFER
        return plain if role is None or plain == BUFFER else role(path, leaf)

    slots = [Slot(name(leaves[i][0]), held[i], role_of(*leaves[i])) for i in places]
    return Program(
        lambda values, args, kwargs: run(assemble(values), args, kwargs),
        slots,
        lambda values: assemble(filled([held[i] for i in places], values)),
    )

"""A model as a function of its variables: names and roles of what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from anyinit._frameworks.primitives.flat import BUFFER, PARAM


@dataclass(slots=True)
class Slot:
    """One variable of a model: its name, its role and itself."""

    name: str
    variable: Any
    role: str = PARAM
    aliases: tuple[str, ...] = ()
    trainable: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(int(n) for n in self.variable.shape)


@dataclass(slots=True)
class Program:
    """``call(args, kwargs)`` runs the model. Variables that a trace meets and ``slots`` lacks are added."""

    call: Callable[[tuple[Any, ...], dict[str, Any]], Any]
    slots: list[Slot] = field(default_factory=list[Slot])
    notes: list[str] = field(default_factory=list[str])

    def place(self, handle: Any) -> int | None:
        """The slot of a resource handle."""
        return next((i for i, s in enumerate(self.slots) if s.variable.handle is handle), None)

    def met(self, variables: Any) -> None:
        """Add the variables of a trace that the model does not list: those of plain functions."""
        known = {id(s.variable) for s in self.slots}
        self.slots += [slot(v, v.name.split(":")[0].replace("/", ".")) for v in variables if id(v) not in known]


def slot(variable: Any, name: str, aliases: tuple[str, ...] = ()) -> Slot:
    """A variable as a slot: trainable real or complex numbers are parameters."""
    numbers = variable.dtype.is_floating or variable.dtype.is_complex
    return Slot(name, variable, PARAM if variable.trainable and numbers else BUFFER, aliases)


def program(model: Any, forward: Callable[..., Any] | None) -> Program:
    """A ``tf.Module`` or a function as a program; shared variables are one slot, first name first."""

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return model(*args, **kwargs) if forward is None else forward(model, *args, **kwargs)

    names: dict[int, list[str]] = {}
    held: dict[int, Any] = {}
    if isinstance(model, tf.Module):
        for path, variable in model._flatten(predicate=lambda v: isinstance(v, tf.Variable), with_path=True):
            names.setdefault(id(variable), []).append(".".join(str(p) for p in path))
            held[id(variable)] = variable
    slots = [slot(held[i], found[0], tuple(found[1:])) for i, found in names.items()]
    return Program(call, slots)

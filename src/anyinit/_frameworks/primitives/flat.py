"""A recorded run as a flat list of array primitives: what every importer of a traced program makes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

PARAM, BUFFER = "param", "buffer"


@dataclass(frozen=True, slots=True)
class Aval:
    """Shape and type of one variable."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One equation: ``outs = call(*ins)``; ``name`` and ``params`` say what it computes."""

    name: str
    params: Mapping[str, Any]
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    avals: tuple[Aval, ...]
    scope: str
    call: Callable[..., Sequence[Any]]


@dataclass(slots=True)
class Flat:
    """The flattened program. Variables are numbers; ``known`` holds those that depend on no input."""

    avals: list[Aval] = field(default_factory=list[Aval])
    known: dict[int, Any] = field(default_factory=dict[int, Any])
    inputs: tuple[int, ...] = ()
    steps: list[Step] = field(default_factory=list[Step])
    outputs: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list[str])
    closed: dict[int, int] = field(default_factory=dict[int, int])

    def prune(self) -> None:
        """Drop every step that no output needs."""
        needed, kept = set(self.outputs), list[Step]()
        for step in reversed(self.steps):
            if needed.intersection(step.outs):
                needed.update(step.ins)
                kept.append(step)
        self.steps = kept[::-1]

    def last_uses(self) -> list[tuple[int, ...]]:
        """For each step the variables that nothing later needs."""
        seen, out = set(self.outputs), list[tuple[int, ...]]()
        for step in reversed(self.steps):
            gone = tuple({v for v in (*step.ins, *step.outs) if v not in seen})
            seen.update(gone)
            out.append(gone)
        return out[::-1]


Decide = Callable[[Flat, int], Any]


def needed_for(flat: Flat, var: int) -> list[Step]:
    """The steps recorded so far that ``var`` depends on."""
    probe = replace(flat, steps=list(flat.steps), outputs=(var,))
    probe.prune()
    return probe.steps

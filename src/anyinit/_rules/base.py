"""The registry of statistics rules: one forward and one adjoint part for every operation.

A forward rule takes the signals of the inputs and returns the signal of the output. An adjoint rule
takes the second-moment table of the gradient at the output, in the output's layout, and returns one
table for each input, in that input's layout (None where no gradient flows). Gradients are taken as
independent of the forward values except where a rule says otherwise, with mean zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from anyinit._core.field import Signal
from anyinit._core.tables import Table
from anyinit._graph.ops import Op

T = TypeVar("T", bound=Op)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a rule is applied: id, shape and kind of the output, ids of the inputs."""

    id: int
    shape: tuple[int, ...]
    kind: str = "float"
    inputs: tuple[int, ...] = ()


Inputs = tuple[Signal, ...]
Forward = Callable[[Any, Inputs, Site], Signal]
Adjoint = Callable[[Any, Inputs, Signal, Table], tuple[Table | None, ...]]

FORWARD: dict[type[Op], Forward] = {}
ADJOINT: dict[type[Op], Adjoint] = {}


def forward(op: type[Op]) -> Callable[[Forward], Forward]:
    """Register the forward rule of an operation."""

    def keep(rule: Forward) -> Forward:
        FORWARD[op] = rule
        return rule

    return keep


def adjoint(op: type[Op]) -> Callable[[Adjoint], Adjoint]:
    """Register the adjoint rule of an operation."""

    def keep(rule: Adjoint) -> Adjoint:
        ADJOINT[op] = rule
        return rule

    return keep


def inherited(*signals: Signal, weights: tuple[float, ...] | None = None) -> dict[int, float]:
    """Noise sensitivities of a sum: those of its terms, weighted by their shares of the level."""
    out: dict[int, float] = {}
    for i, s in enumerate(signals):
        w = 1.0 if weights is None else weights[i]
        for k, v in s.noise.items():
            out[k] = out.get(k, 0.0) + w * v
    return out


def lineage(*signals: Signal) -> frozenset[Any]:
    """Union of lineages."""
    out: frozenset[Any] = frozenset()
    for s in signals:
        out |= s.lineage
    return out

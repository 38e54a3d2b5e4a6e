"""What the caller fixed: constants, draws of a given scale, and biases left as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._graph.graph import Graph
from anyinit._graph.ops import Lookup
from anyinit._solve.plan import Draw, Part, Term
from anyinit._solve.roles import Uses

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A parameter whose distribution, standard deviation and mean (``value``) the caller gave."""

    role: str
    distribution: str
    std: float
    value: float
    why: str = ""
    terms: tuple[Term, ...] = ()
    source: str = ""

    def sample(self, shape: Shape) -> NDArray[np.float64]:
        """Entries with the given statistics, for the predictions."""
        if self.distribution == "constant":
            return np.full(shape, self.value)
        return self.value + self.std * np.random.default_rng(0).standard_normal(shape)

    def part(self, shape: Shape, key: int, grad: float | None) -> Part:
        """What the plan says of it."""
        level = self.std**2 + self.value**2
        if self.distribution == "constant":
            draw = Draw(outs=tuple(range(len(shape))), distribution="constant", value=self.value)
            return Part(
                role=self.role, draw=draw, predicted_grad=grad, why=self.why or f"{self.value:g} given by the caller"
            )
        ins = tuple(range(1, len(shape)))
        draw = Draw((), (), (0,) if shape else (), ins, self.distribution, self.std, self.value, key)
        why = self.why or f"standard deviation {self.std:g} given by the caller"
        terms = self.terms or (Term("std", self.std, 1.0, "given by the caller"),)
        table = self.role not in {"bias", "gain", "slope", "shape"}
        return Part(
            role=self.role, fan=int(table), fan_out=shape[-1] if table and shape else 0, draw=draw,
            predicted=level if table else None, predicted_output=level if table else None, predicted_grad=grad, why=why,
            terms=terms, source=self.source or "the caller",
        )  # fmt: skip


def given(graph: Graph, override: Callable[[str], Mapping[str, Any]]) -> dict[str, Given]:
    """Parameters that need no solving, by name. A standard deviation alone on a contracted weight that is
    no table is none of them: the solver takes it in place of its own and predicts with it."""
    uses = Uses(graph)
    found: dict[str, Given] = {}
    for i, leaf in graph.params():
        chosen = override(leaf.name)
        std, value, distribution = (chosen.get(k) for k in ("std", "value", "distribution"))
        why = str(chosen.get("why", ""))
        roles = [uses.role(u) for u in uses.collect().get(i, ())]
        role = roles[0] if roles else "unused"
        if distribution == "constant" or (value is not None and std is None):
            found[leaf.name] = Given(role, "constant", 0.0, float(value or 0.0), why)
        elif std is not None and (value is not None or "weight" not in roles or "table" in roles):
            mean = (1.0 if role == "gain" else 0.0) if value is None else float(value)
            reason = chosen.get("terms", ()), str(chosen.get("source", ""))
            found[leaf.name] = Given(role, distribution or "normal", float(std), mean, why, *reason)
    return found


def biases(graph: Graph) -> frozenset[str]:
    """Names of the parameters that are only ever added."""
    uses = Uses(graph)
    mine: dict[str, bool] = {}
    for i, leaf in graph.params():
        found = uses.collect().get(i, [])
        plain = all(uses.role(u) == "bias" and not any(isinstance(op, Lookup) for op in u.view) for u in found)
        mine[leaf.name] = mine.get(leaf.name, True) and plain and bool(found)
    return frozenset(name for name, yes in mine.items() if yes)


def reader(read: Callable[[str], Any], fixed: Mapping[str, Given], shapes: Mapping[str, Shape]) -> Callable[[str], Any]:
    """Values of parameters by name, each asked for once; fixed ones as they will be."""
    cache: dict[str, Any] = {}

    def values(name: str) -> Any:
        if name not in cache:
            shape = shapes.get(name, ())
            cache[name] = fixed[name].sample(shape) if name in fixed and math.prod(shape) else read(name)
        return cache[name]

    return values

"""The textbook schemes by name: a standard deviation for every weight from its fans, and nothing else.

Roles and fans come from the graph, so that a scheme means the same in every framework and layout. What no textbook
speaks of is left at what makes it neutral: gains at one, slopes and scalars at their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyinit._graph.graph import Graph
from anyinit._graph.ops import Contract
from anyinit._solve.fans import fan_in, fan_out, receptive
from anyinit._solve.plan import Term
from anyinit._solve.regions import region
from anyinit._solve.roles import Use, Uses
from anyinit._solve.streams import Streams

SMALL = 0.01  # the fixed deviation that He et al. 2015 (section 2.2) compare with, after Krizhevsky et al. 2012
FILL = 0.1
GPT2 = 0.02
BESIDE = 0.02  # tokens and positions under schemes that name none (Devlin et al. 2019, Dosovitskiy et al. 2021)
TABLES = {"table", "position table"}


@dataclass(frozen=True, slots=True)
class Fans:
    """What a scheme may ask of one weight.

    fan_in, fan_out: terms per output and per input, taps included. longest: longer side of one group's matrix.
    branches: residual sums of the stream the weight writes to; 0 of any other weight.
    """

    role: str
    fan_in: int
    fan_out: int
    longest: int
    branches: int = 0


Fields = dict[str, Any]
Terms = tuple[Term, ...]
Scheme = Callable[[Fans, float | None], tuple[str, float, str, Terms]]
"""Distribution, deviation (or value), formula and factors of one weight; the number is the caller's own, if any."""

GLOROT, SAXE = "Glorot & Bengio 2010, eq. 12", "Saxe et al. 2014"
HE, LECUN = "He et al. 2015, eq. 10", "LeCun et al. 1998, section 4.6"
KRIZHEVSKY, RADFORD = "Krizhevsky et al. 2012, section 5", "Radford et al. 2019, section 2.3"


def _xavier(distribution: str) -> Scheme:
    def scheme(f: Fans, _: float | None) -> tuple[str, float, str, Terms]:
        std = math.sqrt(2 / (f.fan_in + f.fan_out))
        why = f"sqrt(2 / (fan_in + fan_out)) = sqrt(2 / ({f.fan_in} + {f.fan_out})) ({GLOROT})"
        both = Term(
            "fan_in + fan_out", f.fan_in + f.fan_out, -0.5, f"{f.fan_in} terms per output, {f.fan_out} per input"
        )
        return (
            distribution,
            std,
            why,
            (Term("2", 2, 0.5, "their mean: forward asks for 1 / fan_in, backward 1 / fan_out"), both),
        )

    return scheme


def _per_input(distribution: str, gain: int, source: str) -> Scheme:
    def scheme(f: Fans, _: float | None) -> tuple[str, float, str, Terms]:
        fan = Term("fan_in", f.fan_in, -0.5, "terms each output sums")
        two = (Term("2", 2, 0.5, "1 / E relu(z)^2, whatever follows here"),) if gain == 2 else ()
        why = f"sqrt({gain} / fan_in) = sqrt({gain} / {f.fan_in}) ({source})"
        return distribution, math.sqrt(gain / f.fan_in), why, (*two, fan)

    return scheme


def _constant(default: float) -> Scheme:
    def scheme(_: Fans, number: float | None) -> tuple[str, float, str, Terms]:
        value = default if number is None else number
        return "constant", value, f"{value:g} everywhere", ()

    return scheme


def _normal(_: Fans, number: float | None) -> tuple[str, float, str, Terms]:
    std = SMALL if number is None else number
    return "normal", std, f"the fixed {std:g}, whatever the fans", (Term("std", std, 1, "fixed, whatever the fans"),)


def _orthogonal(f: Fans, _: float | None) -> tuple[str, float, str, Terms]:
    why = f"orthonormal rows or columns: entries of variance 1 / {f.longest} ({SAXE})"
    longest = Term("longest", f.longest, -0.5, "longer side of the matrix: squares along it sum to one")
    return "orthogonal", 1 / math.sqrt(f.longest), why, (longest,)


def _gpt2(f: Fans, _: float | None) -> tuple[str, float, str, Terms]:
    std = Term("std", GPT2, 1, "fixed, whatever the fans")
    if not f.branches:
        return "normal", GPT2, f"the fixed {GPT2:g} (Radford et al. 2019)", (std,)
    why = f"{GPT2:g} / sqrt({f.branches}), the branches its stream adds up ({RADFORD})"
    many = Term("N", f.branches, -0.5, "branches its residual stream adds up")
    return "normal", GPT2 / math.sqrt(f.branches), why, (std, many)


FORMULAS: dict[str, Scheme] = {
    "zeros": _constant(0.0),
    "constant": _constant(FILL),
    "normal": _normal,
    "xavier_uniform": _xavier("uniform"),
    "xavier_normal": _xavier("normal"),
    "he_uniform": _per_input("uniform", 2, HE),
    "he_normal": _per_input("normal", 2, HE),
    "lecun_normal": _per_input("normal", 1, LECUN),
    "orthogonal": _orthogonal,
    "gpt2": _gpt2,
}

SOURCES = {
    "normal": KRIZHEVSKY,
    "xavier_uniform": GLOROT,
    "xavier_normal": GLOROT,
    "he_uniform": HE,
    "he_normal": HE,
    "lecun_normal": LECUN,
    "orthogonal": SAXE,
    "gpt2": RADFORD,
}


class Schemes:
    """Fields that win over the solver's, for every parameter of a graph under the scheme it is given."""

    def __init__(self, graph: Graph) -> None:
        self.uses = Uses(graph)
        self.uses.collect()
        self.streams = Streams(self.uses)
        self.fans: dict[str, Fans] = {}
        for i, leaf in graph.params():
            found = self._fans(i)
            old = self.fans.get(leaf.name)
            if found is not None and (old is None or found.fan_out > old.fan_out):
                self.fans[leaf.name] = found

    def fields(self, name: str, scheme: str, number: float | None = None) -> Fields:
        """Distribution, deviation and reason of a parameter under a scheme; empty where it has no say."""
        f = self.fans.get(name)
        if f is None or scheme == "framework":
            return {}
        if f.role == "weight" or f.role in TABLES:
            if scheme == "lsuv":
                return {"distribution": "orthogonal"} if f.role == "weight" else {}
            distribution, amount, why, terms = FORMULAS[scheme](f, number)
            why = f"{scheme}: {why}"
            if distribution == "constant" or not amount:
                return {"distribution": "constant", "value": amount, "why": why}
            more = {"terms": terms, "source": SOURCES[scheme]}
            return {"distribution": distribution, "std": amount, "why": why, **more}
        if f.role in {"token", "position"} and scheme != "lsuv":
            if scheme in {"zeros", "constant"}:
                return {"distribution": "constant", "value": FORMULAS[scheme](f, number)[1], "why": f"{scheme}"}
            why, terms = f"{scheme} names no tokens: the usual {BESIDE:g}", (Term("std", BESIDE, 1, "the usual one"),)
            return {"distribution": "normal", "std": BESIDE, "why": why, "terms": terms, "source": "Devlin et al. 2019"}
        return {}

    def _fans(self, leaf: int) -> Fans | None:
        uses = self.uses.uses.get(leaf, [])
        roles = [self.uses.role(u) for u in uses]
        if "weight" in roles:
            return self._contracted(leaf, uses[roles.index("weight")])
        table = next((r for r in roles if r in TABLES), None)
        if table is not None:
            rows, *rest = self.uses.graph.values[leaf].shape or (1,)
            columns = math.prod(rest)
            return Fans(table, rows, columns, max(rows, columns))
        return Fans(roles[0], 1, 1, 1) if roles else None

    def _contracted(self, leaf: int, use: Use) -> Fans:
        graph = self.uses.graph
        applied = self.uses.applied(leaf)
        use = applied[0] if applied else use
        node = graph.nodes[use.node]
        assert isinstance(node.op, Contract)
        into, outs, taps = fan_in(graph, node), fan_out(graph, node, use.slot), receptive(node)
        held = math.prod(graph.values[use.value].shape) // max(outs * self._groups(node, use), 1)
        return Fans("weight", into, outs * taps, max(outs, held), self._branches(node.output))

    def _groups(self, node: Any, use: Use) -> int:
        mine, other = (node.op.b, node.op.a) if use.slot else (node.op.a, node.op.b)
        shape = self.uses.graph.values[use.value].shape
        return math.prod(n for lab, n in zip(mine, shape, strict=True) if lab in node.op.out and lab in other)

    def _branches(self, value: int) -> int:
        """Sums of the stream that a weight's output joins directly."""
        place = region(self.uses, value)
        joined = self.streams.by_branch.get(place.end)
        if joined is None or place.curved:
            return 0
        return self.streams.sizes[self.streams.stream[joined.node]]

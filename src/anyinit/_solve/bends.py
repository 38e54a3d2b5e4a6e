"""The function behind a weight: how steep it is in level and in gradient, and what it is called."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from anyinit._core.field import GRID, Nodes, Signal, expect
from anyinit._core.named import BUILTINS
from anyinit._core.profile import activation_profile
from anyinit._core.registry import registered_activations
from anyinit._solve.analytic import Decision, Solver
from anyinit.errors import ActivationError

SAME = 1e-9  # largest relative difference of two functions that are taken for one
_NAMED = {name for b in BUILTINS for name in (b.name, *b.aliases)}


@dataclass(frozen=True, slots=True)
class Bend:
    """One region: ``chi = d log E f^2 / d log q``, ``chi_1 = q E f'^2 / E f^2`` (None where the region mixes in
    other activations) and the function's name."""

    chi: float | None
    chi_1: float | None
    name: str


def bends(solver: Solver) -> dict[int, Bend]:
    """The regions of all contracted weights, by weight leaf."""
    known: dict[tuple[object, ...], str] = {}
    out: dict[int, Bend] = {}
    for leaf, d in solver.decisions.items():
        if d.node is not None and d.region is not None:
            out[leaf] = Bend(*_slopes(solver, d), _name(solver, d, known))
    return out


def _slopes(solver: Solver, d: Decision) -> tuple[float | None, float | None]:
    """Slopes at a Gaussian argument of the predicted level: what one sample sees (Schoenholz et al. 2017). Samples of
    different levels, which make the predicted marginal heavy-tailed, do not enter."""
    assert d.node is not None and d.region is not None
    signals = solver.walk.signals
    at = solver.graph.nodes[d.node].output
    start, end = signals[at], signals[d.region.end]
    if d.region.curved and start.nodes.ndim == 1 and not start.affine():
        mean = start.mean
        start = start.but(nodes=mean + math.sqrt(max(start.m2 - mean * mean, 0.0)) * GRID)
        end = solver.levels.replay(start, at, d.region)
    source, share = end.sources.get(at), 1.0
    if source is None and d.region.output in end.sources:  # biases carry the rest of the level
        source, share = end.sources[d.region.output], start.m2 / max(signals[d.region.output].m2, 1e-300)
    if source is None or end.m2 <= 0 or start.m2 <= 0:
        return None, None
    return _ratios(end, source.nodes, source.deriv, start.m2, share, paired=d.style.mirrored in {"rows", "both"})


def _ratios(
    end: Signal, argument: Nodes, deriv: Nodes, level: float, share: float, *, paired: bool
) -> tuple[float | None, float | None]:
    """Both slopes; of the odd part where the next weight reads sign pairs as differences."""
    nodes = end.nodes
    if paired and nodes.ndim == 1 and deriv.ndim == 1:
        nodes, deriv = 0.5 * (nodes - nodes[::-1]), 0.5 * (deriv + deriv[::-1])
    square = expect(np.asarray(nodes * nodes))
    if square <= 0:
        return None, None
    chi = share * expect(np.asarray(nodes * deriv * argument)) / square
    steep = expect(np.asarray(np.broadcast_to(deriv * deriv, nodes.shape)))
    return float(chi), float(steep * level / square)


def _name(solver: Solver, d: Decision, known: dict[tuple[object, ...], str]) -> str:
    """The registered name of the function, else the operations it is made of."""
    assert d.region is not None
    words = d.region.words
    made_of = " ".join(words)
    start, end = (solver.walk.signals[v] for v in (d.region.output, d.region.end))
    if not words or (len(words) == 1 and words[0] in _NAMED) or end.keys != start.keys or start.nodes.ndim != 1:
        return made_of
    key = (words, start.nodes.tobytes(), end.nodes.tobytes())
    if key not in known:
        same = (name for name, values in _values(start.nodes) if _equal(values, end.nodes))
        known[key] = next(same, made_of)
    return known[key]


def _equal(values: Nodes, nodes: Nodes) -> bool:
    return values.shape == nodes.shape and bool(np.max(np.abs(values - nodes)) <= SAME * (1 + np.max(np.abs(nodes))))


def _values(x: Nodes) -> Iterator[tuple[str, Nodes]]:
    """Every activation that has a name, the caller's own first, at ``x``."""
    for name in sorted(registered_activations(), key=lambda n: (n in _NAMED, n)):
        try:
            yield name, activation_profile(name)(x)
        except ActivationError:  # needs parameters, or is no elementwise function: it cannot be this one
            continue


__all__ = ["Bend", "bends"]

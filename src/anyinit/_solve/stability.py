"""What the product of slopes along an un-normalized path means, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from anyinit._core.profile import HELD_GRADIENT, HELD_LEVEL
from anyinit._graph.ops import Contract, Normalize, Softmax
from anyinit._solve.analytic import Solver
from anyinit._solve.bends import Bend
from anyinit._solve.plan import Stability

BENIGN = 2.0  # growth of a relative error of the level that needs no words
SHOWN = 16  # paths reported


@dataclass(frozen=True, slots=True)
class Trail:
    """An un-normalized path so far: logs of the products of chi and chi_1, its weights and its functions."""

    chi: float = 0.0
    chi_1: float = 0.0
    leaves: tuple[int, ...] = ()
    words: tuple[str, ...] = ()

    def through(self, bend: Bend) -> Trail:
        """The path behind one more region; a region without slopes of its own counts as straight."""
        chi, chi_1 = (math.log(max(1.0 if v is None else v, 1e-12)) for v in (bend.chi, bend.chi_1))
        words = (*self.words, bend.name) if bend.name else self.words
        return Trail(self.chi + chi, self.chi_1 + chi_1, self.leaves, words)


def trails(solver: Solver, behind: Mapping[int, Bend]) -> tuple[Stability, ...]:
    """Records of every kind of instability of each maximal path of two or more weights."""
    placed = [d for d in solver.decisions.values() if d.node is not None and d.region is not None]
    starts = {d.node: d.leaf for d in placed}
    ends = {d.region.end: behind[d.leaf] for d in placed if d.region is not None}
    at: dict[int, Trail] = {}
    found: dict[tuple[int, ...], Trail] = {}
    for position, node in enumerate(solver.graph.nodes):
        if isinstance(node.op, (Normalize, Softmax)):
            continue
        trail = max((at[i] for i in node.inputs if i in at), key=lambda t: len(t.leaves), default=Trail())
        residual = solver.streams.residuals.get(position)
        if residual is not None:
            trail = _merged(solver, residual.skip, residual.branch, at)
        if isinstance(node.op, Contract) and position in starts:
            trail = Trail(trail.chi, trail.chi_1, (*trail.leaves, starts[position]), trail.words)
        if node.output in ends and trail.leaves:
            trail = trail.through(ends[node.output])
        if trail.leaves:
            at[node.output] = found[trail.leaves] = trail
    prefixes = {leaves[:k] for leaves in found for k in range(1, len(leaves))}
    longest = [t for leaves, t in found.items() if len(leaves) >= 2 and leaves not in prefixes and t.words]
    longest.sort(key=lambda t: -len(t.leaves))
    return tuple(r for t in longest[:SHOWN] for r in _records(solver, t))


def _merged(solver: Solver, skip: int, branch: int, at: Mapping[int, Trail]) -> Trail:
    """A residual sum: each operand's slope counts by its share of the level."""
    signals = solver.walk.signals
    one, two = at.get(skip, Trail()), at.get(branch, Trail())
    w = signals[skip].m2 / (signals[skip].m2 + signals[branch].m2 or 1.0)
    longer = one if len(one.leaves) >= len(two.leaves) else two
    return Trail(w * one.chi + (1 - w) * two.chi, w * one.chi_1 + (1 - w) * two.chi_1, longer.leaves, longer.words)


def _records(solver: Solver, trail: Trail) -> list[Stability]:
    names = tuple(solver.graph.leaves[i].name for i in trail.leaves)
    depth = len(trail.words)
    word = max(dict.fromkeys(trail.words), key=trail.words.count)
    level, gradient = (math.exp(max(min(v, 700), -700)) for v in (trail.chi, trail.chi_1))
    chi, chi_1 = math.exp(trail.chi / depth), math.exp(trail.chi_1 / depth)
    text = _level_text(word, depth, chi, level)
    held = 1 / HELD_GRADIENT <= gradient <= HELD_GRADIENT
    kind = "gradient" if gradient >= 1 else "vanishing gradient"
    return [
        Stability("level", word, names, depth, chi, level, level <= HELD_LEVEL, text),
        Stability(
            kind, word, names, depth, chi_1, gradient, held, "" if held else _steep(word, depth, chi_1, gradient)
        ),
    ]


def _layers(depth: int) -> str:
    return "in one layer" if depth == 1 else f"at each of {depth} layers"


def _level_text(word: str, depth: int, chi: float, product: float) -> str:
    if product <= BENIGN:
        return ""
    times = f"{_layers(depth)}, {product:.3g} times in all"
    fact = f"{word}: chi = {chi:.3g} multiplies any relative error of the level {times}"
    if product <= HELD_LEVEL:
        return f"{fact}: usable at this depth, but do not go much deeper without a normalization."
    return (
        f"{fact}. No choice of scale mends that: normalize between layers (LayerNorm, RMSNorm, BatchNorm), "
        "add residual connections, or use an activation of degree one."
    )


def _steep(word: str, depth: int, chi_1: float, product: float) -> str:
    side = "grows" if product > 1 else "shrinks"
    return (
        f"{word}: chi_1 = {chi_1:.3g} {_layers(depth)}, so the gradient at the first layer {side} to {product:.3g} "
        "times that at the last. Move the level towards the edge of chaos, shorten the path, or add normalization "
        "or residual connections."
    )

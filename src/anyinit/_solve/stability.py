"""What the product of slopes along an un-normalized path means, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from anyinit._core.tables import Table
from anyinit._graph.ops import Contract, Normalize, Softmax
from anyinit._solve.plan import Stability

HELD_LEVEL = 100.0  # growth of a relative error of the level that a depth may have
HELD_GRADIENT = 10**2.2  # ratio of gradients over a path that still trains (measured on a benchmark)


@dataclass(frozen=True, slots=True)
class Trail:
    """An un-normalized path so far: logs of the products of chi and chi_1, and its weights."""

    chi: float = 0.0
    chi_1: float = 0.0
    leaves: tuple[int, ...] = ()
    words: tuple[str, ...] = ()


def trails(solver: object, grads: Mapping[int, Table]) -> tuple[Stability, ...]:
    """One record for each kind of instability of each maximal path of two or more weights."""
    from anyinit._solve.analytic import Solver

    assert isinstance(solver, Solver)
    found: dict[tuple[int, ...], Trail] = {}
    at: dict[int, Trail] = {}
    pending: dict[int, tuple[int, float, float, str]] = {}
    for d in solver.decisions.values():
        if d.node is not None and d.region is not None:
            start = solver.graph.nodes[d.node].output
            from anyinit._solve.build import slopes

            chi, chi_1 = slopes(
                solver.walk.signals[start],
                start,
                solver.walk.signals[d.region.end],
                paired=d.style.mirrored in {"rows", "both"},
            )
            pending[d.region.end] = (
                start,
                chi if chi is not None else 1.0,
                chi_1 if chi_1 is not None else 1.0,
                " ".join(d.region.words),
            )
    by_node = {d.node: d.leaf for d in solver.decisions.values() if d.node is not None and d.region is not None}
    for position, node in enumerate(solver.graph.nodes):
        known = [(i, at[i]) for i in node.inputs if i in at]
        if isinstance(node.op, (Normalize, Softmax)):
            continue
        trail = max((t for _, t in known), key=lambda t: len(t.leaves), default=Trail())
        residual = solver.streams.residuals.get(position)
        if residual is not None:
            trail = _merged(solver, residual.skip, residual.branch, at)
        if isinstance(node.op, Contract) and position in by_node:
            trail = Trail(trail.chi, trail.chi_1, (*trail.leaves, by_node[position]), trail.words)
        if node.output in pending and trail.leaves:
            _, chi, chi_1, words = pending[node.output]
            trail = Trail(
                trail.chi + math.log(max(chi, 1e-12)),
                trail.chi_1 + math.log(max(chi_1, 1e-12)),
                trail.leaves,
                (*trail.words, words) if words else trail.words,
            )
        if trail.leaves:
            at[node.output] = trail
            found[trail.leaves] = trail
    prefixes = {leaves[:k] for leaves in found for k in range(1, len(leaves))}
    longest = [t for leaves, t in found.items() if len(leaves) >= 2 and leaves not in prefixes and t.words]
    longest.sort(key=lambda t: -len(t.leaves))
    return tuple(r for t in longest[:16] for r in _records(solver, t))


def _merged(solver: object, skip: int, branch: int, at: dict[int, Trail]) -> Trail:
    """A residual sum: each operand's slope counts by its share of the level."""
    signals = solver.walk.signals  # type: ignore[attr-defined]
    one, two = at.get(skip, Trail()), at.get(branch, Trail())
    total = signals[skip].m2 + signals[branch].m2 or 1.0
    w = signals[skip].m2 / total
    longer = one if len(one.leaves) >= len(two.leaves) else two
    return Trail(w * one.chi + (1 - w) * two.chi, w * one.chi_1 + (1 - w) * two.chi_1, longer.leaves, longer.words)


def _records(solver: object, trail: Trail) -> list[Stability]:
    names = tuple(solver.graph.leaves[i].name for i in trail.leaves)  # type: ignore[attr-defined]
    depth = len(trail.words)
    word = max(set(trail.words), key=trail.words.count)
    level, gradient = math.exp(min(trail.chi, 700)), math.exp(max(min(trail.chi_1, 700), -700))
    chi, chi_1 = math.exp(trail.chi / depth), math.exp(trail.chi_1 / depth)
    out = [
        Stability("level", word, names, depth, chi, level, level <= HELD_LEVEL, _level_text(word, depth, chi, level))
    ]
    held = 1 / HELD_GRADIENT <= gradient <= HELD_GRADIENT
    kind = "gradient" if gradient >= 1 else "vanishing gradient"
    out.append(Stability(kind, word, names, depth, chi_1, gradient, held, _gradient_text(word, depth, chi_1, gradient)))
    return out


def _level_text(word: str, depth: int, chi: float, product: float) -> str:
    if product <= 2 and chi < 1.05:
        return ""
    if product <= HELD_LEVEL:
        return (
            f"{word}: chi = {chi:.3g} multiplies any relative error of the level at each of {depth} layers, {product:.3g} times in all: usable at this depth, "
            "but do not go much deeper without a normalization."
        )
    return (
        f"{word}: chi = {chi:.3g} multiplies any relative error of the level at each of {depth} layers, {product:.3g} times in all. No choice of scale mends that: "
        "normalize between layers (LayerNorm, RMSNorm, BatchNorm), add residual connections, or use an activation of degree one."
    )


def _gradient_text(word: str, depth: int, chi_1: float, product: float) -> str:
    if 1 / HELD_GRADIENT <= product <= HELD_GRADIENT:
        return ""
    side = "grows" if product > 1 else "shrinks"
    return (
        f"{word}: chi_1 = {chi_1:.3g} for each of {depth} layers, so the gradient at the first layer {side} to {product:.3g} times that at the last. "
        "Move the level towards the edge of chaos, shorten the path, or add normalization or residual connections."
    )

"""From decisions and walks to a :class:`Plan`: every prediction of every weight, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anyinit._core.field import Signal, expect
from anyinit._core.tables import Table
from anyinit._graph.graph import Leaf
from anyinit._graph.ops import Contract, Op, Opaque, Permute, Reshape, Slice
from anyinit._solve.analytic import Decision, Solver
from anyinit._solve.backward import gradients
from anyinit._solve.plan import Draw, Part, Plan, Weight
from anyinit._solve.stability import trails

DRAWN = {"weight", "shared weight", "recurrent", "tied table", "table", "position table", "position", "token"}


def build(solver: Solver, seed: int, kept: Mapping[str, str], options: tuple[tuple[str, str], ...] = ()) -> Plan:
    """The plan of a solved graph."""
    graph, walk = solver.graph, solver.walk
    grads = gradients(graph, walk)
    weights: list[Weight] = []
    unscaled: list[tuple[str, str]] = []
    order = {leaf: at for at, leaf in enumerate(_canonical(solver))}
    for i, leaf in graph.params():
        shape = graph.values[i].shape
        part, reason = _part(solver, i, leaf, grads, order.get(i, len(order)), kept)
        if reason:
            unscaled.append((leaf.name, reason))
        part = replace(part, label=leaf.part, draw=replace(part.draw, view=leaf.view + part.draw.view))
        known = next((k for k, w in enumerate(weights) if w.name == leaf.name), None) if leaf.part else None
        if known is None:
            weights.append(Weight(leaf.name, leaf.whole or shape, leaf.dtype, leaf.aliases, (part,)))
        else:
            weights[known] = replace(weights[known], parts=(*weights[known].parts, part))
    unscaled += [(name, "never used in this run") for name in graph.unused]
    opaque = tuple((n.op.call, n.scope, n.op.why) for n in graph.nodes if isinstance(n.op, Opaque))
    return Plan(
        seed=seed,
        weights=tuple(weights),
        stability=trails(solver, grads),
        unscaled=tuple(unscaled),
        opaque=opaque,
        assumptions=_assumptions(solver),
        warnings=_warnings(solver, weights),
        notes=graph.notes,
        options=options,
    )


def _canonical(solver: Solver) -> list[int]:
    """Leaves in order of first use: the position that keys a draw."""
    seen: dict[int, None] = {}
    for node in solver.graph.nodes:
        for i in node.inputs:
            if i in solver.uses.origin and node.output in solver.uses.live:
                for leaf in solver.uses.roots(i):
                    if leaf in solver.decisions and solver.decisions[leaf].role in DRAWN:
                        seen.setdefault(leaf)
    biases = [leaf for leaf, d in solver.decisions.items() if d.role == "bias" and d.std > 0]
    return [*seen, *biases]


def _part(
    solver: Solver, i: int, leaf: Leaf, grads: Mapping[int, Table], key: int, kept: Mapping[str, str]
) -> tuple[Part, str]:
    decision = solver.decisions.get(i)
    grad = float(grads[i][0]) if i in grads else None
    if decision is None:
        reason = kept.get(leaf.name) or _reason(solver, i)
        role = "kept" if i in solver.uses.uses or leaf.name in kept else "unused"
        return Part(role=role, draw=Draw(distribution="keep"), predicted_grad=grad, why=reason), reason
    if decision.role == "bias" and decision.std > 0:
        return _bias(solver, decision, grad, key), ""
    if decision.role not in DRAWN:
        value = 1.0 if decision.role == "gain" else 0.0
        draw = Draw(outs=tuple(range(len(solver.graph.values[i].shape))), distribution="constant", value=value)
        return Part(role=decision.role, draw=draw, predicted_grad=grad, why=decision.why), ""
    if decision.region is None:
        return _table(solver, decision, grad, key), ""
    return _weight(solver, decision, grad, key), ""


def _bias(solver: Solver, d: Decision, grad: float | None, key: int) -> Part:
    shape = solver.graph.values[d.leaf].shape
    distribution = "uniform" if d.style.phase else "normal"
    draw = Draw(outs=tuple(range(len(shape))), distribution=distribution, std=d.std, key=key)
    return Part(role="bias", draw=draw, predicted_grad=grad, why=d.why)


def _reason(solver: Solver, i: int) -> str:
    roles = sorted({solver.uses.role(u) for u in solver.uses.uses.get(i, ())})
    if not roles:
        return "never meets data in this run"
    words = {"slope": "a slope of an activation keeps its value", "gain": "a scalar multiplier keeps its value"}
    return words.get(roles[0], f"used as {roles[0]}: keeps its value")


def _table(solver: Solver, d: Decision, grad: float | None, key: int) -> Part:
    shape = solver.graph.values[d.leaf].shape
    draw = Draw(outs=(0,) if shape else (), ins=tuple(range(1, len(shape))), distribution="normal", std=d.std, key=key)
    return Part(
        role=d.role, fan=1, fan_out=shape[-1] if shape else 1, draw=draw, target=d.std**2, predicted=d.std**2,
        predicted_output=d.std**2, band=None, predicted_grad=grad, why=d.why, flags=d.flags,
    )  # fmt: skip


def _weight(solver: Solver, d: Decision, grad: float | None, key: int) -> Part:
    assert d.node is not None and d.region is not None
    node = solver.graph.nodes[d.node]
    walk = solver.walk
    start, end, output = (walk.signals[v] for v in (node.output, d.region.end, d.region.output))
    chi, chi_1 = slopes(start, node.output, end, paired=d.style.mirrored in {"rows", "both"})
    view, groups, outs, ins = canonical_layout(solver, d)
    distribution = solver.drawn(d)
    flags = d.flags
    fan_out = solver.fan_out(node, d.use.slot)
    if fan_out < 16:
        flags = (*flags, "small fan-out: uncertain")
    return Part(
        role=d.role, activation=" ".join(d.region.words), path=" -> ".join(solver.uses.feeds(d.region.output)),
        fan=d.fan, fan_out=fan_out,
        draw=Draw(view, groups, outs, ins, distribution, d.std, 0.0, key, mirrored=d.style.mirrored),
        target=d.target, predicted=end.m2, band=walk.band(end), predicted_output=output.m2,
        output_band=walk.band(output), predicted_grad=grad, chi=chi, chi_1=chi_1, why=d.why, flags=flags,
    )  # fmt: skip


def slopes(start: Signal, at: int, end: Signal, *, paired: bool = False) -> tuple[float | None, float | None]:
    """``chi = d log E f^2 / d log q`` and ``chi_1 = q E f'^2 / E f^2`` of the region after a weight; where the
    next weight reads sign pairs as differences, of the odd part."""
    source = end.sources.get(at)
    if source is None or end.m2 <= 0 or start.m2 <= 0:
        return None, None
    nodes, deriv = end.nodes, source.deriv
    if paired and nodes.ndim == 1 and deriv.ndim == 1:
        nodes, deriv = 0.5 * (nodes - nodes[::-1]), 0.5 * (deriv + deriv[::-1])
    level = expect(np.asarray(nodes * nodes))
    if level <= 0:
        return None, None
    chi = expect(np.asarray(nodes * deriv * source.nodes)) / level
    square = np.broadcast_to(deriv * deriv, nodes.shape)
    return float(chi), float(expect(np.asarray(square)) * start.m2 / level)


def canonical_layout(
    solver: Solver, d: Decision
) -> tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """View steps from the leaf to its use, and which of its dimensions are groups, outs and ins."""
    assert d.node is not None
    node = solver.graph.nodes[d.node]
    op = node.op
    assert isinstance(op, Contract)
    labels, others = (op.b, op.a) if d.use.slot else (op.a, op.b)
    taps = [w.tap if d.use.slot else w.a for w in op.windows]
    steps = _steps(d.use.view) if d.use.pure else None
    leaf_shape = solver.graph.values[d.leaf].shape
    if steps is None:
        if leaf_shape != solver.graph.values[d.use.value].shape:
            return (), (), (0,) if leaf_shape else (), tuple(range(1, len(leaf_shape)))
        steps = ()
    at = {lab: k for k, lab in enumerate(labels)}
    groups = tuple(at[lab] for lab in op.out if lab in at and lab in others)
    outs = tuple(at[lab] for lab in op.out if lab in at and lab not in others)
    ins = tuple(at[lab] for lab in others if lab in at and lab not in op.out)
    if d.role == "recurrent" and not groups and not taps and len(outs) == len(ins) == 1:
        gates = _gates(solver.graph.values[d.use.value].shape, outs[0], ins[0])
        if gates is not None:
            return (*steps, ("reshape", gates)), (outs[0],), (outs[0] + 1,), (ins[0] + (ins[0] > outs[0]),)
    return steps, groups, outs, ins + tuple(at[t] for t in taps)


def _gates(shape: tuple[int, ...], out: int, into: int) -> tuple[int, ...] | None:
    """A recurrent weight whose rows are several states long holds one square block for each gate."""
    count, rest = divmod(shape[out], shape[into])
    if rest or count < 2:
        return None
    return (*shape[:out], count, shape[into], *shape[out + 1 :])


def _steps(view: tuple[Op, ...]) -> tuple[Any, ...] | None:
    steps: list[tuple[Any, ...]] = []
    for op in view:
        if isinstance(op, Reshape):
            steps.append(("reshape", op.shape))
        elif isinstance(op, Permute):
            steps.append(("permute", op.order))
        elif isinstance(op, Slice):
            steps.append(("slice", op.dim, op.start, op.stop, op.step))
        else:
            return None
    return tuple(steps)


def _assumptions(solver: Solver) -> tuple[str, ...]:
    out: list[str] = []
    if any("unreachable" in d.flags for d in solver.decisions.values()):
        names = [solver.graph.leaves[d.leaf].name for d in solver.decisions.values() if "unreachable" in d.flags]
        out.append(
            f"second moment {solver.target:g} cannot be reached after the activation of {_few(names)}; unit variance before it instead"
        )
    return tuple(out)


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _warnings(solver: Solver, weights: list[Weight]) -> tuple[str, ...]:
    out = list(dict.fromkeys(solver.walk.silent))
    bad = [
        w.name
        for w in weights
        for p in w.parts
        if p.predicted_output is not None and not math.isfinite(p.predicted_output)
    ]
    if bad:
        out.append(f"no finite prediction for {_few(bad)}")
    return tuple(out)

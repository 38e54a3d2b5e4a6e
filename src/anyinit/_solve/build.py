"""From decisions and walks to a :class:`Plan`: every prediction of every weight, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anyinit._core.tables import Table
from anyinit._graph.graph import Leaf
from anyinit._graph.ops import Contract, Lookup, Op, Opaque, Permute, Reshape, Slice
from anyinit._solve import because
from anyinit._solve.analytic import Decision, Solver
from anyinit._solve.backward import gradients
from anyinit._solve.bends import Bend, bends
from anyinit._solve.fans import fan_out
from anyinit._solve.given import Given
from anyinit._solve.plan import Draw, Part, Plan, Weight
from anyinit._solve.regions import region
from anyinit._solve.stability import trails

DIGITS = 9
"""Significant digits of a scale: more than float32 holds, fewer than the order of a sum can change."""
DRAWN = {"weight", "shared weight", "recurrent", "tied table", "table", "position table", "position", "token"}


def build(
    solver: Solver,
    seed: int,
    kept: Mapping[str, str],
    options: tuple[tuple[str, str], ...] = (),
    fixed: Mapping[str, Given] | None = None,
) -> Plan:
    """The plan of a solved graph. ``kept``: parameters left alone, with the reason; ``fixed``: given by the caller."""
    fixed = fixed or {}
    graph, walk = solver.graph, solver.walk
    grads = gradients(graph, walk)
    behind = bends(solver)
    weights: list[Weight] = []
    places: dict[str, int] = {}
    unscaled: list[tuple[str, str]] = []
    order = {leaf: at for at, leaf in enumerate(_canonical(solver, fixed))}
    for i, leaf in _by_use(solver):
        shape = graph.values[i].shape
        key = order.get(i, len(order))
        if leaf.name in fixed:
            part, reason = fixed[leaf.name].part(shape, key, float(grads[i][0]) if i in grads else None), ""
        else:
            part, reason = _part(solver, i, leaf, grads, key, kept, behind)
        if reason:
            unscaled.append((leaf.name, reason))
        part = replace(part, label=leaf.part, draw=replace(part.draw, view=leaf.view + part.draw.view))
        known = places.get(leaf.name) if leaf.part else None
        if known is None:
            places.setdefault(leaf.name, len(weights))
            weights.append(Weight(leaf.name, leaf.whole or shape, leaf.dtype, leaf.aliases, (part,)))
        else:
            weights[known] = replace(weights[known], parts=(*weights[known].parts, part))
    unscaled += [(name, "never used in this run") for name in graph.unused]
    opaque = tuple((n.op.call, n.scope, n.op.why) for n in graph.nodes if isinstance(n.op, Opaque))
    return Plan(
        seed=seed,
        weights=tuple(weights),
        stability=trails(solver, behind),
        unscaled=tuple(unscaled),
        opaque=opaque,
        assumptions=_assumptions(solver),
        warnings=_warnings(solver, weights),
        notes=graph.notes,
        options=options,
    )


def _by_use(solver: Solver) -> list[tuple[int, Leaf]]:
    """Parameters in order of their first use, parts of one together, those of no use last."""
    first: dict[str, int] = {}
    for at, i in enumerate(solver.uses.uses):
        first.setdefault(solver.graph.leaves[i].name, at)
    last = len(solver.uses.uses)
    return sorted(solver.graph.params(), key=lambda p: (first.get(p[1].name, last), p[0]))


def _canonical(solver: Solver, fixed: Mapping[str, Given]) -> list[int]:
    """Leaves in order of first use: the position that keys a draw."""
    seen: dict[int, None] = {}
    for node in solver.graph.nodes:
        for i in node.inputs:
            if i in solver.uses.origin and node.output in solver.uses.live:
                for leaf in solver.uses.roots(i):
                    if leaf in solver.decisions and solver.decisions[leaf].role in DRAWN:
                        seen.setdefault(leaf)
    biases = [leaf for leaf, d in solver.decisions.items() if d.role == "bias" and d.std > 0]
    given = [i for i, leaf in _by_use(solver) if leaf.name in fixed]
    aside = [leaf for leaf, d in solver.decisions.items() if d.role in DRAWN and leaf not in seen]
    return list(dict.fromkeys([*seen, *biases, *given, *aside]))


def _part(
    solver: Solver,
    i: int,
    leaf: Leaf,
    grads: Mapping[int, Table],
    key: int,
    kept: Mapping[str, str],
    behind: Mapping[int, Bend],
) -> tuple[Part, str]:
    decision = solver.decisions.get(i)
    grad = float(grads[i][0]) if i in grads else None
    if decision is None:
        why, meant = _reason(solver, i)
        why = kept.get(leaf.name, why)
        role = "kept" if i in solver.uses.uses or leaf.name in kept else "unused"
        part = Part(role=role, draw=Draw(distribution="keep"), predicted_grad=grad, why=why)
        return part, "" if meant and leaf.name not in kept else why
    if decision.role == "bias" and decision.std > 0:
        return _bias(solver, decision, grad, key), ""
    if decision.role not in DRAWN:
        outs = tuple(range(len(solver.graph.values[i].shape)))
        draw = Draw(outs=outs, distribution="constant", value=decision.value)
        source = because.of_constant(decision.role)
        return Part(role=decision.role, draw=draw, predicted_grad=grad, why=decision.why, source=source), ""
    if decision.region is None:
        return _table(solver, decision, grad, key), ""
    return _weight(solver, decision, behind[i], grad, key), ""


def _bias(solver: Solver, d: Decision, grad: float | None, key: int) -> Part:
    shape = solver.graph.values[d.leaf].shape
    distribution = "uniform" if d.style.phase else "normal"
    draw = Draw(outs=tuple(range(len(shape))), distribution=distribution, std=_rounded(d.std), key=key)
    terms, source = because.of_bias(d)
    return Part(role="bias", draw=draw, predicted_grad=grad, why=d.why, terms=terms, source=source)


def _rounded(std: float) -> float:
    """A scale to :data:`DIGITS` digits, so that two frameworks' graphs of one network give the same bytes."""
    return float(f"{std:.{DIGITS}g}")


MEANT = {
    "gain": "a scalar multiplier keeps its value",
    "shape": "a parameter of an elementwise function keeps its value",
    "slope": "a slope of an activation keeps its value",
}
"""Roles whose parameters keep their value by design, with the reason; that is no failure to set them."""


def _reason(solver: Solver, i: int) -> tuple[str, bool]:
    """Why a parameter is not set, and whether that is by design."""
    roles = sorted({solver.uses.role(u) for u in solver.uses.uses.get(i, ())})
    if not roles:
        return "never meets data in this run", False
    known = next((r for r in roles if r in MEANT), "")
    return MEANT.get(known, f"used as {roles[0]}: keeps its value"), all(r in MEANT or r == "bias" for r in roles)


def _table(solver: Solver, d: Decision, grad: float | None, key: int) -> Part:
    shape = solver.graph.values[d.leaf].shape
    usual = "normal" if solver.distribution in {"auto", "orthogonal"} else solver.distribution
    usual = usual if solver.roles.get(d.role, "auto") == "auto" else solver.roles[d.role]
    distribution = str(solver.override(solver.graph.leaves[d.leaf].name).get("distribution", usual))
    draw = Draw((), (), (0,) if shape else (), tuple(range(1, len(shape))), distribution, _rounded(d.std), key=key)
    terms, source = because.of_table(solver, d)
    return Part(
        role=d.role, fan=max(d.fan, 1), fan_out=shape[-1] if shape else 1, draw=draw, target=d.std**2,
        predicted=d.std**2, predicted_output=d.std**2 * _summarized(solver, d), band=None, predicted_grad=grad,
        why=d.why, flags=d.flags, terms=terms, source=source,
    )  # fmt: skip


def _summarized(solver: Solver, d: Decision) -> float:
    """Growth of the level of looked-up rows within the framework's own call: a bag is its rows' mean or sum."""
    node = solver.graph.nodes[d.use.node]
    if not isinstance(node.op, Lookup) or node.step < 0:
        return 1.0
    value = node.output
    while len(readers := solver.uses.consumers.get(value, ())) == 1:
        after = solver.graph.nodes[readers[0]]
        if after.step != node.step:
            break
        value = after.output
    first, last = (solver.walk.signals[v].m2 for v in (node.output, value))
    return last / first if first > 0 else 1.0


def _weight(solver: Solver, d: Decision, bend: Bend, grad: float | None, key: int) -> Part:
    assert d.node is not None and d.region is not None
    node = solver.graph.nodes[d.node]
    walk = solver.walk
    end = walk.signals[d.region.end]
    level, output_band = mean_output(solver, d)
    view, groups, outs, ins = canonical_layout(solver, d)
    distribution = solver.drawn(d)
    flags = d.flags
    rows = fan_out(solver.graph, node, d.use.slot)
    if rows < 16:
        flags = (*flags, "small fan-out: uncertain")
    if because.behind_opaque(solver, d):
        flags = (*flags, because.BEHIND)
    terms, source = because.of_weight(solver, d)
    return Part(
        role=d.role, activation=bend.name, path=" -> ".join(solver.uses.feeds(d.region.output)),
        fan=d.fan, fan_out=rows,
        draw=Draw(view, groups, outs, ins, distribution, _rounded(d.std), 0.0, key, mirrored=d.style.mirrored),
        target=d.target, predicted=end.m2, band=walk.band(end), predicted_output=level,
        output_band=output_band, predicted_grad=grad, chi=bend.chi, chi_1=bend.chi_1, why=d.why, flags=flags,
        terms=terms, source=source,
    )  # fmt: skip


def mean_output(solver: Solver, d: Decision) -> tuple[float, tuple[float, float]]:
    """Level and band at a weight's own output: the mean over its applications, the band of the first one's width."""
    walk = solver.walk
    places = applications(solver, d)
    level = sum(walk.signals[v].m2 for v in places) / len(places)
    widest = max((walk.signals[v] for v in places), key=lambda s: s.m2)
    low, high = walk.band(widest)
    scale = level / widest.m2 if widest.m2 > 0 else 1.0
    return level, (low * scale, high * scale)


def applications(solver: Solver, d: Decision) -> tuple[int, ...]:
    """Outputs, biases included, of every operation that applies a weight to data; the deciding one first."""
    first = entered(solver, d)
    assert d.region is not None
    if first != d.region.output:
        return (first,)
    nodes = [solver.graph.nodes[u.node] for u in solver.uses.applied(d.leaf) if u.node != d.node]
    others = (region(solver.uses, n.output).output for n in nodes if n.output in solver.uses.live)
    return tuple(dict.fromkeys((first, *others)))


def entered(solver: Solver, d: Decision) -> int:
    """Output of the operation a weight itself enters: a table may be projected before it meets any data."""
    assert d.region is not None
    for node in solver.uses.made_of.get(d.leaf, ()):
        if isinstance(node.op, Contract):
            origins = (solver.uses.origin.get(i) for i in node.inputs)
            if any(o is not None and o[0] == d.leaf and o[2] for o in origins):
                return node.output
    return d.region.output


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
            f"second moment {solver.target:g} cannot be reached after the activation of {_few(names)}; "
            "unit variance before it instead"
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

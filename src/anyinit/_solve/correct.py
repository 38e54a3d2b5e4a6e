"""Correcting and measuring one draw: the drawn network is run once, each layer settled before the next.

A factor is computed in float64 from the layer's own output on real input, so that the level where
the target is enforced comes out as planned (Mishkin & Matas 2016, here after the activation and in
graph order, not by layer class); factors are kept in the plan, so the draw replays exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anyinit._core.roots import crossing
from anyinit._graph.graph import Graph
from anyinit._graph.ops import Permute, Pointwise, Reshape
from anyinit._graph.runtime import Runtime
from anyinit._rules.pointwise import evaluate
from anyinit._solve.analytic import Decision, Solver
from anyinit._solve.build import applications
from anyinit._solve.plan import Part, Plan, Weight
from anyinit._solve.roles import Uses

Array = NDArray[np.generic]
NOISE = 0.03  # variance of the log level that a layer may inherit before the draw is corrected
SPREAD = 0.003  # variance of the log level of one draw above which a plain chain is corrected
GROWTH = 2.0  # product of chi along an un-normalized path above which it is corrected
EXTREME = 1e6  # a measured level this far from the planned one says that the batch carries no signal


@dataclass
class Measurement:
    """What one run of the drawn network showed, by weight leaf."""

    factor: dict[int, float] = field(default_factory=dict[int, float])
    output: dict[int, float] = field(default_factory=dict[int, float])
    end: dict[int, float] = field(default_factory=dict[int, float])
    dead: dict[int, float] = field(default_factory=dict[int, float])
    warnings: list[str] = field(default_factory=list[str])
    exact: bool = False  # whether the decisions' targets were enforced, not the planned levels


def needed(solver: Solver, plan: Plan) -> set[int]:
    """Weights of paths on which the noise of a draw grows: inherited noise or a product of slopes."""
    growing = any(s.kind == "level" and s.product > GROWTH for s in plan.stability)
    found: set[int] = set()
    for d in placed(solver):
        assert d.region is not None and d.node is not None
        signal = solver.walk.signals[d.region.output]
        inherited = sum(v * v * solver.walk.variance.get(k, 0.0) for k, v in signal.noise.items())
        plain = solver.depth[solver.graph.nodes[d.node].output] >= 4
        if (
            inherited > NOISE
            or (plain and solver.walk.spread(signal) > SPREAD)
            or (growing and solver.depth[solver.graph.nodes[d.node].output] >= 3)
        ):
            found.add(d.leaf)
    if not found:
        return set()
    return {
        d.leaf for d in placed(solver) if d.node is not None and solver.depth[solver.graph.nodes[d.node].output] >= 3
    } | found


def placed(solver: Solver) -> list[Decision]:
    """Decisions of contracted weights, in execution order."""
    out = [d for d in solver.decisions.values() if d.region is not None and d.node is not None]
    return sorted(out, key=lambda d: d.node or 0)


class Traced(Protocol):
    """A graph and how its values are used."""

    graph: Graph
    uses: Uses


def seen(solver: Traced, value: int) -> int:
    """The value itself, or the first recorded one that pure moves make of it."""
    first = solver.graph.observable
    for _ in range(6):
        readers = solver.uses.consumers.get(value, ())
        if first is None or value < first or len(readers) != 1:
            return value
        node = solver.graph.nodes[readers[0]]
        if not isinstance(node.op, (Reshape, Permute)):
            return value
        value = node.output
    return value


def square_mean(x: Array) -> float:
    """Mean square in float64."""
    return float(np.mean(np.square(np.abs(x).astype(np.float64))))


def run(
    solver: Solver, runtime: Runtime, weights: Mapping[str, Array], correct: set[int], *, exact: bool = False,
    progress: Callable[[int, int, str], None] | None = None, aim: Mapping[int, float] | None = None,
) -> Measurement:  # fmt: skip
    """Run the drawn network, correcting the leaves of ``correct`` and measuring all.

    exact: enforce the decision's target at the end of its region (empirical mode); otherwise the
    planned level there. aim: factors on these levels.
    """
    found = Measurement(exact=exact)
    outputs: dict[int, list[Decision]] = {}
    ends: dict[int, list[Decision]] = {}
    for d in placed(solver):
        assert d.region is not None
        outputs.setdefault(seen(solver, d.region.output), []).append(d)
        ends.setdefault(seen(solver, d.region.end), []).append(d)
    total = sum(len(v) for v in outputs.values())
    again: dict[int, list[Decision]] = {}
    for d in placed(solver):
        for value in applications(solver, d)[1:]:
            again.setdefault(seen(solver, value), []).append(d)
    later: dict[int, list[float]] = {}

    def visit(value: int, array: Array) -> Array | None:
        result: Array | None = None
        for d in outputs.get(value, ()):
            if d.leaf in found.output:
                continue
            if d.leaf in correct:
                s = _factor(solver, d, array, exact, found, (aim or {}).get(d.leaf, 1.0))
                if s != 1.0:
                    bias = _bias(solver, d, weights)
                    array = np.asarray((np.asarray(array) - bias) * s + bias, dtype=array.dtype)  # pyright: ignore[reportOperatorIssue]
                    result = array
                found.factor[d.leaf] = s
            found.output[d.leaf] = square_mean(array)
            if progress is not None:
                progress(len(found.output), total, solver.graph.leaves[d.leaf].name)
        for d in again.get(value, ()):
            later.setdefault(d.leaf, []).append(square_mean(array) * found.factor.get(d.leaf, 1.0) ** 2)
        for d in ends.get(value, ()):
            found.end.setdefault(d.leaf, square_mean(array))
            if d.region is not None and d.region.curved and array.ndim > 1:
                found.dead.setdefault(d.leaf, _dead(array))
        return result

    runtime.run(weights, set(outputs) | set(ends) | set(again), visit)
    for leaf, levels in later.items():
        if leaf in found.output:
            found.output[leaf] = (found.output[leaf] + sum(levels)) / (1 + len(levels))
    for d in placed(solver):
        if d.leaf not in found.output and d.leaf in correct:
            found.warnings.append(
                f"{solver.graph.leaves[d.leaf].name}: its output could not be observed, so it was not corrected"
            )
    return found


def _dead(array: Array) -> float:
    """Share of channels (last axis of matrices, second of images) that are zero for every sample."""
    axis = array.ndim - 1 if array.ndim <= 3 else 1
    others = tuple(i for i in range(array.ndim) if i != axis)
    return float(np.mean(np.all(array == 0, axis=others)))


def _bias(solver: Solver, d: Decision, weights: Mapping[str, Array]) -> NDArray[np.float64]:
    """What was added to the weight's own product at the observed value (zero biases: zero)."""
    assert d.region is not None and d.node is not None
    graph = solver.graph
    if seen(solver, d.region.output) != d.region.output:
        return np.zeros(())
    made = graph.nodes[solver.uses.producer[d.region.output]]
    if not isinstance(made.op, Pointwise) or made.op.fn != "add":
        return np.zeros(())
    for i in made.inputs:
        if i in solver.uses.origin:
            leaf = solver.uses.origin[i][0]
            values = solver.values(graph.leaves[leaf], weights.get(graph.leaves[leaf].name))
            if np.any(values) and values.size == math.prod(graph.values[i].shape):
                return np.asarray(values, dtype=np.float64).reshape(graph.values[i].shape)
    return np.zeros(())


def _factor(solver: Solver, d: Decision, array: Array, exact: bool, found: Measurement, aim: float) -> float:
    """Factor on the weight that gives the wanted level at the end of its region."""
    assert d.region is not None
    signals = solver.walk.signals
    name = solver.graph.leaves[d.leaf].name
    have = square_mean(array)
    want = signals[d.region.output].m2
    if have == 0 and want == 0:
        return 1.0  # a state that starts at zero
    limit = math.inf if exact else EXTREME
    if not math.isfinite(have) or have <= 0 or not 1 / limit < have / max(want, 1e-300) < limit:
        found.warnings.append(
            f"{name}: measured level {have:.3g} where {want:.3g} was planned; the batch carries no usable signal here, "
            "weight left as drawn"
        )
        return 1.0
    if d.style.std is not None or "std" in solver.override(name):
        return 1.0  # set by the input's coordinates or by the caller, not by a level
    if d.region.curved and d.target is not None:
        goal = d.target if exact else signals[d.region.end].m2
        s = _through_region(solver, d, array, goal * aim, math.sqrt(want / have))
        if s is not None:
            return s
    elif exact and d.target is not None and d.region.end == d.region.output:
        want = d.target
    return math.sqrt(want * aim / have)


def _through_region(solver: Solver, d: Decision, array: Array, goal: float, start: float) -> float | None:
    """Root of the logarithm of ``E f(s z)^2`` over the measured values (65,536 at most) near ``start``."""
    assert d.region is not None
    steps = _pointwise_steps(solver, d)
    if steps is None or np.iscomplexobj(array):
        return None
    z = np.asarray(array, dtype=np.float64).ravel()
    if z.size > 65536:
        z = z[:: z.size // 65536 + 1]
    whole = square_mean(array)
    z = z * math.sqrt(whole / max(float(np.mean(z * z)), 1e-300))

    output = d.region.output

    def excess(log_s: float) -> float:
        level = float(np.mean(np.square(_apply(steps, z * math.exp(log_s), output))))
        return math.log(max(level, 1e-300) / goal)

    middle = math.log(start)
    for reach in (0.1, 0.7, 3.0):
        low, high = middle - reach, middle + reach
        if excess(low) < 0 < excess(high):
            return math.exp(crossing(excess, low, high, 1e-7))
    return None


Steps = list[tuple[Pointwise, tuple[int, ...], int]]


def _pointwise_steps(solver: Solver, d: Decision) -> Steps | None:
    """The region as elementwise operations on one array; None when it holds anything else."""
    assert d.region is not None
    steps: Steps = []
    known = {d.region.output}
    started = d.region.output == solver.graph.nodes[d.node or 0].output
    for at in d.region.nodes:
        node = solver.graph.nodes[at]
        if not started:
            started = node.output == d.region.output
            continue
        if not isinstance(node.op, Pointwise) or not all(
            i in known or not solver.walk.signals[i].keys for i in node.inputs
        ):
            return None
        known.add(node.output)
        steps.append((node.op, tuple(i if i in known else -1 - i for i in node.inputs), node.output))
    return [(op, tuple(i for i in ins), out) for op, ins, out in _constants(solver, steps)]


def _constants(solver: Solver, steps: Steps) -> Steps:
    """Constant operands become scalar arguments."""
    out: Steps = []
    for op, ins, value in steps:
        args: list[float | None] = []
        it = iter(ins)
        live: list[int] = []
        for a in op.args:
            if a is not None:
                args.append(a)
                continue
            i = next(it)
            if i < 0:
                args.append(solver.walk.signals[-1 - i].mean)
            else:
                args.append(None)
                live.append(i)
        out.append((Pointwise(op.fn, tuple(args)), tuple(live), value))
    return out


def _apply(steps: Steps, z: NDArray[np.float64], start: int) -> NDArray[np.float64]:
    values = {start: z}
    last = z
    for op, ins, out in steps:
        last = evaluate(op, [values[i] for i in ins])
        values[out] = last
    return last


def record(plan: Plan, solver: Solver, found: Measurement, *, corrected: bool) -> Plan:
    """The plan with factors and measurements; corrected layers keep theory's value in ``planned``."""
    by_name = {
        (solver.graph.leaves[leaf].name, solver.graph.leaves[leaf].part): leaf for leaf in {*found.output, *found.end}
    }
    weights: list[Weight] = []
    for w in plan.weights:
        parts = tuple(
            _recorded(p, solver, by_name[w.name, p.label], found, corrected) if (w.name, p.label) in by_name else p
            for p in w.parts
        )
        weights.append(replace(w, parts=parts))
    dead = {n: found.dead[leaf] for (n, _), leaf in sorted(by_name.items()) if found.dead.get(leaf, 0.0) > 0.05}
    extra = [f"{share:.0%} of the units after {n} are zero for every sample of the batch" for n, share in dead.items()]
    return replace(plan, weights=tuple(weights), warnings=(*plan.warnings, *found.warnings, *extra))


def _recorded(part: Part, solver: Solver, leaf: int, found: Measurement, corrected: bool) -> Part:
    d = solver.decisions[leaf]
    assert d.region is not None
    end = found.end.get(leaf, found.output.get(leaf) if d.region.end == d.region.output else None)
    part = replace(part, measured=end, measured_output=found.output.get(leaf))
    if not corrected or leaf not in found.factor:
        return part
    s = found.factor[leaf]
    draw = replace(part.draw, factor=part.draw.factor * s)
    if end is None or part.predicted is None or part.predicted_output is None:
        return replace(part, draw=draw)
    settled = d.target if d.target is not None and (d.region.curved or found.exact) else part.predicted
    ratio = found.output[leaf]
    return replace(
        part, draw=draw, planned=part.predicted, predicted=settled, band=_tight(solver, d.region.end, settled),
        predicted_output=ratio, output_band=_tight(solver, d.region.output, ratio),
    )  # fmt: skip


def _tight(solver: Solver, value: int, level: float) -> tuple[float, float]:
    """Band of a corrected layer: what is left is the fluctuation of its own finite output."""
    v = math.log1p(solver.walk.signals[value].fluctuation())
    s = 1.6448536 * math.sqrt(v) + 0.02
    return level * math.exp(-s), level * math.exp(s)

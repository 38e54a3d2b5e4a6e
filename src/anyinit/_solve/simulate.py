"""Levels by simulation where theory is no guide: the recorded graph is run on numbers, forward and back.

The walk takes two values that do not share a latent field as independent. Where a weight is applied again and
again in time, and where products of several activations come from one source that nothing normalizes, they are
not: states of neighbouring steps correlate, and factors are large together. Such graphs, if small, are run in
NumPy on independent draws of the plan; means and spreads found there replace the predicted ones where they differ
by more than their own error. Neither the model's numbers nor the seed of the plan enter, so a plan remains a
function of the graph, the input and the options.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anyinit._graph.graph import COMPLEX, FLOAT
from anyinit._graph.interpret import MEANING, apply
from anyinit._graph.ops import Contract, Normalize, Op, Pointwise, Reduce, Softmax
from anyinit._graph.pullback import MOVERS, PULLBACK, pull_back
from anyinit._solve.analytic import Decision, Solver
from anyinit._solve.apply import materialize
from anyinit._solve.build import applications
from anyinit._solve.plan import Part, Plan
from anyinit._solve.propagate import Z95
from anyinit.errors import ConfigError

Array = NDArray[Any]
DRAWS = 32
DEGREE = 3  # factors of one source in a product from which on their common level counts
WORK = 1.0e7  # multiplications of one draw above which a graph is not simulated
NODES = 700
PRODUCTS = "activations of one source are multiplied with each other"
NOTE = (
    "levels and gradients are means over {draws} simulated draws of the recorded graph, because {why}: "
    "theory takes these as independent"
)
UNSIMULATED = "{why}: theory takes these as independent, and nothing was simulated ({cause})"


class Source(Protocol):
    """What is asked of a runtime."""

    def read(self, names: Collection[str]) -> Mapping[str, Array]:
        """Values of parameters by name."""
        ...

    def inputs_used(self) -> Mapping[str, Array]:
        """Numbers of the inputs by the names of their leaves."""
        ...


@dataclass
class Sample:
    """Mean squares of values, and of gradients at leaves, draw by draw."""

    levels: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    gradients: dict[int, list[float]] = field(default_factory=dict[int, list[float]])


def refined(solver: Solver, plan: Plan, source: Source) -> Plan:
    """The plan with simulated predictions where theory's assumption fails; the same plan elsewhere."""
    why = reason(solver)
    if not why or not affordable(solver):
        return plan
    try:
        sample = simulated(solver, plan, source)
    except ConfigError as error:
        return replace(plan, assumptions=(*plan.assumptions, UNSIMULATED.format(why=why, cause=error.cause)))
    by_name = {(solver.graph.leaves[i].name, solver.graph.leaves[i].part): i for i, _ in solver.graph.params()}
    weights = tuple(
        replace(w, parts=tuple(_settled(solver, p, by_name.get((w.name, p.label)), sample) for p in w.parts))
        for w in plan.weights
    )
    return replace(plan, weights=weights, assumptions=(*plan.assumptions, NOTE.format(draws=DRAWS, why=why)))


def reason(solver: Solver) -> str:
    """In which way the graph leaves what theory assumes; empty when it does not."""
    if any(d.role in {"recurrent", "shared weight"} for d in solver.decisions.values()):
        return "a weight is applied to what it made itself"
    degrees: dict[int, int] = {}
    for node in solver.graph.nodes:
        live = [degrees.get(i, 1) for i in node.inputs if i in solver.uses.live]
        product = isinstance(node.op, Contract) or (isinstance(node.op, Pointwise) and node.op.fn == "mul")
        if isinstance(node.op, (Normalize, Softmax)) or not live:
            degrees[node.output] = 1
        elif product and len(live) == 2 and _related(solver, node.inputs[0], node.inputs[1]):
            degrees[node.output] = sum(live)
        else:
            degrees[node.output] = max(live)
        if isinstance(node.op, Contract) and len(live) == 1 and live[0] >= DEGREE:
            return PRODUCTS
    if any(degrees.get(i, 1) >= DEGREE for i in solver.graph.outputs):
        return PRODUCTS
    floats = [i for i in solver.graph.outputs if solver.graph.values[i].kind == FLOAT]
    if sum(math.prod(solver.graph.values[i].shape) for i in floats) == 1:
        return "the output is one number, whose gradient reaches a value on paths that go together"
    return ""


def _related(solver: Solver, a: int, b: int) -> bool:
    """Whether two values come from one operation on data, and not as functions of one field, which the walk knows."""
    signals = solver.walk.signals
    if set(signals[a].keys) & set(signals[b].keys):
        return False
    common = solver.streams.ancestors[a] & solver.streams.ancestors[b]
    return bool(common & ~solver.streams.leaves)


def affordable(solver: Solver) -> bool:
    """Whether the graph is small, and all its operations have a meaning on numbers."""
    graph = solver.graph
    work = 0.0
    for node in graph.nodes:
        op = node.op
        if not _exact(op) or graph.values[node.output].kind == COMPLEX:
            return False
        size = float(math.prod(graph.values[node.output].shape))
        if isinstance(op, Contract):
            hidden = {w.a for w in op.windows}
            shape = graph.values[node.inputs[0]].shape
            size *= math.prod(n for lab, n in zip(op.a, shape, strict=True) if lab not in op.out and lab not in hidden)
            size *= math.prod(w.size for w in op.windows)
        work += size
    return work <= WORK and len(graph.nodes) <= NODES


def _exact(op: Op) -> bool:
    """Whether the graph holds the operation itself: places found in data stand for any others (the indices of a
    sort, of the smallest entry)."""
    known = type(op) in MEANING and (isinstance(op, MOVERS) or type(op) in PULLBACK)
    return known and not (isinstance(op, Reduce) and op.kind == "argmax")


def simulated(solver: Solver, plan: Plan, source: Source) -> Sample:
    """Mean squares over independent draws of the plan."""
    graph, out = solver.graph, Sample()
    inputs, watched = source.inputs_used(), _watched(solver)
    own = source.read([leaf.name for _, leaf in graph.params()])
    for k in range(DRAWS):
        drawn = materialize(replace(plan, seed=1_000_003 + k), source.read)
        values: dict[int, Array] = {}
        for i, leaf in graph.leaves.items():
            if leaf.role == "param":
                data = solver.values(leaf, drawn.get(leaf.name, own[leaf.name]))
            else:
                data = np.asarray(inputs[leaf.name] if leaf.data is None else leaf.data)
            values[i] = data.astype(np.float64) if data.dtype.kind == "f" else data
        rng = np.random.default_rng(k)
        with np.errstate(all="ignore"):
            for node in graph.nodes:
                operands = [values[i] for i in node.inputs]
                values[node.output] = apply(node.op, operands, graph.values[node.output].shape, rng)
            for i in watched:
                out.levels.setdefault(i, []).append(float(np.mean(np.square(values[i], dtype=np.float64))))
            for i, g in _backward(solver, values, rng).items():
                out.gradients.setdefault(i, []).append(float(np.mean(g * g)))
    return out


def _watched(solver: Solver) -> set[int]:
    """Values whose levels the plan speaks of, and what the weights are applied to."""
    found = set[int]()
    for d in solver.decisions.values():
        if d.region is not None and d.node is not None:
            found |= {*applications(solver, d), d.region.end, *solver.graph.nodes[d.node].inputs}
    return found


def _backward(solver: Solver, values: Mapping[int, Array], rng: np.random.Generator) -> dict[int, Array]:
    """Gradients of ``sum(output * c)``, ``c`` standard normal, at the parameters."""
    graph = solver.graph
    grads: dict[int, Array] = {}
    for i in dict.fromkeys(graph.outputs):
        if graph.values[i].kind == FLOAT:
            grads[i] = rng.standard_normal(values[i].shape)
    for node in reversed(graph.nodes):
        grad = grads.pop(node.output, None)
        if grad is None:
            continue
        back = pull_back(node.op, [values[i] for i in node.inputs], values[node.output], grad)
        for i, g in zip(node.inputs, back, strict=False):
            if g is not None and graph.values[i].kind == FLOAT:
                grads[i] = grads[i] + g if i in grads else g
    return {i: grads[i] for i, _ in graph.params() if i in grads}


def _settled(solver: Solver, part: Part, leaf: int | None, sample: Sample) -> Part:
    """One part with what was found; unchanged where theory was right within the sample's error."""
    if leaf is None:
        return part
    if part.predicted_grad is not None and leaf in sample.gradients:
        part = replace(part, predicted_grad=_nearer(part.predicted_grad, sample.gradients[leaf]))
    d = solver.decisions.get(leaf)
    if d is None or d.region is None or d.node is None or part.predicted_output is None:
        return part
    scale = _input_ratio(solver, d, sample)
    places = applications(solver, d)
    outputs = [sum(x) / len(places) for x in zip(*(sample.levels[v] for v in places), strict=True)]
    level = part.predicted_output * scale if len(places) == 1 else _nearer(part.predicted_output, outputs)
    part = replace(part, predicted_output=level, output_band=_band(level, outputs) or part.output_band)
    if part.predicted is None:
        return part
    end = _nearer(part.predicted, sample.levels[d.region.end]) if d.region.curved else part.predicted * scale
    return replace(part, predicted=end, band=_band(end, sample.levels[d.region.end]) or part.band)


def _input_ratio(solver: Solver, d: Decision, sample: Sample) -> float:
    """Level of what a weight is applied to, found over predicted: its output's follows, with less chance in it
    than in the output's own mean."""
    assert d.node is not None
    at = solver.graph.nodes[d.node].inputs[1 - d.use.slot]
    theory = solver.walk.signals[at].m2
    return _nearer(theory, sample.levels[at]) / theory if theory > 0 else 1.0


def _nearer(predicted: float, found: list[float]) -> float:
    """The prediction, or the mean of what was found where it lies more than two standard errors away."""
    mean = float(np.mean(found))
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found))
    return predicted if not math.isfinite(mean) or abs(mean - predicted) <= 2 * error else mean


def _band(level: float, found: list[float]) -> tuple[float, float] | None:
    """5 and 95 % quantiles of a log-normal level of mean ``level`` with the spread that was found."""
    logs = np.log(np.maximum(found, 1e-300))
    s = float(np.std(logs, ddof=1))
    if level <= 0 or not math.isfinite(s) or s > 20:
        return None
    middle = math.log(level) - s * s / 2
    return math.exp(middle - Z95 * s), math.exp(middle + Z95 * s)

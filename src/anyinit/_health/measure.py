"""Running a model as it is and writing down what its layers and gradients are like. The model is left unchanged."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import xlogy

from anyinit._graph.graph import Graph, Node
from anyinit._graph.ops import Contract, Dropout, Normalize, Pointwise, Random, Softmax
from anyinit._graph.runtime import Runtime
from anyinit._health.facts import Array, Facts, LayerFacts, WeightFacts, equal_slices, histogram, moments, spread
from anyinit._rules.pointwise import evaluate
from anyinit._solve.certify import effective_rank
from anyinit._solve.correct import seen, square_mean
from anyinit._solve.fans import own_axes
from anyinit._solve.regions import Region, region
from anyinit._solve.roles import MOVES, Use, Uses, leaf_axes
from anyinit._solve.streams import Streams
from anyinit.errors import TraceError

Function = Callable[[Array], Array]
DRAWN = {"weight", "table", "position table", "position", "token"}
SLOPE = 0.05
BOUNDED = 16.0
STRANGE = (1e-30, 1e8)
"""Magnitudes that no draw has and that memory nobody wrote to has often."""


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A first step: ``sgd`` (lr times the gradient) or ``adam`` (lr in every entry that has a gradient)."""

    name: str = "adam"
    lr: float = 1e-3


@dataclass
class _Place:
    """One weight whose surroundings are watched."""

    name: str
    use: Use
    node: Node
    where: Region
    axis: int
    inflow: float | None = None
    output: Array | None = None
    end: Array | None = None


@dataclass
class _Traced:
    graph: Graph
    uses: Uses
    places: list[_Place] = field(default_factory=list[_Place])
    dropped: set[int] = field(default_factory=set[int])  # values of noise and dropout that are zero in this run


def measure(runtime: Runtime, graph: Graph, optimizer: Optimizer, *, loss: bool) -> Facts:
    """Facts of the model's own weights on the runtime's batch. ``loss``: the output is one."""
    uses = Uses(graph)
    uses.collect()
    traced = _Traced(graph, uses)
    traced.places = _places(traced)
    facts = Facts(unused=list(graph.unused), notes=[f"{name}: not read in this run" for name in graph.unused])
    values = runtime.read([name for name, *_ in runtime.parameters()])
    _forward(runtime, traced, facts, loss)
    facts.layers = [_layer(traced, p, facts.samples) for p in traced.places if p.output is not None]
    _weights(runtime, traced, facts, values, optimizer, loss)
    return facts


def _places(traced: _Traced) -> list[_Place]:
    found: list[_Place] = []
    for leaf, item in traced.graph.params():
        applied = traced.uses.applied(leaf)
        if not applied or any(p.name == item.name for p in found):
            continue
        use = applied[0]
        node = traced.graph.nodes[use.node]
        found.append(_Place(item.name, use, node, region(traced.uses, node.output), _channels(node, use)))
    return sorted(found, key=lambda p: p.use.node)


def _channels(node: Node, use: Use) -> int:
    """Axis of a contraction's output along which the weight's own rows lie."""
    assert isinstance(node.op, Contract)
    own = own_axes(node.op, use.slot)
    return own[-1][1] if own else len(node.op.out) - 1


def _behind(traced: _Traced, place: _Place) -> int:
    """The value behind the elementwise functions, pooling and moves that a weight's output alone goes through."""
    value, members = place.where.output, {place.where.output}
    for at in place.where.nodes:
        node = traced.graph.nodes[at]
        live = [i for i in node.inputs if i in traced.uses.live]
        if at <= traced.uses.producer[place.where.output]:
            continue
        if isinstance(node.op, Contract) or not members.issuperset(live):
            break
        value = node.output
        members.add(value)
    return value


def _forward(runtime: Runtime, traced: _Traced, facts: Facts, loss: bool) -> None:
    graph, uses = traced.graph, traced.uses
    for data in runtime.inputs_used().values():
        x = np.asarray(data)
        if x.ndim and x.dtype.kind in "fiu":
            facts.samples = max(facts.samples, x.shape[0])
            own = spread(x)
            facts.input_spread = own if facts.input_spread is None or own is None else max(facts.input_spread, own)
    watch: dict[int, list[Callable[[Array], None]]] = {}

    def on(value: int, act: Callable[[Array], None]) -> None:
        watch.setdefault(seen(traced, value), []).append(act)

    for place in traced.places:
        on(place.where.output, lambda x, p=place: setattr(p, "output", np.array(x)))
        on(_behind(traced, place), lambda x, p=place: setattr(p, "end", np.array(x)))
        data = place.node.inputs[1 - place.use.slot]
        if data in uses.live:
            on(data, lambda x, p=place: setattr(p, "inflow", square_mean(x)))
    for node in graph.nodes:
        if isinstance(node.op, Softmax) and not node.op.log and _weighs(traced, node):
            on(node.output, lambda x, n=node: facts.attention.append((n.scope or "top level", _entropy(x, n))))
    for node in graph.nodes:
        if isinstance(node.op, (Dropout, Random)):
            on(node.output, lambda x, v=node.output: None if np.any(x) else traced.dropped.add(v))
    for value in graph.outputs:
        on(value, lambda x: _result(facts, x, loss))
    facts.classes = _classes(traced) if loss else None

    def visit(value: int, array: Array) -> None:
        for act in watch.get(value, ()):
            act(array)

    runtime.run({}, set(watch), visit)


def _result(facts: Facts, x: Array, loss: bool) -> None:
    if x.dtype.kind not in "fc":
        return
    facts.output_finite = facts.output_finite and bool(np.all(np.isfinite(x)))
    if loss and x.size == 1:
        facts.loss = float(np.real(x.reshape(())))
    elif facts.output_finite and x.shape and x.shape[0] == facts.samples:
        own = spread(x)
        known = facts.output_spread
        facts.output_spread = own if known is None or own is None else max(known, own)


def _weighs(traced: _Traced, node: Node) -> bool:
    """Whether a softmax is applied to other activations: attention, in contrast to classes."""
    readers = [traced.graph.nodes[at] for at in traced.uses.consumers.get(traced.uses.source(node.output), ())]
    readers += [traced.graph.nodes[at] for at in traced.uses.consumers.get(node.output, ())]
    return any(isinstance(r.op, Contract) and all(i in traced.uses.live for i in r.inputs) for r in readers)


def _entropy(x: Array, node: Node) -> float:
    """Mean entropy over that of uniform weights, over queries that may see two keys or more: keys with a weight in
    any sample and head."""
    assert isinstance(node.op, Softmax)
    p = np.moveaxis(np.asarray(x, dtype=np.float64), node.op.dim, -1)
    keys = np.sum(np.any(p > 0, axis=tuple(range(p.ndim - 2))), axis=-1)
    share = -np.sum(xlogy(p, p), axis=-1) / np.log(np.maximum(keys, 2))
    several = np.broadcast_to(keys > 1, share.shape)
    return float(np.mean(share[several])) if several.any() else 1.0


def _classes(traced: _Traced) -> int | None:
    """Size of the last softmax in front of a loss."""
    graph = traced.graph
    for node in reversed(graph.nodes):
        if isinstance(node.op, Softmax) and not _weighs(traced, node):
            return graph.values[node.inputs[0]].shape[node.op.dim]
        if isinstance(node.op, Contract) and any(i in traced.uses.origin for i in node.inputs):
            return None
    return None


def _layer(traced: _Traced, place: _Place, samples: int) -> LayerFacts:
    assert place.output is not None
    out = place.output
    end = out if place.end is None else place.end
    level, mean, kurtosis = moments(end)
    axis = place.axis if place.axis < end.ndim and end.ndim == out.ndim else end.ndim - 1
    units = np.moveaxis(end, axis, -1).reshape(-1, end.shape[axis]) if end.ndim else end.reshape(1, 1)
    zero = units == 0
    act = _activation(traced, place)
    flat = end.ndim >= 2 and samples and end.shape[0] == samples
    per_sample = end.reshape(samples, -1) if flat else units
    following = place.where.next
    normalized = following is not None and isinstance(traced.graph.nodes[following].op, Normalize)
    return LayerFacts(
        name=place.name, activation=" ".join(place.where.words), units=units.shape[1], level=level, mean=mean,
        kurtosis=kurtosis, output=square_mean(out), inflow=place.inflow,
        spread=spread(end) if flat else None,
        dead=float(zero.all(axis=0).mean()) if place.where.curved and zero.any() and len(units) > 1 else None,
        always_on=float((~zero).all(axis=0).mean()) if act and _gated(act) and len(units) > 1 else None,
        saturated=_saturated(act, out) if act else None, rank=_rank(per_sample),
        tokens=spread(end, 1) if flat and end.ndim == 3 and axis == 2 else None, normalized=normalized,
    )  # fmt: skip


def _activation(traced: _Traced, place: _Place) -> Function | None:
    """The elementwise function that a weight's own output goes through first, if it is one operation."""
    for at in place.where.nodes:
        node = traced.graph.nodes[at]
        if isinstance(node.op, Pointwise) and node.inputs == (place.where.output,):
            return lambda z, op=node.op: np.asarray(evaluate(op, [np.asarray(z, dtype=np.float64)]))
    return None


def _gated(act: Function) -> bool:
    """Whether a function is zero on one side of the origin and not on the other."""
    low, high = act(np.array([-1.0, 1.0])) == 0
    return bool(low != high)


def _saturated(act: Function, out: Array) -> float | None:
    """Share of the entries at which a function that levels off on both sides is flat."""
    if np.iscomplexobj(out) or not np.all(np.isfinite(out)):
        return None
    near, far = act(np.array([-1e3, 1e3])), act(np.array([-1e4, 1e4]))
    if not np.all(np.abs(far) < BOUNDED) or not np.allclose(near, far, atol=0.01) or far[0] == far[1]:
        return None
    grid = np.linspace(-8, 8, 1601)
    steepest = float(np.max(np.abs(np.gradient(act(grid), grid))))
    z = np.asarray(out, dtype=np.float64).ravel()[:: max(1, out.size // 65536)]
    slope = (act(z + 1e-3) - act(z - 1e-3)) / 2e-3
    return float(np.mean(np.abs(slope) < SLOPE * steepest))


def _rank(rows: Array) -> float | None:
    """Effective rank of at most 512 samples; None of fewer than two, or of values that are not finite."""
    rows = np.asarray(np.real(rows), dtype=np.float64)[:: max(1, len(rows) // 512)][:512]
    if min(rows.shape) < 2 or not np.all(np.isfinite(rows)) or not rows.any():
        return None
    return effective_rank(rows @ rows.T)


def _weights(
    runtime: Runtime, traced: _Traced, facts: Facts, values: Mapping[str, Array], optimizer: Optimizer, loss: bool
) -> None:
    graph, uses = traced.graph, traced.uses
    seed = None if loss else 0
    gradients, notes = _gradients(runtime, {}, seed)
    facts.notes += notes
    roles: dict[str, str] = {}
    outs: dict[str, tuple[int, ...]] = {}
    for i, leaf in graph.params():
        mine = uses.uses.get(i, [])
        kinds = [uses.role(u) for u in mine]
        roles.setdefault(leaf.name, "weight" if "weight" in kinds else kinds[0] if kinds else "unused")
        if "weight" in kinds and not leaf.view:
            outs.setdefault(leaf.name, _rows(graph, uses.applied(i)))
    for name, _, shape, _, trainable in runtime.parameters():
        item = _weight(name, shape, roles.get(name, "unused"), trainable, np.asarray(values[name]))
        gradient = gradients.get(name)
        if gradient is not None:
            item = _with_gradient(item, np.asarray(gradient), optimizer)
        facts.weights.append(replace(item, outs=outs.get(name, ())))
    facts.clones = _clones(values, [w for w in facts.weights if w.role in DRAWN])
    facts.blocked = _blocked(runtime, facts, gradients, values, seed) if gradients else []
    if facts.blocked and traced.dropped:
        hidden = _before(traced)
        facts.blocked = [name for name in facts.blocked if name not in hidden]


def _before(traced: _Traced) -> set[str]:
    """Names of the parameters in front of a path that chance switched off in this run."""
    zero, bits, ancestors = set(traced.dropped), 0, Streams(traced.uses).ancestors
    for node in traced.graph.nodes:
        scaled = isinstance(node.op, Pointwise) and node.op.fn in {"mul", "div"}
        if zero.intersection(node.inputs) and (scaled or isinstance(node.op, MOVES)):
            zero.add(node.output)
        if node.output in zero:
            bits |= ancestors[node.output]
    return {leaf.name for i, leaf in traced.graph.params() if bits >> i & 1}


def _gradients(
    runtime: Runtime, weights: Mapping[str, Array], seed: int | None
) -> tuple[Mapping[str, Array], list[str]]:
    try:
        return runtime.gradients(weights, seed), []
    except TraceError as error:
        return {}, [f"no gradients: {error.cause}"]


def _rows(graph: Graph, applied: Sequence[Use]) -> tuple[int, ...]:
    """Axes of a leaf that count the outputs of its first application; none where its view is more than a
    permutation."""
    if not applied:
        return ()
    op = graph.nodes[applied[0].node].op
    assert isinstance(op, Contract)
    order = leaf_axes(applied[0], len(op.b if applied[0].slot else op.a))
    return () if order is None else tuple(order[k] for k, _ in own_axes(op, applied[0].slot))


def _weight(name: str, shape: tuple[int, ...], role: str, trainable: bool, x: Array) -> WeightFacts:
    finite = bool(np.all(np.isfinite(x)))
    size = np.abs(np.where(np.isfinite(x), x, 0))
    strange = float(np.mean(((size > 0) & (size < STRANGE[0])) | (size > STRANGE[1]))) if x.size else 0.0
    level, _, kurtosis = moments(x) if finite else (math.nan, math.nan, math.nan)
    return WeightFacts(
        name=name, shape=tuple(shape), role=role, trainable=trainable, rms=math.sqrt(level) if level >= 0 else math.nan,
        kurtosis=kurtosis, zeros=float(np.mean(x == 0)) if x.size else 0.0, finite=finite, strange=strange,
        alike=equal_slices(x),
    )  # fmt: skip


def _with_gradient(item: WeightFacts, g: Array, optimizer: Optimizer) -> WeightFacts:
    finite = bool(np.all(np.isfinite(g)))
    if not finite:
        return replace(item, gradient_finite=False)
    level = moments(g)[0]
    rms = math.sqrt(level)
    moved = float(np.mean(g != 0)) if g.size else 0.0
    step = optimizer.lr * (rms if optimizer.name == "sgd" else math.sqrt(moved))
    return replace(
        item, gradient=level, gradient_zeros=1 - moved,
        peak=float(np.mean(np.abs(g) < rms / 100)) if rms > 0 else None,
        update=step / item.rms if item.rms > 0 else None, gradient_alike=equal_slices(g) if rms > 0 else (),
        counts=histogram(g),
    )  # fmt: skip


def _clones(values: Mapping[str, Array], weights: Sequence[WeightFacts]) -> list[tuple[str, ...]]:
    """Groups of separate parameters that hold the same numbers, constant ones aside."""
    groups: dict[tuple[tuple[int, ...], bytes], list[str]] = {}
    for item in weights:
        x = np.ascontiguousarray(values[item.name])
        if x.size >= 16 and item.finite and float(np.ptp(np.abs(x))) > 0:
            groups.setdefault((x.shape, hashlib.sha256(x.tobytes()).digest()), []).append(item.name)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def _blocked(
    runtime: Runtime, facts: Facts, gradients: Mapping[str, Array], values: Mapping[str, Array], seed: int | None
) -> list[str]:
    """Trainable weights whose gradient is zero, and stays so when zeros that do get a gradient take a first step.

    A branch that starts at zero on purpose (a zero gain, a zero factor of a pair) has a gradient at the zero itself.
    """
    still = {w.name for w in facts.weights if w.trainable and w.gradient == 0}
    if not still:
        return []
    lifted: dict[str, Array] = {}
    for w in facts.weights:
        g = gradients.get(w.name)
        if w.rms == 0 and w.gradient and g is not None:
            lifted[w.name] = np.asarray(-1e-3 * np.asarray(g) / math.sqrt(w.gradient), dtype=values[w.name].dtype)
    if lifted:
        again, _ = _gradients(runtime, lifted, seed)
        still = {n for n in still if n not in again or not np.any(np.asarray(again[n]))}
    return [w.name for w in facts.weights if w.name in still]

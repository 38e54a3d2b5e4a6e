"""Packed parameters taken apart: query, key and value; gates; the two halves of a gated unit.

Where a contraction's output is only read in slices along the dimension its weight makes, it becomes one
contraction for each slice, with a part of the weight each; where a parameter is only read in slices,
each slice becomes a leaf. Nothing is known of attention or gates here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from anyinit._graph.graph import Graph, Leaf, Node, Value
from anyinit._graph.ops import Contract, Op, Permute, Pointwise, Reshape, Slice

Run = tuple[int, int]  # size and stride of a factor of the packed dimension
Dim = tuple[Run | int, ...]  # factors: runs of the packed dimension, plain sizes of others
View = tuple[tuple[Any, ...], ...]


def split(graph: Graph) -> Graph:
    """The graph with packed weights in parts."""
    graph = replace(graph, observable=len(graph.values) if graph.observable is None else graph.observable)
    return _outputs(_leaves(graph))


def _consumers(graph: Graph) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for at, node in enumerate(graph.nodes):
        for i in dict.fromkeys(node.inputs):
            found.setdefault(i, []).append(at)
    return found


def _cover(slices: Iterable[Slice], size: int) -> bool:
    """Whether unit-step slices along one dimension tile it."""
    spans = sorted({(s.start, s.stop) for s in slices})
    at = 0
    for start, stop in spans:
        if start != at:
            return False
        at = stop
    return at == size and len(spans) > 1


# --- parameters read in slices ---------------------------------------------------------------


def _leaves(graph: Graph) -> Graph:
    """Each slice of a parameter that is only read in slices becomes a leaf of its own."""
    readers = _consumers(graph)
    values, leaves = list(graph.values), dict(graph.leaves)
    alias: dict[int, int] = {}
    for i, leaf in graph.params():
        nodes = [graph.nodes[at] for at in readers.get(i, ())]
        ops = [n.op for n in nodes if isinstance(n.op, Slice)]
        if len(ops) != len(nodes) or not ops or i in graph.outputs:
            continue
        dim = ops[0].dim
        if any(o.dim != dim or o.step != 1 for o in ops) or not _cover(ops, graph.values[i].shape[dim]):
            continue
        made: dict[tuple[int, int], int] = {}
        for node, op in zip(nodes, ops, strict=True):
            span = (op.start, op.stop)
            if span not in made:
                made[span] = len(values)
                values.append(graph.values[node.output])
                leaves[made[span]] = _part(leaf, graph.values[i].shape, (("slice", dim, *span, 1),), span)
            alias[node.output] = made[span]
    if not alias:
        return graph
    nodes_ = [replace(n, inputs=tuple(alias.get(j, j) for j in n.inputs)) for n in graph.nodes if n.output not in alias]
    whole = {
        i for i in graph.leaves if all(graph.nodes[at].output in alias for at in readers.get(i, ())) and readers.get(i)
    }
    kept = {i: leaf for i, leaf in leaves.items() if i not in whole}
    return replace(
        graph,
        values=tuple(values),
        leaves=kept,
        nodes=tuple(nodes_),
        outputs=tuple(alias.get(j, j) for j in graph.outputs),
    )


def _part(leaf: Leaf, shape: tuple[int, ...], view: View, span: tuple[int, int]) -> Leaf:
    label = f"{span[0]}:{span[1]}"
    return replace(
        leaf, view=leaf.view + view, part=f"{leaf.part},{label}" if leaf.part else label, whole=leaf.whole or shape
    )


# --- contractions read in slices -------------------------------------------------------------


@dataclass
class _Packed:
    """A contraction whose output is read in slices: positions of its chain, and the slices."""

    contraction: int
    slot: int
    leaf: int
    view: View
    dim: int
    chain: tuple[int, ...]
    slices: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


def _outputs(graph: Graph) -> Graph:
    readers = _consumers(graph)
    made = {n.output: at for at, n in enumerate(graph.nodes)}
    found = [
        p
        for at, n in enumerate(graph.nodes)
        if isinstance(n.op, Contract)
        for p in (_packed(graph, at, readers, made),)
        if p
    ]
    values, leaves = list(graph.values), dict(graph.leaves)
    drop = {at for p in found for at in (p.contraction, *p.chain, *p.slices)}
    fresh: dict[int, list[Node]] = {}
    alias: dict[int, int] = {}
    for packed in found:
        fresh[packed.contraction] = []
        _apart(graph, packed, values, leaves, fresh[packed.contraction], alias)
    nodes: list[Node] = []
    for at, node in enumerate(graph.nodes):
        nodes += fresh.get(at, [] if at in drop else [node])
    nodes = [replace(n, inputs=tuple(alias.get(i, i) for i in n.inputs)) for n in nodes]
    outputs = tuple(alias.get(i, i) for i in graph.outputs)
    return replace(graph, values=tuple(values), leaves=leaves, nodes=tuple(nodes), outputs=outputs)


def _view(graph: Graph, value: int, made: dict[int, int], readers: dict[int, list[int]]) -> tuple[int, View] | None:
    """Leaf and moves behind a weight operand that is read here alone."""
    steps: list[tuple[Any, ...]] = []
    while value in made:
        node = graph.nodes[made[value]]
        if len(readers.get(value, ())) != 1 or not isinstance(node.op, (Reshape, Permute)):
            return None
        steps.append(("reshape", node.op.shape) if isinstance(node.op, Reshape) else ("permute", node.op.order))
        value = node.inputs[0]
    leaf = graph.leaves.get(value)
    if leaf is None or leaf.role != "param" or len(readers.get(value, ())) != 1:
        return None
    return value, tuple(reversed(steps))


def _packed(graph: Graph, at: int, readers: dict[int, list[int]], made: dict[int, int]) -> _Packed | None:
    node = graph.nodes[at]
    op = node.op
    assert isinstance(op, Contract)
    for slot, mine, other in ((1, op.b, op.a), (0, op.a, op.b)):
        origin = _view(graph, node.inputs[slot], made, readers)
        free = [lab for lab in op.out if lab in mine and lab not in other]
        if origin is None or len(free) != 1:
            continue
        size = graph.values[node.output].shape[op.out.index(free[0])]
        dims: list[Dim] = [
            ((size, 1),) if lab == free[0] else (n,)
            for lab, n in zip(op.out, graph.values[node.output].shape, strict=True)
        ]
        followed = _follow(graph, node.output, dims, size, readers)
        if followed is not None:
            chain, slices, spans = followed
            return _Packed(at, slot, origin[0], origin[1], mine.index(free[0]), chain, slices, spans)
    return None


def _follow(
    graph: Graph, value: int, dims: list[Dim], size: int, readers: dict[int, list[int]]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]] | None:
    """Bias additions and moves up to where the value is read in slices of the packed dimension."""
    chain: list[int] = []
    for _ in range(8):
        at = readers.get(value, [])
        ops = [graph.nodes[k].op for k in at]
        if value in graph.outputs or not at:
            return None
        cuts = [o for o in ops if isinstance(o, Slice)]
        if len(cuts) == len(ops):
            return _sliced(tuple(chain), tuple(at), cuts, dims, size)
        if len(at) != 1:
            return None
        moved = _moved(graph, graph.nodes[at[0]], dims, value)
        if moved is None:
            return None
        chain.append(at[0])
        dims, value = moved, graph.nodes[at[0]].output
    return None


def _sliced(
    chain: tuple[int, ...], at: tuple[int, ...], cuts: list[Slice], dims: list[Dim], size: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]] | None:
    dim = cuts[0].dim
    factor = dims[dim][0] if len(dims[dim]) == 1 else 0
    if isinstance(factor, int) or any(c.dim != dim or c.step != 1 for c in cuts):
        return None
    count, stride = factor
    if count * stride != size or not _cover(cuts, count):
        return None
    return chain, at, tuple((c.start * stride, c.stop * stride) for c in cuts)


def _moved(graph: Graph, node: Node, dims: list[Dim], value: int) -> list[Dim] | None:
    """Where the packed dimension is after one operation of a chain; None ends the chain."""
    if isinstance(node.op, Permute):
        return [dims[i] for i in node.op.order]
    if isinstance(node.op, Reshape):
        return _reshaped(dims, node.op.shape)
    if isinstance(node.op, Pointwise) and node.op.fn in {"add", "mul"}:
        others = [i for i in node.inputs if i != value]
        if all(i in graph.leaves and graph.leaves[i].role == "param" for i in others) and len(others) <= 1:
            whole = sum(isinstance(f, tuple) for dim in dims for f in dim) == 1
            return dims if whole or not others else None
    return None


def _reshaped(dims: list[Dim], shape: tuple[int, ...]) -> list[Dim] | None:
    flat: list[Run | int] = [f for dim in dims for f in dim if f != 1]
    out: list[Dim] = []
    for n in reversed(shape):
        need, factors = n, list[Run | int]()
        while need > 1:
            if not flat:
                return None
            f = flat.pop()
            size = f if isinstance(f, int) else f[0]
            if size <= need and need % size == 0:
                factors.append(f)
                need //= size
            elif need < size and size % need == 0:
                stride = 0 if isinstance(f, int) else f[1]
                flat.append(size // need if isinstance(f, int) else (size // need, stride * need))
                factors.append(need if isinstance(f, int) else (need, stride))
                need = 1
            else:
                return None
        out.append(tuple(reversed(factors)))
    return out[::-1]


def _apart(
    graph: Graph, p: _Packed, values: list[Value], leaves: dict[int, Leaf], fresh: list[Node], alias: dict[int, int]
) -> None:
    """Rebuild the chain once for every slice."""
    parts: dict[tuple[int, int], int] = {}
    for at, span in sorted(zip(p.slices, p.spans, strict=True), key=lambda pair: pair[1]):
        if span in parts:
            alias[graph.nodes[at].output] = parts[span]
            continue
        parts[span] = _one(graph, p, span, at, values, leaves, fresh)


def _one(
    graph: Graph,
    p: _Packed,
    span: tuple[int, int],
    at: int,
    values: list[Value],
    leaves: dict[int, Leaf],
    fresh: list[Node],
) -> int:
    """Contraction, bias and moves of one part; the last value keeps the slice's own id."""
    node = graph.nodes[p.contraction]
    op = node.op
    assert isinstance(op, Contract)
    operand = graph.values[node.inputs[p.slot]]
    size = operand.shape[p.dim]
    kept = span[1] - span[0]
    shape = (*operand.shape[: p.dim], kept, *operand.shape[p.dim + 1 :])
    leaf = graph.leaves[p.leaf]
    values.append(Value(shape, operand.kind))
    weight = len(values) - 1
    leaves[weight] = _part(leaf, graph.values[p.leaf].shape, (*p.view, ("slice", p.dim, *span, 1)), span)
    inputs = (node.inputs[0], weight) if p.slot else (weight, node.inputs[1])
    free = op.b[p.dim] if p.slot else op.a[p.dim]
    last = graph.nodes[at].output
    target = graph.values[last].shape
    steps: list[tuple[Op, tuple[int, ...], tuple[int, ...], Node]] = []
    dims = [kept if lab == free else n for lab, n in zip(op.out, graph.values[node.output].shape, strict=True)]
    steps.append((op, inputs, tuple(dims), node))
    for k in p.chain:
        link = graph.nodes[k]
        after = graph.values[link.output].shape
        if isinstance(link.op, Pointwise):
            extra = [
                _bias(graph, i, size, span, values, leaves) if i != _carrier(graph, link, p, k) else -1
                for i in link.inputs
            ]
            steps.append((link.op, tuple(extra), steps[-1][2], link))
        elif isinstance(link.op, Permute):
            steps.append((link.op, (-1,), tuple(steps[-1][2][i] for i in link.op.order), link))
        else:
            shrunk = _shrunk(after, size, kept, steps[-1][2])
            steps.append((Reshape(shrunk), (-1,), shrunk, link))
    if steps[-1][2] != target:
        steps.append((Reshape(target), (-1,), target, graph.nodes[at]))
    previous = -1
    for k, (step, ins, shape_, link) in enumerate(steps):
        if k == len(steps) - 1:
            out = last
        else:
            values.append(Value(tuple(shape_), graph.values[link.output].kind))
            out = len(values) - 1
        fresh.append(
            Node(
                step,
                tuple(previous if i == -1 else i for i in ins),
                out,
                link.scope,
                link.call,
                graph.nodes[at].step if out == last else -1,
            )
        )
        previous = out
    return last


def _carrier(graph: Graph, link: Node, p: _Packed, k: int) -> int:
    """The operand of a chain's operation that comes from the chain."""
    before = p.contraction if p.chain.index(k) == 0 else p.chain[p.chain.index(k) - 1]
    return graph.nodes[before].output


def _bias(graph: Graph, i: int, size: int, span: tuple[int, int], values: list[Value], leaves: dict[int, Leaf]) -> int:
    """The part of a bias that belongs to the span; a bias that does not vary along it stays whole."""
    shape = graph.values[i].shape
    if size not in shape:
        return i
    dim = len(shape) - 1 - shape[::-1].index(size)
    view = (("slice", dim, *span, 1),)
    values.append(Value((*shape[:dim], span[1] - span[0], *shape[dim + 1 :]), graph.values[i].kind))
    leaves[len(values) - 1] = _part(graph.leaves[i], shape, view, span)
    return len(values) - 1


def _shrunk(after: tuple[int, ...], size: int, kept: int, now: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a reshape when only ``kept`` of ``size`` packed entries remain: the packed axis that
    comes first among the new ones carries the difference."""
    total = 1
    for n in now:
        total *= n
    for d, n in enumerate(after):
        rest = 1
        for k, m in enumerate(after):
            rest *= m if k != d else 1
        if total % rest == 0 and n * kept % size == 0 and total // rest == n * kept // size:
            return (*after[:d], total // rest, *after[d + 1 :])
    return after

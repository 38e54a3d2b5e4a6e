"""Algebraic identities, applied to a recorded graph before anything reads it.

``x * rsqrt(mean(x^2) + eps)`` in any spelling is one :class:`Normalize`; so is the same with the mean
taken out first. Operations whose result nothing reads are dropped, so are elementwise identities
(``x * 1``, ``x + 0``). Interpolations are spelled by their two weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anyinit._graph.blend import blended
from anyinit._graph.graph import Graph, Node
from anyinit._graph.ops import Contract, Expand, Normalize, Op, Permute, Pointwise, Reduce, Reshape
from anyinit._graph.split import split

_NEUTRAL = {("add", 0.0), ("sub", 0.0), ("mul", 1.0), ("div", 1.0), ("pow", 1.0)}


def canonical(graph: Graph) -> Graph:
    """The graph with norms recognised, identities and dead operations removed."""
    graph = _shortened(graph)
    graph = replace(graph, summed=_summed(graph))
    return _pruned(split(_pruned(blended(_normalized(graph)))))


def _summed(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Dimensions over which each parameter is first contracted, dead operations included: the direction in
    which a weight is applied, where a derivative taken inside the model also uses it backwards."""
    order: dict[int, tuple[int, tuple[int, ...]]] = {
        i: (i, tuple(range(len(graph.values[i].shape)))) for i, _ in graph.params()
    }
    found: dict[int, tuple[int, ...]] = {}
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Permute) and node.inputs[0] in order:
            leaf, dims = order[node.inputs[0]]
            order[node.output] = (leaf, tuple(dims[i] for i in op.order))
        elif isinstance(op, Contract):
            for value, labels in zip(node.inputs, (op.a, op.b), strict=True):
                if value in order:
                    leaf, dims = order[value]
                    found.setdefault(
                        leaf, tuple(sorted(d for d, lab in zip(dims, labels, strict=True) if lab not in op.out))
                    )
    return found


def _shortened(graph: Graph) -> Graph:
    """Identities replaced by what they return."""
    alias: dict[int, int] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(alias.get(i, i) for i in node.inputs))
        op = node.op
        if isinstance(op, Pointwise) and len(node.inputs) == 1 and _identity(op):
            source = node.inputs[0]
            if graph.values[source] == graph.values[node.output]:
                alias[node.output] = source
                continue
        nodes.append(node)
    return _with(graph, nodes, alias)


def _identity(op: Pointwise) -> bool:
    if op.fn == "identity":
        return True
    return len(op.args) == 2 and op.args[0] is None and op.args[1] is not None and (op.fn, op.args[1]) in _NEUTRAL


def _with(graph: Graph, nodes: Iterable[Node], alias: dict[int, int]) -> Graph:
    return replace(graph, nodes=tuple(nodes), outputs=tuple(alias.get(i, i) for i in graph.outputs))


def _pruned(graph: Graph) -> Graph:
    """Nodes that an output depends on."""
    needed, nodes = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if node.output in needed:
            needed.update(node.inputs)
            nodes.append(node)
    leaves = {i: leaf for i, leaf in graph.leaves.items() if i in needed or not leaf.part}
    read = {leaf.name for leaf in leaves.values() if leaf.part}
    leaves = {i: leaf for i, leaf in leaves.items() if i in needed or leaf.name not in read}
    return replace(graph, nodes=tuple(reversed(nodes)), leaves=leaves)


@dataclass
class _Maker:
    graph: Graph

    def __post_init__(self) -> None:
        self.made = {n.output: n for n in self.graph.nodes}

    def op(self, value: int) -> tuple[Op | None, tuple[int, ...]]:
        node = self.made.get(value)
        return (None, ()) if node is None else (node.op, node.inputs)

    def through(self, value: int) -> int:
        """Past reshapes and expansions that only add or remove axes of size one."""
        while value in self.made and isinstance(self.made[value].op, (Reshape, Expand)):
            before = self.made[value].inputs[0]
            ones = (
                [n for n in self.graph.values[before].shape if n > 1],
                [n for n in self.graph.values[value].shape if n > 1],
            )
            if isinstance(self.made[value].op, Reshape) and ones[0] != ones[1]:
                break
            value = before
        return value

    def scalar(self, value: int, fn: str) -> tuple[int, float] | None:
        """``value = fn(x, c)`` with a number ``c``."""
        op, inputs = self.op(value)
        if isinstance(op, Pointwise) and op.fn == fn and len(inputs) == 1 and len(op.args) == 2:
            number = next((a for a in op.args if a is not None), None)
            return None if number is None else (inputs[0], number)
        return None

    def unary(self, value: int, fns: set[str]) -> int | None:
        op, inputs = self.op(value)
        return (
            inputs[0] if isinstance(op, Pointwise) and op.fn in fns and len(inputs) == 1 and len(op.args) == 1 else None
        )

    def inverse_root(self, value: int) -> int | None:
        """``v`` with ``value = v ** -0.5`` in any spelling."""
        value = self.through(value)
        direct = self.unary(value, {"rsqrt"})
        if direct is not None:
            return self.through(direct)
        power = self.scalar(value, "pow")
        if power is not None and power[1] == -0.5:
            return self.through(power[0])
        root = self.unary(value, {"reciprocal"})
        if root is None:
            one = self.scalar(value, "div")
            op, _ = self.op(value)
            if one is not None and isinstance(op, Pointwise) and op.args[0] == 1.0:
                root = one[0]
        return None if root is None else self.root(root)

    def root(self, value: int) -> int | None:
        """``v`` with ``value = sqrt(v)``, possibly with a small number added or clipped."""
        value = self.through(value)
        for fn in ("add", "maximum", "clamp"):
            plus = self.scalar(value, fn)
            if plus is not None and 0 <= plus[1] < 1e-2:
                value = self.through(plus[0])
        inner = self.unary(value, {"sqrt"})
        if inner is not None:
            return self.through(inner)
        power = self.scalar(value, "pow")
        return self.through(power[0]) if power is not None and power[1] == 0.5 else None

    def moment(self, value: int) -> tuple[int, tuple[int, ...], float, bool] | None:
        """``(x, dims, eps, centred)`` with ``value = mean(x^2) + eps`` or ``var(x) + eps``."""
        eps = 0.0
        for fn in ("add", "maximum", "clamp"):
            plus = self.scalar(value, fn)
            if plus is not None and 0 <= plus[1] < 1e-2:
                value, eps = self.through(plus[0]), plus[1]
        op, inputs = self.op(value)
        if not isinstance(op, Reduce):
            return None
        if op.kind == "var":
            return inputs[0], op.dims, eps, True
        if op.kind != "mean":
            return None
        square = self.unary(inputs[0], {"square"})
        if square is None:
            power = self.scalar(inputs[0], "pow")
            square = power[0] if power is not None and power[1] == 2.0 else None
        if square is None:
            op2, two = self.op(inputs[0])
            square = (
                two[0]
                if isinstance(op2, Pointwise) and op2.fn == "mul" and len(two) == 2 and two[0] == two[1]
                else None
            )
        return None if square is None else (square, op.dims, eps, False)

    def centred(self, value: int) -> tuple[int, tuple[int, ...]] | None:
        """``(x, dims)`` with ``value = x - mean(x)``."""
        op, inputs = self.op(value)
        if not isinstance(op, Pointwise) or op.fn != "sub" or len(inputs) != 2:
            return None
        inner, source = self.op(self.through(inputs[1]))
        if isinstance(inner, Reduce) and inner.kind == "mean" and source[0] == inputs[0]:
            return inputs[0], inner.dims
        return None


def _normalized(graph: Graph) -> Graph:
    maker = _Maker(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        found = _norm(maker, node)
        if found is not None:
            x, op = found
            node = replace(node, op=op, inputs=(x,))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _norm(maker: _Maker, node: Node) -> tuple[int, Normalize] | None:
    """``x * rsqrt(moment(x))`` or ``x / sqrt(moment(x))``."""
    op = node.op
    if not isinstance(op, Pointwise) or op.fn not in {"mul", "div"} or len(node.inputs) != 2 or op.args != (None, None):
        return None
    pairs = [(node.inputs[0], node.inputs[1])]
    if op.fn == "mul":
        pairs.append((node.inputs[1], node.inputs[0]))
    for x, r in pairs:
        under = maker.inverse_root(r) if op.fn == "mul" else maker.root(r)
        found = None if under is None else maker.moment(under)
        if found is None or maker.graph.values[x].shape != maker.graph.values[node.output].shape:
            continue
        source, dims, eps, centred = found
        mean = maker.centred(x)
        if centred and mean is not None and mean[0] == source and set(mean[1]) == set(dims):
            return source, Normalize(dims, eps, True)
        if not centred and mean is not None and source == x and set(mean[1]) == set(dims):
            return mean[0], Normalize(dims, eps, True)
        if not centred and source == x:
            return x, Normalize(dims, eps, False)
    return None

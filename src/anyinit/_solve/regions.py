"""What follows a contraction: where a layer's level is set, and how it gets there."""

from __future__ import annotations

from dataclasses import dataclass

from anyinit._graph.graph import Node
from anyinit._graph.ops import Contract, Dropout, Expand, Permute, Pointwise, Pool, Reshape
from anyinit._solve.roles import Uses

FOLLOWS = (Pointwise, Reshape, Permute, Expand, Dropout, Pool)
STRAIGHT = {"add", "sub", "mul", "div", "neg", "identity"}


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes between a contraction's output and the value where its level is enforced.

    output: the contraction's own output with its bias. end: the enforced value. nodes: positions to
    replay, in order. curved: whether an elementwise function other than a scaling is among them.
    words: the nonlinear functions, in order.
    """

    output: int
    end: int
    nodes: tuple[int, ...]
    curved: bool
    words: tuple[str, ...]
    next: int | None


def region(uses: Uses, value: int, limit: int = 48) -> Region:
    """The elementwise region, pooling and reshapes fed by one contraction alone.

    It ends at the last value through which everything passes: before an operation that needs other
    activations, a contraction, a normalization, or a branching.
    """
    graph = uses.graph
    members, inside = {value}, list[int]()
    open_: dict[int, int] = {value: len(uses.consumers.get(value, ()))}
    ends: list[tuple[int, int]] = [(value, 0)]
    frontier = sorted(uses.consumers.get(value, ()))
    outputs = set(graph.outputs)
    at0, crossed = uses.producer[value], None
    while frontier and len(inside) < limit:
        at = frontier.pop(0)
        node = graph.nodes[at]
        foreign = [i for i in node.inputs if i not in members and i in uses.live]
        if (
            _meets(uses, node, foreign, at0)
            and not any(
                _bends(uses, n.op, n.inputs) for n in (graph.nodes[a] for a in inside) if isinstance(n.op, Pointwise)
            )
            and set(open_) == {value_before(node, members)}
        ):
            inside.append(at)
            members.add(node.output)
            ends.append((node.output, len(inside)))
            crossed = node.output
            open_ = {node.output: len(uses.consumers.get(node.output, ()))}
            frontier = sorted(uses.consumers.get(node.output, ()))
            continue
        if crossed is not None and not _scales(node):
            break
        if foreign or not isinstance(node.op, FOLLOWS) or any(i in outputs for i in node.inputs):
            break
        inside.append(at)
        members.add(node.output)
        for i in set(node.inputs) & members:
            if i in open_:
                open_[i] -= 1
                if open_[i] <= 0:
                    del open_[i]
        readers = uses.consumers.get(node.output, ())
        open_[node.output] = len(readers) + (node.output in outputs)
        frontier = sorted({*frontier, *readers})
        if set(open_) == {node.output}:
            ends.append((node.output, len(inside)))
    output = _biased(uses, value, ends)
    end, count = ends[-1]
    words = tuple(
        n.op.fn
        for n in (graph.nodes[a] for a in inside[:count])
        if isinstance(n.op, Pointwise) and _bends(uses, n.op, n.inputs)
    )
    if crossed is not None:
        words = ()
    elif not words:
        end, count = output, next(c for v, c in ends if v == output)
    following = uses.consumers.get(end, ())
    return Region(output, end, tuple(inside[:count]), bool(words), words, following[0] if len(following) == 1 else None)


def _meets(uses: Uses, node: Node, foreign: list[int], start: int) -> bool:
    """Whether a contraction joins the layer to an activation that was there before it (bilinear forms,
    logits of queries and keys): the level is then set at the product."""
    if not isinstance(node.op, Contract) or len(foreign) != 1 or len(node.inputs) != 2:
        return False
    made = uses.producer.get(foreign[0], -1)
    return made < start and len(set(node.inputs)) == 2


def value_before(node: Node, members: set[int]) -> int:
    """The operand that belongs to the region."""
    return next((i for i in node.inputs if i in members), -1)


def _scales(node: Node) -> bool:
    """A multiplication or division by a number behind a product of activations."""
    return isinstance(node.op, Pointwise) and node.op.fn in {"mul", "div"} and len(node.inputs) == 1


def _bends(uses: Uses, op: Pointwise, inputs: tuple[int, ...]) -> bool:
    live = [i for i in inputs if i in uses.live]
    if op.fn == "where" and op.args[0] is None and inputs[0] not in uses.live:
        return len(live) > 1  # a mask that no activation decides
    return op.fn not in STRAIGHT or len(live) > 1


def _biased(uses: Uses, value: int, ends: list[tuple[int, int]]) -> int:
    """The contraction's output after moves and a bias directly behind it."""
    out = value
    for v, _ in ends[1:]:
        node = uses.graph.nodes[uses.producer[v]]
        if isinstance(node.op, Pointwise):
            params = all(i in uses.origin for i in node.inputs if i not in uses.live)
            if node.op.fn == "add" and params and len(node.inputs) == 2:
                return v
            return out
        if isinstance(node.op, (Contract, Pool, Dropout)):
            return out
        out = v if isinstance(node.op, (Reshape, Permute)) and _only_moves_then_bias(uses, v) else out
    return out


def _only_moves_then_bias(uses: Uses, value: int) -> bool:
    for _ in range(4):
        readers = uses.consumers.get(value, ())
        if len(readers) != 1:
            return False
        node = uses.graph.nodes[readers[0]]
        if isinstance(node.op, Pointwise):
            return node.op.fn == "add" and any(i in uses.origin for i in node.inputs)
        if not isinstance(node.op, (Reshape, Permute)):
            return False
        value = node.output
    return False

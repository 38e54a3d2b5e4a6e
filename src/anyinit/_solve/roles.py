"""Roles of parameters, from the operations that consume them; never from names or classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from anyinit._graph.graph import Graph, Node
from anyinit._graph.ops import (
    Concat,
    Contract,
    Dropout,
    Expand,
    Gather,
    Lookup,
    Normalize,
    Op,
    Pad,
    Permute,
    Pointwise,
    Repeat,
    Reshape,
    Shuffle,
    Slice,
    Softmax,
    Update,
)
from anyinit._rules.pointwise import evaluate

MOVES = (Reshape, Permute, Slice, Expand, Repeat, Shuffle)
SCALINGS = {"mul", "div", "neg"}


@dataclass(frozen=True, slots=True)
class Use:
    """One place where a parameter leaves the parameters and meets data.

    view: chain of operations from the leaf to ``value``, the operand. pure: all of them are moves.
    node: the consumer; slot: which of its inputs.
    """

    leaf: int
    value: int
    view: tuple[Op, ...]
    pure: bool
    node: int
    slot: int


def leaf_axes(use: Use, count: int) -> list[int] | None:
    """The leaf's axis behind each of an operand's ``count`` axes; None where its view is more than a permutation."""
    order = list(range(count))
    for step in reversed(use.view):
        if not isinstance(step, Permute):
            return None
        order = [step.order[i] for i in order]
    return order


@dataclass
class Uses:
    """Everything the solver asks about how values of a graph are used."""

    graph: Graph
    uses: dict[int, list[Use]] = field(default_factory=dict[int, list[Use]])

    @cached_property
    def consumers(self) -> Mapping[int, tuple[int, ...]]:
        """Node positions that read each value."""
        found: dict[int, list[int]] = {}
        for at, node in enumerate(self.graph.nodes):
            for i in dict.fromkeys(node.inputs):
                found.setdefault(i, []).append(at)
        return {i: tuple(v) for i, v in found.items()}

    @cached_property
    def producer(self) -> Mapping[int, int]:
        """Position of the node that makes each value."""
        return {node.output: at for at, node in enumerate(self.graph.nodes)}

    @cached_property
    def live(self) -> frozenset[int]:
        """Values that depend on user data or on noise: activations."""
        live = {i for i, leaf in self.graph.leaves.items() if leaf.role == "input"}
        weights = {i for i, _ in self.graph.params()}
        for node in self.graph.nodes:
            if any(i in live for i in node.inputs) or not node.inputs or self._on_constants(node, weights):
                live.add(node.output)
            elif any(i in weights for i in node.inputs):
                weights.add(node.output)
        if not live:
            live = {i for i, leaf in self.graph.leaves.items() if leaf.role != "param"}
        return frozenset(live)

    def _on_constants(self, node: Node, weights: set[int]) -> bool:
        """Whether a weight is applied to numbers the model holds (boundary points of an equation)."""
        return (
            isinstance(node.op, Contract)
            and any(i in weights for i in node.inputs)
            and any(i not in weights for i in node.inputs)
        )

    @cached_property
    def origin(self) -> Mapping[int, tuple[int, tuple[Op, ...], bool]]:
        """For values made from parameters alone: leaf, chain of operations, and whether it is pure."""
        found: dict[int, tuple[int, tuple[Op, ...], bool]] = {i: (i, (), True) for i, _ in self.graph.params()}
        for node in self.graph.nodes:
            if node.output in self.live:
                continue
            roots = [i for i in node.inputs if i in found]
            if not roots:
                continue
            leaf, chain, pure = found[roots[0]]
            found[node.output] = (leaf, (*chain, node.op), pure and isinstance(node.op, MOVES) and len(roots) == 1)
        return found

    @cached_property
    def made_of(self) -> Mapping[int, tuple[Node, ...]]:
        """Nodes computed from parameters alone, by each leaf they depend on, in order."""
        found: dict[int, list[Node]] = {}
        for node in self.graph.nodes:
            if node.output in self.origin:
                for leaf in self.roots(node.output):
                    found.setdefault(leaf, []).append(node)
        return {i: tuple(v) for i, v in found.items()}

    def collect(self) -> dict[int, list[Use]]:
        """Uses of every parameter leaf, in execution order."""
        if self.uses:
            return self.uses
        for at, node in enumerate(self.graph.nodes):
            if node.output not in self.live:
                for leaf, i, slot in self._dressing(node):
                    pure = self.origin[i][2]
                    self.uses.setdefault(leaf, []).append(Use(leaf, i, self.origin[i][1], pure, at, slot))
                continue
            for slot, i in enumerate(node.inputs):
                if i in self.origin:
                    for leaf in self.roots(i, dressed=False):
                        _, chain, pure = self.origin[i]
                        own = self.origin[i][0] == leaf
                        self.uses.setdefault(leaf, []).append(
                            Use(leaf, i, chain if own else (), pure and own, at, slot)
                        )
        return self.uses

    def applied(self, leaf: int) -> list[Use]:
        """Contractions that apply a weight: over the same of its dimensions as the first one. A derivative
        taken inside the model contracts over the others and is no further application."""
        found: list[tuple[Use, tuple[int, ...]]] = []
        for use in self.uses.get(leaf, ()):
            op = self.graph.nodes[use.node].op
            if isinstance(op, Contract):
                found.append((use, self._summed(op, use)))
        first = (self.graph.summed or {}).get(leaf)
        if first is None or all(over != first for _, over in found):
            first = found[0][1] if found else ()
        return [use for use, over in found if over == first]

    def _summed(self, op: Contract, use: Use) -> tuple[int, ...]:
        """Leaf dimensions that a contraction sums over, through permutations of the leaf."""
        labels = op.b if use.slot else op.a
        order = leaf_axes(use, len(labels)) or range(len(labels))
        return tuple(sorted(order[i] for i, lab in enumerate(labels) if lab not in op.out))

    def roots(self, value: int, *, dressed: bool = True) -> tuple[int, ...]:
        """Parameter leaves a value made of parameters depends on; ``dressed=False``: without the gains and
        biases that were laid over the others on the way."""
        if value in self.graph.leaves:
            return (value,) if self.graph.leaves[value].role == "param" else ()
        node = self.graph.nodes[self.producer[value]]
        made = [i for i in node.inputs if i in self.origin or i in self.graph.leaves]
        found = dict.fromkeys(r for i in made for r in self.roots(i, dressed=dressed))
        over = set[int]() if dressed else {leaf for leaf, _, _ in self._dressing(node)}
        return tuple(r for r in found if r not in over)

    def _dressing(self, node: Node) -> list[tuple[int, int, int]]:
        """``(leaf, operand, slot)`` of gains and biases among parameters alone: a table that is normalized, a
        weight with a scale for each row. They multiply or are added to something wider."""
        op = node.op
        if not isinstance(op, Pointwise) or op.fn not in {"add", "sub", "mul", "div"} or len(node.inputs) != 2:
            return []
        if any(i not in self.origin for i in node.inputs):
            return []
        sizes = [math.prod(self.graph.values[i].shape) for i in node.inputs]
        small = 0 if sizes[0] < sizes[1] else 1
        if sizes[0] == sizes[1] or (small == 0 and op.fn in {"sub", "div"}):
            return []
        operand, wide = node.inputs[small], node.inputs[1 - small]
        return [(r, operand, small) for r in self.roots(operand) if r not in self.roots(wide)]

    def role(self, use: Use) -> str:
        """Role of a parameter at one use."""
        node = self.graph.nodes[use.node]
        op = node.op
        if isinstance(op, Contract):
            return "weight"
        if isinstance(op, Lookup):
            return self._table(node) if use.slot == 0 else "index"
        if isinstance(op, (Concat, Update, Pad, Gather)):
            return "token"
        if isinstance(op, Pointwise):
            return self._elementwise(use, node, op)
        return "state"

    def _table(self, node: Node) -> str:
        """Rows fetched for data are a token table; rows fetched for constant places, positions."""
        ids = node.inputs[1]
        if ids in self.live:
            return "table"
        return "position table"

    def _elementwise(self, use: Use, node: Node, op: Pointwise) -> str:
        wide = sum(n > 1 for n in self.graph.values[use.leaf].shape)
        if op.fn in {"add", "sub"}:
            return (
                "position"
                if wide > 1 and self.graph.leaves[use.leaf].role == "param" and self._spans_channels(use)
                else "bias"
            )
        if op.fn in {"mul", "div"}:
            return "gain" if self.neutral(use) is not None else "shape"
        if op.fn in {"leaky_relu", "prelu", "elu", "celu"} and use.slot > 0:
            return "slope"
        if op.fn == "where" and op.args[0] is None and use.slot > 0 and node.inputs[0] not in self.live:
            return "token"  # stands in masked places
        return "shape"

    def neutral(self, use: Use) -> float | None:
        """Value, zero or one, of a parameter that multiplies through ``use.view`` (``x``, ``1 + x``, ``exp(x)``) at
        which it multiplies by one; None where neither does: a decay ``-exp(x)``, a direction ``x / |x|``."""
        for start in (1.0, 0.0):
            value = np.asarray(start)
            for op in use.view:
                if isinstance(op, Pointwise) and op.args.count(None) == 1:
                    value = evaluate(op, [value])
                elif isinstance(op, Pointwise) and len(self.roots(use.value)) > 1:
                    return 1.0  # several parameters meet: each keeps to one
                elif not isinstance(op, MOVES):
                    return None
            if abs(float(value) - 1) < 1e-9:
                return start
        return None

    def _spans_channels(self, use: Use) -> bool:
        """An added parameter that varies along more than one axis of what it is added to."""
        node = self.graph.nodes[use.node]
        other = next((i for s, i in enumerate(node.inputs) if s != use.slot), None)
        if other is None:
            return False
        source = self.source(other)
        # logits made from two activations: the parameter is a bias of attention, not a position
        made = self.producer.get(source)
        if made is None:
            return True
        op = self.graph.nodes[made].op
        both = isinstance(op, Contract) and all(i in self.live for i in self.graph.nodes[made].inputs)
        return not (both or self._beside_weight(use, other, made))

    def _beside_weight(self, use: Use, other: int, made: int) -> bool:
        """Whether every axis along which an added parameter varies belongs to the weight that made what it is added
        to: biases of heads, experts or ensemble members."""
        node = self.graph.nodes[made]
        if not isinstance(node.op, Contract) or node.output != other:
            return False
        weights = [(lab, i) for lab, i in zip((node.op.a, node.op.b), node.inputs, strict=True) if i in self.origin]
        if len(weights) != 1:
            return False
        labels = weights[0][0]
        shape, whole = self.graph.values[use.value].shape, self.graph.values[other].shape
        wide = [len(whole) - len(shape) + d for d, n in enumerate(shape) if n > 1]
        return len(shape) <= len(whole) and all(node.op.out[d] in labels for d in wide)

    def source(self, value: int, *, cuts: bool = True) -> int:
        """Follow moves, scalar scalings and dropout back to the operation that made a value; ``cuts``:
        through slices too."""
        moves = MOVES if cuts else tuple(m for m in MOVES if m is not Slice)
        while value in self.producer:
            node = self.graph.nodes[self.producer[value]]
            live = [i for i in node.inputs if i in self.live]
            passing = isinstance(node.op, (*moves, Dropout)) or (
                isinstance(node.op, Pointwise) and node.op.fn in {"add", "sub", "mul", "div"}
            )
            if not passing or len(live) != 1:
                return value
            value = live[0]
        return value

    def feeds(self, value: int) -> list[str]:
        """What a value goes through, in words, until it branches or meets another contraction."""
        words: list[str] = []
        for _ in range(12):
            nodes = [self.graph.nodes[at] for at in self.consumers.get(value, ())]
            if len(nodes) != 1:
                if len(nodes) > 1:
                    words.append(f"{len(nodes)} uses")
                elif value in self.graph.outputs:
                    words.append("output")
                break
            node = nodes[0]
            word = describe(node.op)
            if word and not (words and words[-1] == word):
                words.append(word)
            if isinstance(node.op, (Contract, Softmax, Normalize)):
                break
            value = node.output
        return words


def describe(op: Op) -> str:
    """A word or two for an operation; empty for pure moves."""
    if isinstance(op, Pointwise):
        return op.fn
    if isinstance(op, (Reshape, Permute, Expand, Slice)):
        return ""
    if isinstance(op, Contract):
        return "convolution" if op.windows else "contraction"
    name = type(op).__name__.lower()
    kind: Any = getattr(op, "kind", None)
    if name == "pool":
        return f"{kind}_pool"
    if name == "reduce":
        return str(kind)
    return {"normalize": "norm"}.get(name, name)

"""Normalization recognised by following what a value is a statistic of.

Every value may carry a tag: the mean, the mean square, the variance or the inverse standard deviation
of some source over some dimensions, or the deviation of the source from its mean. Tags pass through
reshapes, broadcasts and guards; ``deviation * inverse standard deviation`` is a normalization, with a
gain on either factor and however the statistics were spelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._graph.graph import Builder, Node
from anyinit._graph.ops import Expand, Normalize, Pointwise, Reduce, Reshape

CHECKED = 1 << 21
"""Largest signal for which the alignment of its statistics is verified entry by entry."""


@dataclass(frozen=True, slots=True)
class Tag:
    """``kind``: mean, mean_of_squares, square_of_mean, var, std or inverse (1 / std); square and deviation
    are as large as the source. ``index`` numbers the groups a statistic belongs to, in its own shape;
    ``gain`` is a factor already multiplied on."""

    kind: str
    source: int
    dims: tuple[int, ...] = ()
    eps: float = 0.0
    center: bool = True
    index: NDArray[Any] | None = None
    gain: int = -1


STATISTICS = ("mean", "minus_mean", "mean_of_squares", "square_of_mean", "var", "std", "inverse")


@dataclass(slots=True)
class Norms:
    """One pass over the nodes of a builder."""

    builder: Builder
    tags: dict[int, Tag] = field(default_factory=dict[int, Tag])
    made: dict[int, Node] = field(default_factory=dict[int, Node])
    out: list[Node] = field(default_factory=list[Node])

    def run(self) -> list[Node]:
        """The nodes with normalizations put in, before what they replace."""
        for node in self.builder.nodes:
            self.made[node.output] = node
            self.out.extend(self._visit(node))
        return self.out

    # ---- tags -------------------------------------------------------------------------------
    def _visit(self, node: Node) -> list[Node]:
        op = node.op
        if isinstance(op, (Reshape, Expand)):
            self._moved(node, op.shape)
        elif isinstance(op, Reduce):
            self._reduced(node, op)
        elif isinstance(op, Pointwise):
            return self._pointwise(node, op)
        return [node]

    def _moved(self, node: Node, shape: tuple[int, ...]) -> None:
        tag = self.tags.get(node.inputs[0])
        if tag is None or tag.kind not in STATISTICS or tag.gain >= 0:
            return
        index = tag.index
        if index is not None:
            index = index.reshape(shape) if isinstance(node.op, Reshape) else np.broadcast_to(index, shape)
        self.tags[node.output] = replace(tag, index=index)

    def _reduced(self, node: Node, op: Reduce) -> None:
        source = node.inputs[0]
        tag = self.tags.get(source)
        index = self._groups(node.output)
        if op.kind == "mean":
            if tag is not None and tag.kind == "square":
                self.tags[node.output] = Tag("mean_of_squares", tag.source, op.dims, index=index, center=False)
            elif tag is not None and tag.kind == "squared_deviation" and op.dims == tag.dims:
                self.tags[node.output] = replace(tag, kind="var", index=index)
            else:
                self.tags[node.output] = Tag("mean", source, op.dims, index=index)
        elif op.kind == "var" and op.correction == 0:
            self.tags[node.output] = Tag("var", source, op.dims, index=index)

    def _groups(self, value: int) -> NDArray[Any] | None:
        shape = self.builder.shape(value)
        count = math.prod(shape)
        return np.arange(count, dtype=np.int32).reshape(shape) if count <= CHECKED else None

    def _pointwise(self, node: Node, op: Pointwise) -> list[Node]:
        if len(node.inputs) == 1:
            self._unary(node, op)
        elif len(node.inputs) == 2 and len(op.args) == 2:
            handler: Callable[[Node], list[Node] | None] | None = getattr(self, f"_{op.fn}", None)
            if handler is not None and op.fn in ("add", "sub", "mul", "div"):
                return handler(node) or [node]
        return [node]

    def _unary(self, node: Node, op: Pointwise) -> None:
        source, number = node.inputs[0], next((a for a in op.args if a is not None), None)
        tag, new = self.tags.get(source), None
        if op.fn == "square" or (op.fn == "pow" and op.args == (None, 2.0)):
            new = self._squared(source)
        elif tag is None or tag.gain >= 0:
            return
        elif op.fn == "neg" and tag.kind in ("mean", "minus_mean"):
            new = replace(tag, kind="minus_mean" if tag.kind == "mean" else "mean")
        elif op.fn in ("relu", "maximum", "clamp") and tag.kind in ("var", "mean_of_squares"):
            new = tag
        elif op.fn == "add" and tag.kind in ("var", "mean_of_squares") and number is not None:
            new = replace(tag, eps=tag.eps + number)
        elif op.fn == "sqrt" and tag.kind in ("var", "mean_of_squares"):
            new = replace(tag, kind="std")
        elif op.fn == "rsqrt" and tag.kind in ("var", "mean_of_squares"):
            new = replace(tag, kind="inverse")
        elif op.fn == "pow" and op.args in ((None, 0.5), (None, -0.5)) and tag.kind in ("var", "mean_of_squares"):
            new = replace(tag, kind="std" if op.args[1] == 0.5 else "inverse")
        elif tag.kind == "std" and (op.fn == "reciprocal" or (op.fn == "div" and op.args == (1.0, None))):
            new = replace(tag, kind="inverse")
        if new is not None:
            self.tags[node.output] = new

    def _squared(self, source: int) -> Tag:
        tag = self.tags.get(source)
        if tag is not None and tag.kind == "deviation":
            return replace(tag, kind="squared_deviation")
        if tag is not None and tag.kind == "mean" and tag.gain < 0:
            return replace(tag, kind="square_of_mean")
        return Tag("square", source)

    # ---- combinations -----------------------------------------------------------------------
    def _sub(self, node: Node) -> None:
        x, y = node.inputs
        first, second = self.tags.get(x), self.tags.get(y)
        if (
            first is not None
            and second is not None
            and (first.kind, second.kind) == ("mean_of_squares", "square_of_mean")
        ):
            if (first.source, first.dims) == (second.source, second.dims):
                self.tags[node.output] = replace(first, kind="var", center=True)
        elif second is not None and second.kind == "mean" and self._fits(x, second, node.output):
            self.tags[node.output] = Tag("deviation", second.source, second.dims)

    def _add(self, node: Node) -> list[Node] | None:
        """``x * s + (b - mean * s)`` with ``s`` an inverse standard deviation, maybe times a gain."""
        for first, second in (node.inputs, node.inputs[::-1]):
            for x, s in self._factors(first):
                tag = self.tags.get(s)
                if tag is None or tag.kind != "inverse" or not tag.center or not self._same(x, tag.source):
                    continue
                shift = self._shift(second, s, tag)
                if shift is not None and self.builder.shape(x) == self.builder.shape(node.output):
                    return self._affine(node, x, tag, shift)
        return None

    def _factors(self, value: int) -> list[tuple[int, int]]:
        made = self.made.get(value)
        pair = made.inputs if made is not None and made.op == Pointwise("mul", (None, None)) else ()
        return [(pair[0], pair[1]), (pair[1], pair[0])] if pair else []

    def _shift(self, value: int, s: int, tag: Tag) -> tuple[int, ...] | None:
        """``(b,)`` if the value is ``b - mean * s``, ``()`` if it is ``-mean * s``."""

        def centre(v: int, kind: str) -> bool:
            for m, other in self._factors(v):
                found = self.tags.get(m)
                if other == s and found is not None and found.kind == kind:
                    return (found.source, found.dims) == (tag.source, tag.dims)
            return False

        made = self.made.get(value)
        if made is None or not isinstance(made.op, Pointwise):
            return None
        if made.op.fn == "neg" and centre(made.inputs[0], "mean"):
            return ()
        if centre(value, "minus_mean"):
            return ()
        if made.op.args != (None, None):
            return None
        a, b = made.inputs
        if made.op.fn == "sub" and centre(b, "mean"):
            return (a,)
        if made.op.fn == "add":
            return (b,) if centre(a, "minus_mean") else (a,) if centre(b, "minus_mean") else None
        return None

    def _affine(self, node: Node, x: int, tag: Tag, shift: tuple[int, ...]) -> list[Node]:
        shape, grouped = self.builder.shape(x), self.builder.shape(tag.source)
        new = [self._node(node, Normalize(tag.dims, tag.eps, True), (tag.source,), grouped)]
        if grouped != shape:
            new.append(self._node(node, Reshape(shape), (new[-1].output,), shape))
        for fn, operand in (("mul", (tag.gain,) if tag.gain >= 0 else ()), ("add", shift)):
            if operand:
                new.append(self._node(node, Pointwise(fn, (None, None)), (new[-1].output, *operand), shape))
        last = new.pop()
        return [*new, replace(last, output=node.output, step=node.step)]

    def _mul(self, node: Node) -> list[Node] | None:
        x, y = node.inputs
        if x == y or self._alike(x, y):
            self.tags[node.output] = self._squared(x)
            return None
        for signal, factor in ((x, y), (y, x)):
            tag = self.tags.get(factor)
            if tag is not None and tag.kind == "inverse":
                found = self._normalized(node, signal, tag)
                if found is not None:
                    return found
                if tag.gain < 0 and signal not in self.tags:
                    self.tags[node.output] = replace(tag, gain=signal)
        return None

    def _div(self, node: Node) -> list[Node] | None:
        signal, factor = node.inputs
        tag = self.tags.get(factor)
        return self._normalized(node, signal, tag) if tag is not None and tag.kind == "std" else None

    def _alike(self, x: int, y: int) -> bool:
        a, b = self.made.get(x), self.made.get(y)
        if a is None or b is None or a.op != b.op:
            return False
        if a.inputs == b.inputs:
            return True
        tags = self.tags.get(x), self.tags.get(y)
        return tags[0] is not None and tags[0].kind == "deviation" and tags[0] == tags[1]

    def _fits(self, x: int, tag: Tag, whole: int) -> bool:
        """Whether the statistic of ``tag`` belongs to ``x``, entry by entry."""
        shape = self.builder.shape(x)
        source = self.builder.shape(tag.source)
        if self.builder.shape(whole) != shape or math.prod(shape) != math.prod(source) or not self._same(x, tag.source):
            return False
        if tag.index is None or math.prod(shape) > CHECKED:
            return True
        kept = tuple(1 if i in tag.dims else n for i, n in enumerate(source))
        wanted = np.broadcast_to(np.arange(math.prod(kept), dtype=np.int32).reshape(kept), source).reshape(shape)
        return bool((np.broadcast_to(tag.index, shape) == wanted).all())

    def _same(self, x: int, source: int) -> bool:
        """Whether two values are one signal, up to reshapes."""
        return self._root(x) == self._root(source)

    def _root(self, value: int) -> int:
        node = self.made.get(value)
        while node is not None and isinstance(node.op, Reshape):
            value = node.inputs[0]
            node = self.made.get(value)
        return value

    # ---- the normalization itself -----------------------------------------------------------
    def _normalized(self, node: Node, signal: int, tag: Tag) -> list[Node] | None:
        own = self.tags.get(signal)
        deviation = own is not None and own.kind == "deviation"
        if tag.center:
            if not deviation or own is None or own.dims != tag.dims or not self._same(own.source, tag.source):
                return None
        elif deviation and own is not None and own.source != tag.source:
            return None
        probe = self.made[signal].inputs[0] if tag.center else signal
        if not self._fits(probe, tag, signal):
            return None
        shape, grouped = self.builder.shape(signal), self.builder.shape(tag.source)
        value, new = self._node(node, Normalize(tag.dims, tag.eps, tag.center), (tag.source,), grouped), list[Node]()
        new.append(value)
        if grouped != shape:
            new.append(self._node(node, Reshape(shape), (value.output,), shape))
        if tag.gain >= 0:
            return [*new, replace(node, op=Pointwise("mul", (None, None)), inputs=(new[-1].output, tag.gain))]
        last = new.pop()
        return [*new, replace(last, output=node.output, step=node.step)]

    def _node(self, like: Node, op: Any, inputs: Sequence[int], shape: tuple[int, ...]) -> Node:
        self.builder.values.append(replace(self.builder.values[like.output], shape=shape))
        made = Node(op, tuple(inputs), len(self.builder.values) - 1, like.scope, like.call, -1)
        self.made[made.output] = made
        return made

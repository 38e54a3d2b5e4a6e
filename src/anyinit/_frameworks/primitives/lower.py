"""From flat JAX variables to values of the graph: what a variable is bound to, and the translator registry."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anyinit._core.pointwise import FUNCTIONS
from anyinit._frameworks.primitives.flat import Aval, Flat, Step
from anyinit._frameworks.primitives.fold import number, shrunk, uniform
from anyinit._graph.graph import BOOL, COMPLEX, FLOAT, INT, Builder, Leaf, Node
from anyinit._graph.ops import Expand, Fill, Op, Opaque, Permute, Pointwise, Reduce, Reshape

KEY, BITS = "key", "bits"


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """What a variable stands for.

    ``value`` is a value of the graph whose shape broadcasts (right-aligned) to ``shape``: nothing is
    expanded until an operation needs it. Constants hold ``data`` instead, in the same way. Keys and
    random bits (``kind`` ``key`` or ``bits``) are neither: they only say that what follows is random.
    """

    shape: tuple[int, ...]
    kind: str = FLOAT
    value: int = -1
    data: Any = None


def same(x: Bound, y: Bound) -> bool:
    """Whether two operands are the same value of the graph."""
    return x.value >= 0 and (x.value, x.shape) == (y.value, y.shape)


Result = Bound | Sequence[Bound]
Translator = Callable[..., Result]
TRANSLATORS: dict[str, Translator] = {}


def translates(*names: str) -> Callable[[Translator], Translator]:
    """Register ``fn(lowering, step, *operands) -> outputs`` for primitives by name."""

    def register(fn: Translator) -> Translator:
        TRANSLATORS.update(dict.fromkeys(names, fn))
        return fn

    return register


def kind_of(dtype: Any) -> str:
    """Kind of number of a JAX type."""
    text = str(dtype)
    if text.startswith("key"):
        return KEY
    if text.startswith("bool"):
        return BOOL
    if text.startswith(("int", "uint")):
        return INT
    return COMPLEX if text.startswith("complex") else FLOAT


def strip(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without its leading ones: what right-aligned broadcasting cannot tell apart."""
    first = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return tuple(shape[first:])


@dataclass(slots=True)
class Lowering:
    """One translation in progress."""

    flat: Flat
    builder: Builder = field(default_factory=Builder)
    env: dict[int, Bound] = field(default_factory=dict[int, Bound])
    producer: dict[int, int] = field(default_factory=dict[int, int])
    random: set[int] = field(default_factory=set[int])
    fed: set[int] = field(default_factory=set[int])
    trained: set[int] = field(default_factory=set[int])
    observed: dict[int, int] = field(default_factory=dict[int, int])

    # ---- reading operands -------------------------------------------------------------------
    def read(self, var: int) -> Bound:
        """The binding of a variable; known constants are bound on first use."""
        if var not in self.env:
            value, aval = self.flat.known[var], self.flat.avals[var]
            kind = kind_of(aval.dtype)
            self.env[var] = Bound(aval.shape, kind, data=None if kind == KEY else value)
        return self.env[var]

    def scalar(self, bound: Bound) -> float | None:
        """The number that fills a constant, or ``None``."""
        if bound.data is None or bound.kind == COMPLEX:
            return None
        found = uniform(np.asarray(bound.data))
        return None if found is None else number(found)

    def lazy(self, bound: Bound) -> int:
        """A value whose shape broadcasts to the operand's."""
        if bound.value >= 0:
            return bound.value
        if bound.data is None:
            raise TypeError(f"{bound.kind} operand where numbers are needed")
        data = np.asarray(bound.data)
        found = uniform(data)
        if found is not None and bound.kind != COMPLEX:
            return self.add(Fill(number(found), bound.shape), (), bound.shape, bound.kind)
        data = shrunk(data)
        leaf = Leaf("const", f"const.{len(self.builder.leaves)}", dtype=str(data.dtype), data=data)
        return self.builder.leaf(leaf, data.shape, bound.kind)

    def full(self, bound: Bound) -> int:
        """A value of exactly the operand's shape."""
        value = self.lazy(bound)
        shape = self.builder.shape(value)
        if shape == bound.shape:
            return value
        if math.prod(shape) == math.prod(bound.shape):
            return self.reshape(value, bound.shape)
        return self.add(Expand(bound.shape), (value,), bound.shape, self.builder.values[value].kind)

    # ---- making nodes -----------------------------------------------------------------------
    def add(self, op: Op, inputs: Sequence[int], shape: Sequence[int], kind: str = FLOAT) -> int:
        """A node; keeps what is fed by data or by parameters."""
        out = self.builder.add(op, tuple(inputs), tuple(int(n) for n in shape), kind)
        self.producer[out] = len(self.builder.nodes) - 1
        if self.fed.intersection(inputs):
            self.fed.add(out)
        if self.trained.intersection(inputs):
            self.trained.add(out)
        return out

    def made(self, op: Op, inputs: Sequence[int], shape: Sequence[int], kind: str = FLOAT) -> Bound:
        """A node as a binding."""
        shape = tuple(int(n) for n in shape)
        return Bound(shape, kind, self.add(op, inputs, shape, kind))

    def node(self, value: int) -> Node | None:
        """The node that produced a value, if a node did."""
        return self.builder.nodes[self.producer[value]] if value in self.producer else None

    def reshape(self, value: int, shape: Sequence[int]) -> int:
        """Row-major reshape; chains collapse, and dimensions of one kept by a reduction stay its own."""
        shape = tuple(int(n) for n in shape)
        node, kind = self.node(value), self.builder.values[value].kind
        if self.builder.shape(value) == shape:
            return value
        if node is not None and isinstance(node.op, Reshape):
            return self.reshape(node.inputs[0], shape)
        if node is not None and isinstance(node.op, Reduce) and not node.op.keepdims:
            source = self.builder.shape(node.inputs[0])
            if shape == tuple(1 if i in node.op.dims else n for i, n in enumerate(source)):
                return self.add(replace(node.op, keepdims=True), node.inputs, shape, kind)
        return self.add(Reshape(shape), (value,), shape, kind)

    def permute(self, value: int, order: Sequence[int]) -> int:
        """Permuted dimensions; chains collapse."""
        order = tuple(int(i) for i in order)
        node, shape = self.node(value), self.builder.shape(value)
        if node is not None and isinstance(node.op, Permute):
            return self.permute(node.inputs[0], tuple(node.op.order[i] for i in order))
        if order == tuple(range(len(order))):
            return value
        return self.add(Permute(order), (value,), [shape[i] for i in order], self.builder.values[value].kind)

    def relabel(self, bound: Bound, shape: Sequence[int], source: Sequence[int | None]) -> Bound:
        """Dimensions inserted, broadcast or dropped (size one): ``source[i]`` is the old place of new
        dimension ``i``. Costs a reshape only where right-aligned broadcasting cannot express it."""
        shape = tuple(int(n) for n in shape)
        if bound.data is not None:
            data = np.broadcast_to(bound.data, bound.shape)
            kept = [i for i in source if i is not None]
            view = [1 if i is None else data.shape[i] for i in source]
            dropped = tuple(i for i in range(data.ndim) if i not in kept)
            return Bound(shape, bound.kind, data=np.broadcast_to(data.squeeze(dropped).reshape(view), shape))
        value = self.lazy(bound)
        own = self.builder.shape(value)
        padded = (1,) * (len(bound.shape) - len(own)) + own
        wanted = strip([1 if i is None else padded[i] for i in source])
        if wanted != strip(own) or len(own) > len(shape):
            value = self.reshape(value, wanted)
        return Bound(shape, bound.kind, value)

    def pointwise(self, fn: str, args: Sequence[Bound | float], shape: Sequence[int], kind: str = FLOAT) -> Bound:
        """An elementwise node on operands as small as they come; its value may be smaller than ``shape``."""
        operands, slots = list[int](), list[float | None]()
        for arg in args:
            found = self.scalar(arg) if isinstance(arg, Bound) else float(arg)
            slots.append(found)
            if found is None:
                assert isinstance(arg, Bound)
                operands.append(self.lazy(arg))
        shape = tuple(int(n) for n in shape)
        if not operands:
            number = np.asarray(FUNCTIONS[fn](*slots))
            return Bound(shape, kind, data=np.broadcast_to(number, shape))
        small = np.broadcast_shapes(*(self.builder.shape(i) for i in operands))
        value = self.add(Pointwise(fn, tuple(slots)), operands, small, kind)
        return Bound(shape, kind, value)

    def opaque(self, step: Step, ins: Sequence[Bound], why: str = "") -> list[Bound]:
        """One opaque node for every output."""
        operands = [self.full(b) for b in ins if b.kind not in (KEY, BITS)]
        out = list[Bound]()
        for place, aval in enumerate(step.avals):
            kind = kind_of(aval.dtype)
            op = Opaque(step.name, why or "no translation for this primitive", place)
            out.append(Bound(aval.shape, KEY) if kind == KEY else self.made(op, operands, aval.shape, kind))
        return out

    # ---- the walk ---------------------------------------------------------------------------
    def step(self, position: int, step: Step) -> None:
        """Translate one step and bind its outputs."""
        self.builder.scope, self.builder.call, self.builder.step = step.scope, step.name, position
        ins = [self.read(v) for v in step.ins]
        out = self._translate(step, ins)
        outs = [out] if isinstance(out, Bound) else list(out)
        for var, bound, aval in zip(step.outs, outs, step.avals, strict=True):
            self.env[var] = bound
            if bound.value >= 0 and self.builder.shape(bound.value) == aval.shape:
                self._observe(bound.value, var, position)

    def _observe(self, value: int, var: int, position: int) -> None:
        """A value is seen at the variable it became, and so is what this very step only reshaped into it."""
        while value not in self.observed:
            self.observed[value] = var
            node = self.node(value)
            if node is None or node.step != position or not isinstance(node.op, Reshape):
                break
            value = node.inputs[0]

    def _translate(self, step: Step, ins: list[Bound]) -> Result:
        translator = TRANSLATORS.get(step.name)
        chance = any(b.kind in (KEY, BITS) for b in ins) and not getattr(translator, "takes_bits", False)
        if chance:
            return [Bound(a.shape, KEY if kind_of(a.dtype) == KEY else BITS) for a in step.avals]
        if translator is None:
            return self.opaque(step, ins)
        return translator(self, step, *ins)


def takes_bits(fn: Translator) -> Translator:
    """Mark a translator that wants to see keys and random bits."""
    fn.takes_bits = True  # type: ignore[attr-defined]
    return fn


def out_shape(step: Step) -> tuple[int, ...]:
    """Shape of the first output."""
    return step.avals[0].shape


def out_kind(step: Step) -> str:
    """Kind of the first output."""
    return kind_of(step.avals[0].dtype)


__all__ = ["BITS", "KEY", "Aval", "Bound", "Lowering", "translates", "takes_bits"]

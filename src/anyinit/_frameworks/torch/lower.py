"""From ATen arguments to nodes: handles on values, the node-building helpers, and the registries.

A translator is a short function registered under an ATen name, ``@aten("linear")``. It receives a
:class:`Lower` and the call's own arguments with every tensor replaced by a handle :class:`V`; it
adds nodes and returns the handle of the result (a tuple for several results, ``None`` for a result
nobody should read). The last node it adds is the result of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anyinit._graph import ops
from anyinit._graph.graph import BOOL, COMPLEX, FLOAT, INT, Builder, Leaf

Shape = tuple[int, ...]
_RANK = {BOOL: 0, INT: 1, FLOAT: 2, COMPLEX: 3}
_TRUTH = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor"}
    | {"isnan", "isinf", "isfinite"}
)
_CLOSED = frozenset(  # on integers these stay integers
    {"add", "sub", "mul", "neg", "abs", "sign", "square", "maximum", "minimum", "clamp", "remainder", "fmod"}
    | {"floor_divide", "identity", "where", "bit_and", "bit_or", "relu", "pow", "floor", "ceil", "round", "trunc"}
)


class V:
    """Handle on a value of the graph. ``data`` holds its contents where they are known; the value
    itself is only added to the graph when ``id`` is read, so arguments nobody uses leave no leaf."""

    __slots__ = ("_id", "_make", "kind", "shape", "source")

    def __init__(self, shape: Shape, kind: str, value: int | None = None, make: Callable[[], int] | None = None,
                 source: Callable[[], Any] | None = None) -> None:  # fmt: skip
        self.shape, self.kind, self._id, self._make, self.source = shape, kind, value, make, source

    @property
    def id(self) -> int:
        """Value id; adds the leaf on first use."""
        if self._id is None:
            assert self._make is not None
            self._id = self._make()
        return self._id

    @property
    def made(self) -> bool:
        """Whether the value is in the graph already."""
        return self._id is not None

    @property
    def known(self) -> bool:
        """Whether the contents depend on no input and no parameter."""
        return self.source is not None

    @property
    def data(self) -> Any:
        """The framework's own tensor with the known contents, or None."""
        return self.source() if self.source is not None else None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape, dtype=np.int64))


Operand = V | float | int | bool
Translator = Callable[..., Any]
ATEN: dict[str, Translator] = {}


def aten(*names: str) -> Callable[[Translator], Translator]:
    """Register a translator for ATen operations, by base name (``add``) or overload (``add.Tensor``)."""

    def register(fn: Translator) -> Translator:
        for name in names:
            if name in ATEN:
                raise ValueError(f"two translations of {name}")
            ATEN[name] = fn
        return fn

    return register


def broadcast(*shapes: Shape) -> Shape:
    """Right-aligned broadcast shape."""
    return tuple(int(n) for n in np.broadcast_shapes(*shapes))


def axis(dim: int, ndim: int) -> int:
    """A non-negative dimension (0 for a scalar tensor)."""
    return dim + ndim if dim < 0 else dim


def axes(dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Sorted non-negative dimensions; none or empty means all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(ndim))
    listed = (dims,) if isinstance(dims, int) else tuple(dims)
    return tuple(sorted(axis(d, ndim) for d in listed)) if ndim else ()


@dataclass(slots=True)
class Lower:
    """Adds nodes for one framework call at a time. ``shapes`` and ``kinds`` are those of the call's
    tensor results, in order; ``base`` is its name without the underscore of an in-place call."""

    builder: Builder
    shapes: tuple[Shape, ...] = ()
    kinds: tuple[str, ...] = ()
    base: str = ""
    results: Sequence[Any] = ()
    _masks: dict[Shape, V] = field(default_factory=dict[Shape, V])

    # --- primitives -------------------------------------------------------------------------

    def add(self, op: ops.Op, inputs: Sequence[V], shape: Sequence[int], kind: str = FLOAT) -> V:
        """One node."""
        size = tuple(int(n) for n in shape)
        return V(size, kind, self.builder.add(op, tuple(x.id for x in inputs), size, kind))

    def const(self, data: np.ndarray[Any, Any], name: str = "const") -> V:
        """A constant made by a translation itself."""
        kind = {"f": FLOAT, "c": COMPLEX, "b": BOOL}.get(data.dtype.kind, INT)
        leaf = Leaf("const", name, str(data.dtype), data=data)
        return V(data.shape, kind, self.builder.leaf(leaf, data.shape, kind))

    def fill(self, value: float, shape: Sequence[int], kind: str = FLOAT) -> V:
        """A constant tensor."""
        return self.add(ops.Fill(float(value), tuple(shape)), (), shape, kind)

    def causal_mask(self, rows: int, cols: int) -> V:
        """True on and below the diagonal; one leaf per shape."""
        if (rows, cols) not in self._masks:
            self._masks[rows, cols] = self.const(np.tril(np.ones((rows, cols), dtype=bool)), "causal mask")
        return self._masks[rows, cols]

    def note(self, text: str) -> None:
        """A fact for the report, once."""
        if text not in self.builder.notes:
            self.builder.notes.append(text)

    # --- elementwise ------------------------------------------------------------------------

    def pointwise(self, fn: str, *operands: Operand) -> V:
        """Elementwise node; numbers and known single entries become attributes."""
        operands = tuple(self.const(np.array(x, np.complex64)) if isinstance(x, complex) else x for x in operands)
        plain = [self._scalar(x) for x in operands]
        if not any(isinstance(x, V) for x in plain):  # everything is a number: keep the first tensor
            where = next(i for i, x in enumerate(operands) if isinstance(x, V))
            plain[where] = operands[where]
        tensors = [x for x in plain if isinstance(x, V)]
        shape = broadcast(*(x.shape for x in operands if isinstance(x, V)))
        if broadcast(*(x.shape for x in tensors)) != shape:  # a known single entry of higher rank
            plain = list(operands)
            tensors = [x for x in plain if isinstance(x, V)]
        args = tuple(None if isinstance(x, V) else float(x) for x in plain)
        return self.add(ops.Pointwise(fn, args), tensors, shape, self._kind(fn, operands))

    @staticmethod
    def _scalar(x: Operand) -> Operand:
        if isinstance(x, V) and x.known and x.size == 1 and x.kind != COMPLEX:
            return float(x.data.item())
        return x

    @staticmethod
    def _kind(fn: str, operands: Sequence[Operand]) -> str:
        if fn in _TRUTH:
            return BOOL
        if fn in ("real", "imag"):
            return FLOAT
        used = operands[1:] if fn == "where" else operands
        kinds = [x.kind if isinstance(x, V) else FLOAT if isinstance(x, float) else INT for x in used]
        kind = max(kinds, key=lambda k: _RANK[k])
        if fn == "abs" and kind == COMPLEX:
            return FLOAT
        return kind if fn in _CLOSED or kind == COMPLEX else FLOAT

    # --- structure --------------------------------------------------------------------------

    def reshape(self, x: V, shape: Sequence[int]) -> V:
        """Row-major reshape; nothing where the shape is the same."""
        size = tuple(int(n) for n in shape)
        return x if size == x.shape else self.add(ops.Reshape(size), (x,), size, x.kind)

    def permute(self, x: V, order: Sequence[int]) -> V:
        """Permutation of dimensions; nothing where it is the identity."""
        order = tuple(order)
        if order == tuple(range(x.ndim)):
            return x
        return self.add(ops.Permute(order), (x,), tuple(x.shape[i] for i in order), x.kind)

    def expand(self, x: V, shape: Sequence[int]) -> V:
        """Broadcast to a shape; nothing where it is the same."""
        size = tuple(int(n) for n in shape)
        return x if size == x.shape else self.add(ops.Expand(size), (x,), size, x.kind)

    def slice(self, x: V, dim: int, start: int, stop: int, step: int = 1) -> V:
        """A range of one dimension; nothing where it is all of it."""
        if (start, step) == (0, 1) and stop >= x.shape[dim]:
            return x
        shape = list(x.shape)
        shape[dim] = len(range(start, stop, step))
        return self.add(ops.Slice(dim, start, stop, step), (x,), shape, x.kind)

    def select(self, x: V, dim: int, index: int) -> V:
        """One entry of a dimension, which disappears."""
        return self.reshape(self.slice(x, dim, index, index + 1), x.shape[:dim] + x.shape[dim + 1 :])

    def concat(self, parts: Sequence[V], dim: int) -> V:
        """Concatenation along an existing dimension."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[dim] = sum(p.shape[dim] for p in parts)
        return self.add(ops.Concat(dim), parts, shape, max((p.kind for p in parts), key=lambda k: _RANK[k]))

    def reduce(self, x: V, kind: str, dims: Sequence[int], keepdims: bool, correction: int = 0) -> V:
        """A reduction over non-negative dimensions."""
        dims = tuple(dims)
        kept = [1 if i in dims else n for i, n in enumerate(x.shape)]
        shape = kept if keepdims else [n for i, n in enumerate(x.shape) if i not in dims]
        result = {"any": BOOL, "all": BOOL, "argmax": INT, "norm": FLOAT, "var": FLOAT, "std": FLOAT}.get(kind, x.kind)
        return self.add(ops.Reduce(kind, dims, keepdims, correction), (x,), shape, result)

    def contract(self, a: V, b: V, la: Sequence[int], lb: Sequence[int], out: Sequence[int],
                 windows: Sequence[ops.Window] = ()) -> V:  # fmt: skip
        """Einstein summation; sizes follow from the labels and windows."""
        sizes = dict(zip(la, a.shape, strict=True)) | dict(zip(lb, b.shape, strict=True))
        sizes |= {w.out: window_size(w, sizes[w.a]) for w in windows}
        kind = COMPLEX if COMPLEX in (a.kind, b.kind) else FLOAT
        dense = {label: i for i, label in enumerate(dict.fromkeys((*la, *lb, *out)))}  # in order of appearance
        slides = tuple(replace(w, a=dense[w.a], tap=dense[w.tap], out=dense[w.out]) for w in windows)
        la_, lb_, out_ = (tuple(dense[label] for label in labels) for labels in (la, lb, out))
        return self.add(ops.Contract(la_, lb_, out_, slides), (a, b), [sizes[label] for label in out], kind)

    def channelwise(self, fn: str, x: V, vector: V | None, dim: int) -> V:
        """``fn(x, vector)`` with the vector laid along one dimension of ``x``."""
        if vector is None:
            return x
        tail = x.ndim - dim - 1
        return self.pointwise(fn, x, self.reshape(vector, vector.shape + (1,) * tail) if tail else vector)

    def opaque(self, call: str, why: str, inputs: Sequence[V]) -> tuple[V, ...]:
        """One opaque node per tensor result of the call."""
        return tuple(
            self.add(ops.Opaque(call, why, i), inputs, shape, kind)
            for i, (shape, kind) in enumerate(zip(self.shapes, self.kinds, strict=True))
        )


def window_size(window: ops.Window, space: int) -> int:
    """Number of outputs of a sliding dimension over ``space`` entries."""
    spread = (space - 1) * window.spread + 1
    reach = window.dilation * (window.size - 1) + 1
    return (spread + window.pad_low + window.pad_high - reach) // window.stride + 1

"""Operations that only rearrange: each as a chain of one-input steps per output.

``STEPS[name](shape, outs, *args)`` gives, for every output shape in ``outs``, the operations that
make it from the input. The chain is replayed when the base was written to, and inverted when the
view itself is written to (:func:`unview`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from anyinit._frameworks.torch.lower import Lower, Shape, V, axis
from anyinit._graph import ops

Chain = tuple[ops.Op, ...]
StepMaker = Callable[..., list[Chain]]
STEPS: dict[str, StepMaker] = {}


def steps(*names: str) -> Callable[[StepMaker], StepMaker]:
    """Register the chains of ATen operations that only rearrange."""

    def register(fn: StepMaker) -> StepMaker:
        STEPS.update(dict.fromkeys(names, fn))
        return fn

    return register


def apply(low: Lower, x: V, chain: Chain) -> V:
    """Add the nodes of a chain."""
    for op in chain:
        match op:
            case ops.Reshape(shape):
                x = low.reshape(x, shape)
            case ops.Permute(order):
                x = low.permute(x, order)
            case ops.Expand(shape):
                x = low.expand(x, shape)
            case ops.Slice(dim, start, stop, step):
                x = low.slice(x, dim, start, stop, step)
            case ops.Unfold(windows):
                shape = list(x.shape)
                for dim, size, step in windows:
                    shape[dim] = (shape[dim] - size) // step + 1
                x = low.add(op, (x,), [*shape, *(size for _, size, _ in windows)], x.kind)
            case _:
                x = low.add(op, (x,), x.shape, x.kind)
    return x


def unview(low: Lower, base: V, chain: Chain, new: V) -> V:
    """``base`` with the part that ``chain`` shows replaced by ``new``."""
    before: list[V] = []
    for _ in chain:
        before.append(base if not before else apply(low, before[-1], (chain[len(before) - 1],)))
    for op, x in zip(reversed(chain), reversed(before), strict=True):
        match op:
            case ops.Reshape():
                new = low.reshape(new, x.shape)
            case ops.Permute(order):
                new = low.permute(new, [order.index(i) for i in range(len(order))])
            case ops.Slice(dim, start, stop, step):
                if (start, step) != (0, 1) or stop < x.shape[dim]:
                    new = low.add(ops.Update(dim, start, stop, step), (x, new), x.shape, x.kind)
            case ops.Expand(shape):
                new = _unexpand(low, x, shape, new)
            case _:
                new = low.add(ops.Opaque("write to a view", "a write through overlapping windows"), (x, new), x.shape)
    return new


def _unexpand(low: Lower, x: V, shape: Shape, new: V) -> V:
    """All copies of an expanded entry are one cell: keep the last one written."""
    lead = len(shape) - x.ndim
    for dim in range(len(shape)):
        if dim < lead or x.shape[dim - lead] != shape[dim]:
            new = low.slice(new, dim, shape[dim] - 1, shape[dim])
    return low.reshape(new, x.shape)


@steps("detach", "alias", "lift_fresh", "lift", "resolve_conj", "resolve_neg", "positive", "contiguous", "clone", "to",
       "_to_copy", "type_as", "pin_memory", "detach_copy", "alias_copy", "lift_fresh_copy", "_lazy_clone")  # fmt: skip
def _same(shape: Shape, outs: Sequence[Shape], *args: Any, **kwargs: Any) -> list[Chain]:
    return [()]


@steps("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "view_as", "reshape_as", "squeeze",
       "unsqueeze", "ravel", "atleast_1d", "atleast_2d", "view_copy", "_reshape_copy", "squeeze_copy",
       "unsqueeze_copy")  # fmt: skip
def _reshape(shape: Shape, outs: Sequence[Shape], *args: Any, **kwargs: Any) -> list[Chain]:
    return [(ops.Reshape(outs[0]),)]


@steps("expand", "expand_as", "broadcast_to", "expand_copy")
def _expand(shape: Shape, outs: Sequence[Shape], *args: Any, **kwargs: Any) -> list[Chain]:
    return [(ops.Expand(outs[0]),)]


@steps("permute", "permute_copy")
def _permute(shape: Shape, outs: Sequence[Shape], dims: Sequence[int]) -> list[Chain]:
    return [(ops.Permute(tuple(axis(d, len(shape)) for d in dims)),)]


@steps("transpose", "swapaxes", "swapdims", "transpose_copy")
def _transpose(shape: Shape, outs: Sequence[Shape], dim0: int, dim1: int) -> list[Chain]:
    order = list(range(len(shape)))
    if order:
        a, b = axis(dim0, len(shape)), axis(dim1, len(shape))
        order[a], order[b] = order[b], order[a]
    return [(ops.Permute(tuple(order)),)]


@steps("t", "mT", "matrix_H", "adjoint")
def _swap_last(shape: Shape, outs: Sequence[Shape]) -> list[Chain]:
    return [()] if len(shape) < 2 else _transpose(shape, outs, -1, -2)


@steps("numpy_T")
def _reverse(shape: Shape, outs: Sequence[Shape]) -> list[Chain]:
    return [(ops.Permute(tuple(reversed(range(len(shape))))),)]


@steps("movedim", "moveaxis")
def _movedim(shape: Shape, outs: Sequence[Shape], source: Any, destination: Any) -> list[Chain]:
    n = len(shape)
    src = [axis(d, n) for d in ([source] if isinstance(source, int) else source)]
    dst = [axis(d, n) for d in ([destination] if isinstance(destination, int) else destination)]
    rest = iter(d for d in range(n) if d not in src)
    place = dict(zip(dst, src, strict=True))
    return [(ops.Permute(tuple(place[i] if i in place else next(rest) for i in range(n))),)]


@steps("slice", "slice_copy")
def _slice(shape: Shape, outs: Sequence[Shape], dim: int = 0, start: int | None = None, end: int | None = None,
           step: int = 1) -> list[Chain]:  # fmt: skip
    dim = axis(dim, len(shape))
    first, stop, _ = slice(start, sys.maxsize if end is None else end, step).indices(shape[dim])
    return [(ops.Slice(dim, first, stop, step),)]


@steps("narrow")
def _narrow(shape: Shape, outs: Sequence[Shape], dim: int, start: int, length: int) -> list[Chain]:
    dim = axis(dim, len(shape))
    start = axis(start, shape[dim])
    return [(ops.Slice(dim, start, start + length),)]


@steps("select", "select_copy")
def _select(shape: Shape, outs: Sequence[Shape], dim: int, index: int) -> list[Chain]:
    dim = axis(dim, len(shape))
    index = axis(index, shape[dim])
    return [(ops.Slice(dim, index, index + 1), ops.Reshape(shape[:dim] + shape[dim + 1 :]))]


@steps("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes",
       "hsplit", "vsplit", "split_copy", "split_with_sizes_copy")  # fmt: skip
def _split(shape: Shape, outs: Sequence[Shape], size: Any = None, dim: int = 0, **kwargs: Any) -> list[Chain]:
    dim = axis(kwargs.get("dim", dim), len(shape))
    chains: list[Chain] = []
    start = 0
    for out in outs:
        chains.append((ops.Slice(dim, start, start + out[dim]),))
        start += out[dim]
    return chains


@steps("unbind", "unbind_copy")
def _unbind(shape: Shape, outs: Sequence[Shape], dim: int = 0) -> list[Chain]:
    dim = axis(dim, len(shape))
    return [_select(shape, outs, dim, i)[0] for i in range(shape[dim])]


@steps("unfold", "unfold_copy")
def _unfold(shape: Shape, outs: Sequence[Shape], dimension: int, size: int, step: int) -> list[Chain]:
    return [(ops.Unfold(((axis(dimension, len(shape)), size, step),)),)]


@steps("diagonal")
def _diagonal(shape: Shape, outs: Sequence[Shape], offset: int = 0, dim1: int = 0, dim2: int = 1) -> list[Chain]:
    """The diagonal of an (n, m) block is every (m + 1)-th entry of its flattened form."""
    a, b = axis(dim1, len(shape)), axis(dim2, len(shape))
    rest = [d for d in range(len(shape)) if d not in (a, b)]
    lead, n, m = tuple(shape[d] for d in rest), shape[a], shape[b]
    length, start = outs[0][-1], offset if offset >= 0 else -offset * m
    stop = start + (length - 1) * (m + 1) + 1
    flat = ops.Reshape((*lead, n * m))
    return [(ops.Permute((*rest, a, b)), flat, ops.Slice(len(lead), start, stop, m + 1))]


def strided(shape: Shape, stride: Shape, size: Shape, new_stride: Shape, offset: int) -> Chain | None:
    """Steps from a tensor of this geometry to another view of its storage, for permutations and
    row-major reshapes of the whole; None otherwise."""
    if offset == 0 and size == shape and new_stride == stride:
        return ()
    if offset == 0 and sorted(zip(size, new_stride, strict=True)) == sorted(zip(shape, stride, strict=True)):
        pool = list(zip(shape, stride, strict=True))
        order: list[int] = []
        for item in zip(size, new_stride, strict=True):
            order.append(next(i for i, other in enumerate(pool) if other == item and i not in order))
        return (ops.Permute(tuple(order)),)
    if offset == 0 and _rows(shape) == stride and _rows(size) == new_stride and _count(shape) == _count(size):
        return (ops.Reshape(size),)
    return None


def _rows(shape: Shape) -> Shape:
    out: list[int] = []
    step = 1
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


def _count(shape: Shape) -> int:
    total = 1
    for n in shape:
        total *= n
    return total

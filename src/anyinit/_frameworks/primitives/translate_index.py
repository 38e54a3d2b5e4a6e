"""Indexing: gather, scatter and slices at computed positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._frameworks.primitives.translate_shape import cut
from anyinit._graph.graph import INT
from anyinit._graph.ops import Gather, Lookup, Scatter, Update


def _rows(low: Lowering, index: Bound) -> Bound:
    """Index vectors of length one as plain indices."""
    return low.relabel(index, index.shape[:-1], list(range(len(index.shape) - 1)))


def _starts(low: Lowering, index: Sequence[Bound]) -> list[int] | None:
    """Constant start positions, or ``None``."""
    found = [low.scalar(i) for i in index]
    return [int(f) for f in found if f is not None] if None not in found else None


@translates("gather")
def gather(low: Lowering, step: Step, x: Bound, index: Bound) -> Bound | list[Bound]:
    p, numbers = step.params, step.params["dimension_numbers"]
    sizes = tuple(int(n) for n in p["slice_sizes"])
    at, gone = (tuple(map(int, d)) for d in (numbers.start_index_map, numbers.collapsed_slice_dims))
    batching = tuple(map(int, getattr(numbers, "operand_batching_dims", ())))
    if index.data is not None and int(np.prod(index.shape[:-1])) == 1:
        return _fixed(low, step, x, np.asarray(index.data).reshape(-1), at, sizes)
    moving = [d for d in at if sizes[d] < x.shape[d]] or list(at[:1])
    if any(sizes[d] != 1 for d in moving) or any(
        sizes[d] != x.shape[d] for d in range(len(sizes)) if d not in (*moving, *batching)
    ):
        return low.opaque(step, [x, index], "gather of partial slices at computed positions")
    if batching:
        if len(moving) > 1:
            return low.opaque(step, [x, index], "gather over several dimensions at once")
        return low.made(Gather(moving[0]), (low.full(x), low.full(index)), out_shape(step), out_kind(step))
    ids = _combined(low, index, [at.index(d) for d in moving], [x.shape[d] for d in moving])
    return _lookup(low, step, x, ids, moving, gone)


def _combined(low: Lowering, index: Bound, places: list[int], sizes: list[int]) -> Bound:
    """One index out of several, as into a table whose leading dimensions are merged."""
    if len(places) == index.shape[-1] == 1:
        return _rows(low, index)
    shape, out = index.shape[:-1], None
    for place, size in zip(places, sizes, strict=True):
        if index.data is not None:
            part = Bound(shape, index.kind, data=np.broadcast_to(index.data, index.shape)[..., place])
        else:
            last = len(index.shape) - 1
            part = Bound(shape, index.kind, low.reshape(cut(low, low.full(index), last, place, place + 1), shape))
        if out is not None:
            part = low.pointwise("add", [low.pointwise("mul", [out, float(size)], shape, INT), part], shape, INT)
        out = part
    assert out is not None
    return out


def _lookup(low: Lowering, step: Step, x: Bound, index: Bound, dims: list[int], gone: tuple[int, ...]) -> Bound:
    """``take`` along ``dims``: a table read by indices, its rows moved to where the result wants them."""
    offsets = tuple(map(int, step.params["dimension_numbers"].offset_dims))
    rest = [d for d in range(len(x.shape)) if d not in dims]
    table = low.permute(low.full(x), (*dims, *rest))
    rows = int(np.prod([x.shape[d] for d in dims]))
    table = low.reshape(table, (rows, *(x.shape[d] for d in rest)))
    ids = low.full(index)
    value = low.add(Lookup(), (table, ids), (*index.shape, *(x.shape[d] for d in rest)), x.kind)
    window = [1 if d in dims else x.shape[d] for d in range(len(x.shape)) if d not in gone]
    value = low.reshape(value, (*index.shape, *window))
    lead = len(index.shape)
    heads, tails = iter(range(lead)), iter(range(lead, lead + len(window)))
    order = [next(tails) if place in offsets else next(heads) for place in range(lead + len(window))]
    return Bound(out_shape(step), out_kind(step), low.permute(value, order))


def _fixed(
    low: Lowering, step: Step, x: Bound, starts: np.ndarray, at: tuple[int, ...], sizes: tuple[int, ...]
) -> Bound:
    """A gather at one constant place is a slice."""
    value = low.full(x)
    for dim, start in zip(at, starts, strict=True):
        first = min(max(int(start), 0), x.shape[dim] - sizes[dim])
        value = cut(low, value, dim, first, first + sizes[dim])
    return Bound(out_shape(step), out_kind(step), low.reshape(value, out_shape(step)))


@translates("dynamic_slice")
def dynamic_slice(low: Lowering, step: Step, x: Bound, *index: Bound) -> Bound | list[Bound]:
    sizes = tuple(int(n) for n in step.params["slice_sizes"])
    starts = _starts(low, index)
    if starts is None:
        return _computed(low, step, x, index, sizes)
    return _fixed(low, step, x, np.asarray(starts), tuple(range(len(sizes))), sizes)


def _computed(
    low: Lowering, step: Step, x: Bound, index: Sequence[Bound], sizes: tuple[int, ...]
) -> Bound | list[Bound]:
    """A slice at a computed place: of one dimension, its entries are as likely as any others."""
    moving = [d for d, n in enumerate(sizes) if n != x.shape[d]]
    if len(moving) != 1:
        return low.opaque(step, [x, *index], "slice at computed positions of several dimensions")
    return low.made(Gather(moving[0]), (low.full(x), low.full(index[moving[0]])), out_shape(step), out_kind(step))


@translates("dynamic_update_slice")
def dynamic_update_slice(low: Lowering, step: Step, x: Bound, new: Bound, *index: Bound) -> Bound | list[Bound]:
    starts = _starts(low, index)
    if starts is None:
        return low.opaque(step, [x, new, *index], "write at computed positions")
    places = [min(max(s, 0), n - m) for s, n, m in zip(starts, x.shape, new.shape, strict=True)]
    return Bound(x.shape, x.kind, _written(low, low.full(x), low.full(new), list(enumerate(places))))


def _written(low: Lowering, base: int, new: int, places: list[tuple[int, int]]) -> int:
    """``base`` with a block replaced, one dimension after the other."""
    whole, part = low.builder.shape(base), low.builder.shape(new)
    places = [(d, s) for d, s in places if whole[d] != part[d]]
    if not places:
        return new
    (dim, start), rest = places[0], places[1:]
    if rest:
        new = _written(low, cut(low, base, dim, start, start + part[dim]), new, rest)
    return low.add(Update(dim, start, start + part[dim]), (base, new), whole, low.builder.values[base].kind)


@translates("scatter", "scatter-add", "scatter_add")
def scatter(low: Lowering, step: Step, base: Bound, index: Bound, new: Bound) -> Bound | list[Bound]:
    numbers = step.params["dimension_numbers"]
    at = tuple(map(int, numbers.scatter_dims_to_operand_dims))
    inserted = tuple(map(int, numbers.inserted_window_dims))
    if step.name == "scatter" and index.data is not None and int(np.prod(index.shape[:-1])) == 1:
        starts = dict(zip(at, np.asarray(index.data).reshape(-1), strict=True))
        left = iter(new.shape)
        block = [1 if d in inserted else next(left) for d in range(len(base.shape))]
        value = low.reshape(low.full(new), block)
        return Bound(
            base.shape,
            base.kind,
            _written(low, low.full(base), value, [(d, int(starts.get(d, 0))) for d in range(len(block))]),
        )
    if len(at) != 1 or getattr(numbers, "operand_batching_dims", ()):
        return low.opaque(step, [base, index, new], "scatter over several dimensions at once")
    kind = "set" if step.name == "scatter" else "add"
    operands = (low.full(base), low.full(index), low.full(new))
    return low.made(Scatter(at[0], kind), operands, base.shape, base.kind)

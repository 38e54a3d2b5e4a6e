"""Operations that move entries without touching them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._frameworks.primitives.translate_shape import cut
from anyinit._frameworks.tensorflow.lower import as_primitive, constant, numbers, one
from anyinit._graph.graph import BOOL, FLOAT, INT
from anyinit._graph.ops import Fill, Pad, Shuffle


@translates("Reshape", "Squeeze", "ExpandDims")
def reshape(low: Lowering, step: Step, x: Bound, *_: Bound) -> Any:
    return as_primitive(low, step, "reshape", [x], dimensions=None)


@translates("Transpose")
def transpose(low: Lowering, step: Step, x: Bound, order: Bound) -> Any:
    found = numbers(order)
    if found is None:
        return low.opaque(step, [x, order], "transpose whose order depends on data")
    return as_primitive(low, step, "transpose", [x], permutation=found)


@translates("ReverseV2")
def reverse(low: Lowering, step: Step, x: Bound, axes: Bound) -> Any:
    found = numbers(axes)
    if found is None:
        return low.opaque(step, [x, axes], "reversal along an axis that depends on data")
    return as_primitive(low, step, "rev", [x], dimensions=[d % len(x.shape) for d in found])


@translates("ConcatV2")
def concat(low: Lowering, step: Step, *ins: Bound) -> Any:
    found = numbers(ins[-1])
    if found is None:
        return low.opaque(step, ins, "concatenation along an axis that depends on data")
    kept = [x for x in ins[:-1] if 0 not in x.shape]
    if len(kept) == 1:
        return kept[0]
    return as_primitive(low, step, "concatenate", kept, dimension=found[0] % len(out_shape(step)))


@translates("Pack")
def pack(low: Lowering, step: Step, *ins: Bound) -> Any:
    return as_primitive(low, step, "stack", ins, axis=int(step.params["axis"]) % len(out_shape(step)))


@translates("Unpack")
def unpack(low: Lowering, step: Step, x: Bound) -> Any:
    return as_primitive(low, step, "unstack", [x], axis=int(step.params["axis"]) % len(x.shape))


@translates("Split", "SplitV")
def split(low: Lowering, step: Step, *ins: Bound) -> Any:
    x, axis = (ins[1], ins[0]) if step.name == "Split" else (ins[0], ins[2])
    found = numbers(axis)
    if found is None:
        return low.opaque(step, ins, "split along an axis that depends on data")
    dim = found[0] % len(x.shape)
    return as_primitive(low, step, "split", [x], axis=dim, sizes=[a.shape[dim] for a in step.avals])


@translates("Slice")
def slice_(low: Lowering, step: Step, x: Bound, begin: Bound, _: Bound) -> Any:
    found = numbers(begin)
    if found is None:
        return low.opaque(step, [x, begin], "slice at a computed position")
    value = low.full(x)
    for dim, (start, size) in enumerate(zip(found, out_shape(step), strict=True)):
        value = cut(low, value, dim, start, start + size)
    return Bound(out_shape(step), x.kind, value)


@translates("StridedSlice")
def strided(low: Lowering, step: Step, x: Bound, begin: Bound, end: Bound, by: Bound) -> Any:
    ends = numbers(begin), numbers(end), numbers(by)
    if None in ends:
        return low.opaque(step, [x, begin, end], "slice at a computed position")
    value, dim, rank = low.full(x), 0, len(x.shape)
    begins, stops, steps = (e for e in ends if e is not None)
    bit = {k: int(step.params[f"{k}_mask"]) for k in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    new = sum(bool(bit["new_axis"] >> i & 1) for i in range(len(begins)))
    for i in range(len(begins)):
        if bit["new_axis"] >> i & 1:
            continue
        if bit["ellipsis"] >> i & 1:
            dim += rank - (len(begins) - new - 1)
            continue
        size = x.shape[dim]
        if bit["shrink_axis"] >> i & 1:
            window: range = range(begins[i] % size, begins[i] % size + 1)
        else:
            first = None if bit["begin"] >> i & 1 else begins[i]
            last = None if bit["end"] >> i & 1 else stops[i]
            window = range(size)[first : last : steps[i]]
        value = _window(low, value, dim, window)
        dim += 1
    return Bound(out_shape(step), x.kind, low.reshape(value, out_shape(step)))


def _window(low: Lowering, value: int, dim: int, window: range) -> int:
    if window.step > 0:
        return cut(low, value, dim, window.start, window[-1] + 1, window.step)
    part = cut(low, value, dim, window[-1], window.start + 1, -window.step)
    return low.add(Shuffle((dim,)), (part,), low.builder.shape(part), low.builder.values[part].kind)


@translates("Tile")
def tile(low: Lowering, step: Step, x: Bound, reps: Bound) -> Any:
    found = numbers(reps)
    if found is None:
        return low.opaque(step, [x, reps], "copies whose number depends on data")
    return as_primitive(low, step, "tile", [x], reps=found)


@translates("BroadcastTo")
def broadcast(low: Lowering, step: Step, x: Bound, _: Bound) -> Bound:
    return replace(x, shape=out_shape(step))


@translates("Pad", "PadV2", "MirrorPad")
def pad(low: Lowering, step: Step, x: Bound, widths: Bound, *filler: Bound) -> Any:
    found = numbers(widths)
    if found is None:
        return low.opaque(step, [x, widths], "padding that depends on data")
    if step.name == "MirrorPad":
        mode = "reflect" if step.params["mode"] == "REFLECT" else "replicate"
        return low.made(Pad(tuple(found[::2]), tuple(found[1::2]), 0.0, mode), (low.full(x),), out_shape(step), x.kind)
    config = [(a, b, 0) for a, b in zip(found[::2], found[1::2], strict=True)]
    number = filler[0] if filler else constant(np.float32(0.0), FLOAT)
    return as_primitive(low, step, "pad", [x, number], padding_config=config)


@translates("Fill")
def fill(low: Lowering, step: Step, _: Bound, value: Bound) -> Bound:
    shape = out_shape(step)
    return low.relabel(value, shape, [None] * len(shape))


@translates("Range", "LinSpace")
def line(low: Lowering, step: Step, *_: Bound) -> Bound:
    """Only a line too long to compute while recording comes here."""
    shape = out_shape(step)
    return low.made(Fill((shape[0] - 1) / 2, shape), (), shape, out_kind(step))


@translates("OneHot")
def one_hot(low: Lowering, step: Step, ids: Bound, _: Bound, on: Bound, off: Bound) -> Any:
    shape, axis = out_shape(step), int(step.params["axis"])
    place = axis % len(shape)
    source = [i - (i > place) if i != place else None for i in range(len(shape))]
    spread = low.relabel(ids, shape, source)
    classes = np.arange(shape[place]).reshape([-1 if i == place else 1 for i in range(len(shape))])
    marks = Bound(shape, INT, data=np.broadcast_to(classes, shape))
    hit = low.pointwise("eq", [spread, marks], shape, BOOL)
    if (low.scalar(on), low.scalar(off)) == (1.0, 0.0):
        return replace(hit, kind=out_kind(step))
    return one(as_primitive(low, step, "select_n", [hit, off, on]))


@translates("MatrixBandPart")
def band(low: Lowering, step: Step, x: Bound, below: Bound, above: Bound) -> Any:
    low_, up = numbers(below), numbers(above)
    if low_ is None or up is None:
        return low.opaque(step, [x, below, above], "band that depends on data")
    rows, columns = np.indices(x.shape[-2:])
    kept = ((low_[0] < 0) | (rows - columns <= low_[0])) & ((up[0] < 0) | (columns - rows <= up[0]))
    mask = Bound(x.shape, BOOL, data=np.broadcast_to(kept, x.shape))
    return low.pointwise("where", [mask, x, 0.0], x.shape, x.kind)

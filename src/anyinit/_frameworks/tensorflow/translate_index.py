"""Indexing: lookups and gathers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._frameworks.primitives.translate_shape import cut
from anyinit._frameworks.tensorflow.lower import as_primitive, numbers
from anyinit._graph.ops import Gather, Lookup, Pointwise


@translates("GatherV2", "Gather")
def gather(low: Lowering, step: Step, x: Bound, ids: Bound, *axis: Bound) -> Any:
    found = numbers(axis[0]) if axis else [0]
    if found is None:
        return low.opaque(step, [x, ids], "gather along an axis that depends on data")
    dim, batch = found[0] % len(x.shape), int(step.params.get("batch_dims", 0))
    ids = _unwrapped(low, ids)
    fixed = numbers(ids)
    if fixed is not None and len(fixed) == 1:
        value = cut(low, low.full(x), dim, fixed[0] % x.shape[dim], fixed[0] % x.shape[dim] + 1)
        return Bound(out_shape(step), x.kind, low.reshape(value, out_shape(step)))
    if batch:
        return low.made(Gather(dim), (low.full(x), low.full(ids)), out_shape(step), out_kind(step))
    rest = [d for d in range(len(x.shape)) if d != dim]
    table = low.permute(low.full(x), (dim, *rest))
    index = low.full(ids)
    value = low.add(Lookup(), (table, index), (*ids.shape, *(x.shape[d] for d in rest)), x.kind)
    lead = len(ids.shape)
    order = [*range(lead, lead + dim), *range(lead), *range(lead + dim, lead + len(rest))]
    return Bound(out_shape(step), out_kind(step), low.permute(value, order))


def _unwrapped(low: Lowering, ids: Bound) -> Bound:
    """Without ``where(i < 0, i + n, i)``: Python's negative indices, which data never are."""
    node = low.node(ids.value)
    if node is None or node.op != Pointwise("where", (None, None, None)):
        return ids
    test, shifted = low.node(node.inputs[0]), low.node(node.inputs[1])
    plain = node.inputs[2]
    wrapped = (
        test is not None and test.op == Pointwise("lt", (None, 0.0)) and test.inputs == (plain,)
        and shifted is not None and isinstance(shifted.op, Pointwise) and shifted.op.fn == "add"
        and shifted.inputs == (plain,)
    )  # fmt: skip
    return replace(ids, value=plain) if wrapped else ids


@translates("GatherNd")
def gather_nd(low: Lowering, step: Step, x: Bound, ids: Bound) -> Any:
    """Rows picked by index vectors: a lookup in a table whose leading dimensions are merged."""
    depth = ids.shape[-1]
    if ids.data is not None and int(np.prod(ids.shape[:-1])) == 1:
        value = low.full(x)
        for dim, place in enumerate(numbers(ids) or ()):
            value = cut(low, value, dim, place % x.shape[dim], place % x.shape[dim] + 1)
        return Bound(out_shape(step), x.kind, low.reshape(value, out_shape(step)))
    if depth != 1:
        return low.opaque(step, [x, ids], "gather over several dimensions at once")
    index = low.relabel(ids, ids.shape[:-1], list(range(len(ids.shape) - 1)))
    value = low.add(Lookup(), (low.full(x), low.full(index)), (*index.shape, *x.shape[1:]), x.kind)
    return Bound(out_shape(step), out_kind(step), value)


@translates("FFT", "IFFT", "FFT2D", "IFFT2D", "RFFT", "IRFFT", "RFFT2D", "IRFFT2D")
def fourier(low: Lowering, step: Step, x: Bound, *_: Bound) -> Any:
    kind = step.name.lower().removesuffix("2d")
    whole = x.shape if not kind.startswith("i") or kind == "ifft" else out_shape(step)
    lengths = whole[-2:] if step.name.endswith("2D") else whole[-1:]
    return as_primitive(low, step, "fft", [x], fft_type=kind, fft_lengths=lengths)

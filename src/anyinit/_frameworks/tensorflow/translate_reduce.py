"""Reductions, pooling, softmax, running sums and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._frameworks.tensorflow.lower import as_primitive, channel_first, numbers, padding
from anyinit._graph.ops import Gather, Pool, PoolWindow, Reduce, Softmax

KINDS = {
    "Sum": "sum", "Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod", "All": "all", "Any": "any",
    "EuclideanNorm": "norm", "ArgMax": "argmax", "ArgMin": "argmax",
}  # fmt: skip


@translates(*KINDS)
def reduce(low: Lowering, step: Step, x: Bound, axes: Bound) -> Any:
    found = numbers(axes)
    if found is None:
        return low.opaque(step, [x, axes], "reduction over an axis that depends on data")
    dims = tuple(sorted({d % len(x.shape) for d in found}))
    if not dims:
        return x
    keep = bool(step.params.get("keep_dims"))
    return low.made(Reduce(KINDS[step.name], dims, keep), (low.full(x),), out_shape(step), out_kind(step))


@translates("Softmax", "LogSoftmax")
def softmax(low: Lowering, step: Step, x: Bound) -> Bound:
    return low.made(Softmax(len(x.shape) - 1, step.name == "LogSoftmax"), (low.full(x),), x.shape, x.kind)


@translates("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(low: Lowering, step: Step, x: Bound, labels: Bound) -> list[Bound]:
    """``-sum(p log softmax(x))`` of every row, and its gradient ``softmax(x) - p``; sparse labels are the place of the
    one in ``p``."""
    rows, classes = x.shape
    logs = low.made(Softmax(1, log=True), (low.full(x),), x.shape, x.kind)
    column = low.relabel(labels, (rows, 1), [0, None]) if len(labels.shape) == 1 else labels
    if len(labels.shape) == 1:
        picked = low.made(Gather(1), (low.full(logs), low.full(column)), (rows, 1), x.kind)
        picked = Bound((rows,), x.kind, low.reshape(picked.value, (rows,)))
        wide = low.relabel(column, x.shape, [0, 1])
        places = Bound(x.shape, column.kind, data=np.broadcast_to(np.arange(classes), x.shape))
        p = low.pointwise("eq", [wide, places], x.shape)
    else:
        p = column
        product = low.pointwise("mul", [logs, p], x.shape)
        picked = low.made(Reduce("sum", (1,), False), (low.full(product),), (rows,), x.kind)
    loss = low.pointwise("neg", [picked], (rows,))
    share = low.made(Softmax(1, log=False), (low.full(x),), x.shape, x.kind)
    return [loss, low.pointwise("sub", [share, p], x.shape)]


@translates("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def pool(low: Lowering, step: Step, x: Bound) -> Bound:
    p, rank = step.params, len(x.shape)
    space = range(2, rank) if channel_first(step) else range(1, rank - 1)
    window, strides = [int(n) for n in p["ksize"]], [int(n) for n in p["strides"]]
    sizes = [(x.shape[d], window[d], strides[d], 1) for d in space]
    pads = padding(p["padding"], p.get("explicit_paddings", ()), sizes, list(space))
    windows = tuple(
        PoolWindow(d, window[d], strides[d], *pad)
        for d, pad in zip(space, pads, strict=True)
        if window[d] > 1 or strides[d] > 1
    )
    kind = "max" if step.name.startswith("Max") else "avg"
    return low.made(Pool(kind, windows, count_pad=False), (low.full(x),), out_shape(step), x.kind)


@translates("Cumsum", "Cumprod")
def cumulate(low: Lowering, step: Step, x: Bound, axis: Bound) -> Any:
    found = numbers(axis)
    if found is None or step.params.get("exclusive") or step.params.get("reverse"):
        return low.opaque(step, [x, axis], "running sum in another order")
    return as_primitive(low, step, step.name.lower(), [x], axis=found[0] % len(x.shape))


@translates("TopKV2")
def top_k(low: Lowering, step: Step, x: Bound, k: Bound) -> Any:
    return as_primitive(low, step, "top_k", [x], k=step.avals[0].shape[-1])

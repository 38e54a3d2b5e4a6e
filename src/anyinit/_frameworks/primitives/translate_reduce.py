"""Reductions, pooling, running sums and sorting."""

from __future__ import annotations

import math

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._graph.graph import INT
from anyinit._graph.ops import Cumulate, Pool, PoolWindow, Random, Reduce, Sort

KINDS = {
    "reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod", "reduce_and": "all",
    "reduce_or": "any", "argmax": "argmax", "argmin": "argmax", "psum": "sum", "pmax": "max", "pmin": "min",
}  # fmt: skip


@translates(*KINDS)
def reduce(low: Lowering, step: Step, x: Bound, *more: Bound) -> Bound | list[Bound]:
    axes = step.params["axes"]
    if more or not all(isinstance(a, int) or hasattr(a, "__index__") for a in axes):
        return low.opaque(step, [x, *more], "reduction over a named axis")
    dims = tuple(sorted(int(a) for a in axes))
    if not dims:
        return x
    return low.made(Reduce(KINDS[step.name], dims, False), (low.full(x),), out_shape(step), out_kind(step))


@translates("reduce_window_max", "reduce_window_min", "reduce_window_sum", "reduce_window")
def reduce_window(low: Lowering, step: Step, x: Bound, *more: Bound) -> Bound | list[Bound]:
    p = step.params
    kind = step.name.removeprefix("reduce_window_")
    base = tuple(int(n) for n in p.get("base_dilation", ()))
    if kind not in ("max", "sum") or any(n != 1 for n in base):
        return low.opaque(step, [x, *more], "sliding reduction of another kind")
    sizes, strides = (tuple(int(n) for n in p[k]) for k in ("window_dimensions", "window_strides"))
    spread = tuple(int(n) for n in p.get("window_dilation", (1,) * len(sizes)))
    padding = [(int(a), int(b)) for a, b in p["padding"]]
    windows = tuple(
        PoolWindow(d, sizes[d], strides[d], *padding[d], spread[d])
        for d in range(len(sizes))
        if sizes[d] > 1 or strides[d] > 1 or any(padding[d])
    )
    pooled = low.made(Pool("max" if kind == "max" else "avg", windows), (low.full(x),), out_shape(step), out_kind(step))
    if kind == "max":
        return pooled
    return low.pointwise("mul", [pooled, float(math.prod(sizes))], pooled.shape, pooled.kind)


@translates("cumsum", "cumprod")
def cumulate(low: Lowering, step: Step, x: Bound) -> Bound:
    return low.made(Cumulate(int(step.params["axis"]), step.name[3:]), (low.full(x),), x.shape, x.kind)


@translates("top_k", "approx_top_k")
def top_k(low: Lowering, step: Step, x: Bound) -> list[Bound]:
    k, dim = (
        int(step.params["k"]),
        int(step.params.get("axis", step.params.get("reduction_dimension", -1))) % len(x.shape),
    )
    values = low.made(Sort(dim, k, True), (low.full(x),), step.avals[0].shape, x.kind)
    return [values, ranks(low, x.shape[dim], step.avals[1].shape)]


@translates("sort")
def sort(low: Lowering, step: Step, *xs: Bound) -> list[Bound]:
    dim = int(step.params["dimension"])
    first = low.made(Sort(dim), (low.full(xs[0]),), xs[0].shape, xs[0].kind)
    rest = [ranks(low, x.shape[dim], x.shape) if x.kind == INT else None for x in xs[1:]]
    if any(r is None for r in rest):
        return low.opaque(step, xs, "values carried along by a sort")
    return [first, *(r for r in rest if r is not None)]


def ranks(low: Lowering, size: int, shape: tuple[int, ...]) -> Bound:
    """Where sorted entries came from: any place is as likely as another."""
    note = "positions found by sorting are taken as uniformly distributed"
    if note not in low.builder.notes:
        low.builder.notes.append(note)
    out = low.made(Random("integer", (0.0, float(size)), shape), (), shape, INT)
    low.fed.add(out.value)
    return out

"""Contractions: matrix products, einsum and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._frameworks.primitives.translate_contract import contract
from anyinit._frameworks.tensorflow.lower import as_primitive, channel_first, numbers, one, padding
from anyinit._graph.ops import Reduce, Shuffle


@translates("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def matmul(low: Lowering, step: Step, a: Bound, b: Bound) -> Any:
    p = step.params
    flip_a, flip_b = bool(p.get("transpose_a", p.get("adj_x"))), bool(p.get("transpose_b", p.get("adj_y")))
    shape = out_shape(step)
    lead = shape[:-2]
    if lead and all(n == 1 for n in b.shape[:-2]):  # one matrix for all: no batch dimension is needed
        b = low.relabel(b, b.shape[-2:], [len(b.shape) - 2, len(b.shape) - 1])
        a = _led(low, a, lead)
        inner = ((len(lead) + (0 if flip_a else 1),), (1 if flip_b else 0,))
        return as_primitive(low, step, "dot_general", [a, b], dimension_numbers=(inner, ((), ())))
    a, b = _led(low, a, lead), _led(low, b, lead)
    n = len(lead)
    inner = ((n if flip_a else n + 1,), (n + 1 if flip_b else n,))
    batch = (tuple(range(n)), tuple(range(n)))
    return as_primitive(low, step, "dot_general", [a, b], dimension_numbers=(inner, batch))


def _led(low: Lowering, x: Bound, lead: tuple[int, ...]) -> Bound:
    """An operand with the leading dimensions of the output."""
    if x.shape[:-2] == lead:
        return x
    missing = len(lead) + 2 - len(x.shape)
    source = [None if i < missing or x.shape[i - missing] == 1 != lead[i] else i - missing for i in range(len(lead))]
    tail = [len(x.shape) - 2, len(x.shape) - 1]
    return low.relabel(x, (*lead, *x.shape[-2:]), [*source, *tail])


@translates("Einsum")
def einsum(low: Lowering, step: Step, *ins: Bound) -> Any:
    left, _, out = step.params["equation"].replace(" ", "").partition("->")
    terms = left.split(",")
    if len(ins) > 2 or any(len(set(t)) < len(t) for t in (x.replace("...", "") for x in (*terms, out))):
        return low.opaque(step, ins, "einsum with a repeated label or more than two operands")
    pairs = list(zip(terms, ins, strict=True))
    rank = max((len(x.shape) - len(t.replace("...", "")) for t, x in pairs if "..." in t), default=0)
    dots = "".join(chr(0x100 + i) for i in range(rank))
    terms = [t.replace("...", dots[rank - (len(x.shape) - len(t) + 3) :]) for t, x in pairs]
    out = out.replace("...", dots)
    others = [out + "".join(terms[:i] + terms[i + 1 :]) for i in range(len(terms))]
    sides = [_summed(low, x, t, o) for x, t, o in zip(ins, terms, others, strict=True)]
    if len(sides) == 1:
        value, labels = sides[0]
        return Bound(out_shape(step), out_kind(step), low.permute(value, [labels.index(c) for c in out]))
    known = {c: i for i, c in enumerate(dict.fromkeys("".join(terms) + out))}
    (a, la), (b, lb) = sides
    sizes = [dict(zip(labels, low.builder.shape(v), strict=True)) for v, labels in sides]
    if any(sizes[0][c] != sizes[1][c] for c in la if c in lb):
        return low.opaque(step, ins, "einsum that repeats an operand")
    return contract(low, step, (a, tuple(known[c] for c in la)), (b, tuple(known[c] for c in lb)),
                    tuple(known[c] for c in out), out_shape(step))  # fmt: skip


def _summed(low: Lowering, x: Bound, labels: str, others: str) -> tuple[int, str]:
    """An operand without the dimensions that nothing else names."""
    value = low.full(x)
    gone = tuple(i for i, c in enumerate(labels) if c not in others)
    if gone:
        shape = [n for i, n in enumerate(x.shape) if i not in gone]
        value = low.add(Reduce("sum", gone, False), (value,), shape, x.kind)
    return value, "".join(c for i, c in enumerate(labels) if i not in gone)


def _space(step: Step, rank: int) -> list[int]:
    """The spatial dimensions of the input."""
    return list(range(2, rank)) if channel_first(step) else list(range(1, rank - 1))


def _convolved(
    low: Lowering, step: Step, x: Bound, w: Bound, pads: Sequence[tuple[int, int]], feature: int, groups: int,
    strides: Sequence[int], spread: Sequence[int], dilation: Sequence[int],
) -> Bound:  # fmt: skip
    rank = len(x.shape)
    space, channel = _space(step, rank), 1 if channel_first(step) else rank - 1
    sides = SimpleNamespace(
        lhs_spec=(0, channel, *space),
        rhs_spec=(feature, 2 * rank - 3 - feature, *range(rank - 2)),
        out_spec=(0, channel, *space),
    )
    return one(as_primitive(
        low, step, "conv_general_dilated", [x, w], dimension_numbers=sides, feature_group_count=groups,
        batch_group_count=1, window_strides=strides, rhs_dilation=dilation, lhs_dilation=spread, padding=pads,
    ))  # fmt: skip


def _steps(step: Step, name: str, space: Sequence[int], rank: int) -> list[int]:
    every = step.params.get(name) or [1] * rank
    return [int(every[d]) for d in space] if len(every) == rank else [int(n) for n in every]


@translates("Conv2D", "Conv3D", "DepthwiseConv2dNative")
def conv(low: Lowering, step: Step, x: Bound, w: Bound) -> Any:
    rank = len(x.shape)
    space = _space(step, rank)
    strides, dilation = _steps(step, "strides", space, rank), _steps(step, "dilations", space, rank)
    channels = x.shape[1 if channel_first(step) else -1]
    groups = channels // w.shape[-2]
    if step.name == "DepthwiseConv2dNative":
        groups, filters = channels, (*w.shape[:-2], 1, w.shape[-2] * w.shape[-1])
        w = Bound(filters, w.kind, low.reshape(low.full(w), filters))
    sizes = [(x.shape[d], w.shape[i], strides[i], dilation[i]) for i, d in enumerate(space)]
    pads = padding(step.params["padding"], step.params.get("explicit_paddings", ()), sizes, space)
    ones = [1] * len(space)
    return _convolved(low, step, x, w, pads, rank - 1, groups, strides, ones, dilation)


@translates("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def transposed(low: Lowering, step: Step, size: Bound, w: Bound, x: Bound) -> Any:
    """The transpose of a convolution: spread input, mirrored taps, channels of the filter swapped."""
    rank, shape = len(x.shape), out_shape(step)
    space = _space(step, rank)
    strides, dilation = _steps(step, "strides", space, rank), _steps(step, "dilations", space, rank)
    if numbers(size) is None:
        return low.opaque(step, [x, w], "transposed convolution to a size that depends on data")
    sizes = [(shape[d], w.shape[i], strides[i], dilation[i]) for i, d in enumerate(space)]
    forward = padding(step.params["padding"], step.params.get("explicit_paddings", ()), sizes, space)
    pads = list[tuple[int, int]]()
    for i, d in enumerate(space):
        reach = (w.shape[i] - 1) * dilation[i]
        below = reach - forward[i][0]
        pads.append((below, shape[d] + reach - ((x.shape[d] - 1) * strides[i] + 1) - below))
    groups = x.shape[1 if channel_first(step) else -1] // w.shape[-1]
    flipped = low.made(Shuffle(tuple(range(rank - 2))), (low.full(w),), w.shape, w.kind)
    ones = [1] * len(space)
    return _convolved(low, step, x, flipped, pads, rank - 2, groups, ones, strides, dilation)

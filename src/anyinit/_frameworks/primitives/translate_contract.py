"""Contractions: ``dot_general`` and convolutions, in the framework's own order of dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._graph.ops import Contract, Permute, Window

Labels = tuple[int, ...]


def weight_last(low: Lowering, a: int, b: int) -> bool:
    """Whether operand ``a`` is the weight (made of parameters only) and ``b`` is not: they must swap."""

    def weight(value: int) -> bool:
        return value in low.trained and value not in low.fed

    return weight(a) and not weight(b)


def _unpermuted(low: Lowering, value: int, labels: Labels) -> tuple[int, Labels]:
    """A transposed operand is its source with permuted labels."""
    node = low.node(value)
    if node is None or not isinstance(node.op, Permute) or value in low.fed:
        return value, labels
    source = [0] * len(labels)
    for place, old in enumerate(node.op.order):
        source[old] = labels[place]
    return node.inputs[0], tuple(source)


def contract(
    low: Lowering, step: Step, a: tuple[int, Labels], b: tuple[int, Labels], out: Labels, shape: Sequence[int]
) -> Bound:
    """A contraction without windows: transposes folded into labels, the activation first."""
    (x, x_labels), (y, y_labels) = _unpermuted(low, *a), _unpermuted(low, *b)
    if weight_last(low, x, y):
        x, x_labels, y, y_labels = y, y_labels, x, x_labels
    return low.made(Contract(x_labels, y_labels, out), (x, y), shape, out_kind(step))


@translates("dot_general")
def dot_general(low: Lowering, step: Step, a: Bound, b: Bound) -> Bound:
    (ca, cb), (ba, bb) = step.params["dimension_numbers"]
    fresh = iter(range(len(a.shape) + len(b.shape)))
    la: dict[int, int] = {}
    lb: dict[int, int] = {}
    for i, j in (*zip(ba, bb, strict=True), *zip(ca, cb, strict=True)):
        la[int(i)] = lb[int(j)] = next(fresh)
    batch = [la[int(i)] for i in ba]
    free_a = [la.setdefault(i, next(fresh)) for i in range(len(a.shape)) if i not in la]
    free_b = [lb.setdefault(j, next(fresh)) for j in range(len(b.shape)) if j not in lb]
    labels = [tuple(side[i] for i in range(len(side))) for side in (la, lb)]
    return contract(
        low, step, (low.full(a), labels[0]), (low.full(b), labels[1]), (*batch, *free_a, *free_b), out_shape(step)
    )


@translates("conv_general_dilated")
def conv(low: Lowering, step: Step, x: Bound, w: Bound) -> Bound:
    p = step.params
    numbers = p["dimension_numbers"]
    sides = [tuple(map(int, s)) for s in (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)]
    space = len(x.shape) - 2
    batch, channel, feature, group = 0, 1, 2, 3
    at, taps = tuple(range(4, 4 + space)), tuple(range(4 + space, 4 + 2 * space))
    ends = tuple(range(4 + 2 * space, 4 + 3 * space))
    labels = [_ordered(side, tags) for side, tags in zip(
        sides, ((batch, channel, *at), (feature, channel, *taps), (batch, feature, *ends)), strict=True)]  # fmt: skip
    a, b, shape = low.full(x), low.full(w), list(out_shape(step))
    groups, batches = int(p["feature_group_count"]), int(p["batch_group_count"])
    if groups > 1:
        a, labels[0] = _split(low, a, labels[0], channel, groups, group)
        b, labels[1] = _split(low, b, labels[1], feature, groups, group)
    elif batches > 1:
        a, labels[0] = _split(low, a, labels[0], batch, batches, group)
        b, labels[1] = _split(low, b, labels[1], feature, batches, group)
    grouped = groups * batches > 1
    inner = shape
    if grouped:
        place = labels[2].index(feature)
        inner = [*shape[:place], groups * batches, shape[place] // (groups * batches), *shape[place + 1 :]]
        labels[2] = (*labels[2][:place], group, *labels[2][place:])
    windows = tuple(
        Window(
            at[i],
            taps[i],
            ends[i],
            size=w.shape[sides[1][2 + i]],
            stride=int(p["window_strides"][i]),
            dilation=int(p["rhs_dilation"][i]),
            pad_low=int(p["padding"][i][0]),
            pad_high=int(p["padding"][i][1]),
            spread=int(p["lhs_dilation"][i]),
        )
        for i in range(space)
    )
    out = low.add(Contract(labels[0], labels[1], labels[2], windows), (a, b), inner, out_kind(step))
    return Bound(out_shape(step), out_kind(step), low.reshape(out, shape) if grouped else out)


def _ordered(spec: Sequence[int], tags: Sequence[int]) -> Labels:
    """Labels in the operand's own order: ``tags[i]`` stands in dimension ``spec[i]``."""
    out = [0] * len(spec)
    for place, tag in zip(spec, tags, strict=True):
        out[place] = tag
    return tuple(out)


def _split(low: Lowering, value: int, labels: Labels, label: int, count: int, group: int) -> tuple[int, Labels]:
    """Reshape one dimension into ``(count, rest)``, the first labelled ``group``."""
    shape, place = low.builder.shape(value), labels.index(label)
    new = (*shape[:place], count, shape[place] // count, *shape[place + 1 :])
    return low.reshape(value, new), (*labels[:place], group, *labels[place:])


@translates("ragged_dot", "ragged_dot_general")
def ragged_dot(low: Lowering, step: Step, *ins: Bound) -> list[Bound]:
    return low.opaque(step, ins, "contraction whose groups depend on data")

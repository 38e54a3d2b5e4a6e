"""Contractions: linear maps, matrix products, einsum, convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Sequence

from anyinit._frameworks.torch.lower import Lower, V, aten, broadcast
from anyinit._frameworks.torch.trees import Ints, many
from anyinit._graph import ops


@aten("linear")
def _linear(low: Lower, x: V, weight: V, bias: V | None = None) -> V:
    return linear(low, x, weight, bias)


def linear(low: Lower, x: V, weight: V, bias: V | None = None) -> V:
    """``x @ weight.T + bias`` over the last dimension of ``x``."""
    n = x.ndim
    lead = tuple(range(n - 1))
    if weight.ndim == 1:
        out = low.contract(x, weight, (*lead, n), (n,), lead)
    else:
        out = low.contract(x, weight, (*lead, n), (n + 1, n), (*lead, n + 1))
    return out if bias is None else low.pointwise("add", out, bias)


@aten("matmul", "mm", "bmm", "mv", "dot", "inner_product", "linalg_vecdot", "vdot", "__matmul__")
def _matmul(low: Lower, a: V, b: V) -> V:
    return matmul(low, a, b)


def matmul(low: Lower, a: V, b: V) -> V:
    """NumPy's matrix product; a batch dimension only one operand really has stays a free label."""
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    k, rows, cols = 100, 101, 102
    lead_a, a = _squeeze_batch(low, a, batch)
    lead_b, b = _squeeze_batch(low, b, batch)
    la = (*lead_a, *((rows,) if a.ndim - len(lead_a) > 1 else ()), k)
    lb = (*lead_b, k, *((cols,) if b.ndim - len(lead_b) > 1 else ()))
    tail = (*(label for label in la if label == rows), *(label for label in lb if label == cols))
    labels = tuple(i for i in range(len(batch)) if i in lead_a or i in lead_b)
    out = low.contract(a, b, la, lb, (*labels, *tail))
    return low.reshape(out, (*batch, *(out.shape[len(labels) :])))


def _squeeze_batch(low: Lower, x: V, batch: tuple[int, ...]) -> tuple[tuple[int, ...], V]:
    """Labels of the batch dimensions the operand really has, and the operand without the others."""
    own = x.shape[:-2]
    first = len(batch) - len(own)
    kept = tuple(first + i for i, n in enumerate(own) if n == batch[first + i] and (n != 1 or batch[first + i] == 1))
    sizes = tuple(own[i - first] for i in kept)
    return kept, low.reshape(x, sizes + x.shape[len(own) :])


@aten("addmm", "addmv", "addbmm_", "baddbmm", "sspaddmm")
def _addmm(low: Lower, bias: V, a: V, b: V, beta: float = 1, alpha: float = 1) -> V:
    out = matmul(low, a, b)
    if alpha != 1:
        out = low.pointwise("mul", out, alpha)
    if beta == 0:
        return out
    return low.pointwise("add", out, bias if beta == 1 else low.pointwise("mul", bias, beta))


@aten("outer", "ger")
def _outer(low: Lower, a: V, b: V) -> V:
    return low.pointwise("mul", low.reshape(a, (a.shape[0], 1)), b)


@aten("einsum")
def _einsum(low: Lower, equation: str, operands: Sequence[V], path: object = None) -> V:
    left, _, right = equation.replace(" ", "").partition("->")
    sides = left.split(",")
    wide = max(x.ndim - len(s.replace("...", "")) for s, x in zip(sides, operands, strict=True)) if "..." in left else 0
    labels = [_labels(s, x.ndim, wide) for s, x in zip(sides, operands, strict=True)]
    if "->" in equation:
        out = _labels(right, len(right.replace("...", "")) + (wide if "..." in right else 0), wide)
    else:
        flat = [i for term in labels for i in term]
        out = sorted(i for i in set(flat) if i < 0) + sorted(i for i in set(flat) if i >= 0 and flat.count(i) == 1)
    if any(len(set(term)) < len(term) for term in labels):
        return NotImplemented
    acc, mine = operands[0], labels[0]
    for position in range(1, len(operands)):
        later = {i for term in labels[position + 1 :] for i in term} | set(out)
        acc, mine = _pair(low, acc, mine, operands[position], labels[position], later)
    acc, mine = _sum_out(low, acc, mine, set(out))
    return low.permute(acc, [mine.index(i) for i in out])


def _labels(term: str, ndim: int, wide: int) -> list[int]:
    """Letters as numbers; the dimensions of an ellipsis as -wide .. -1."""
    before, dots, after = term.partition("...")
    count = ndim - len(before) - len(after) if dots else 0
    return [ord(c) for c in before] + list(range(-count, 0)) + [ord(c) for c in after]


def _sum_out(low: Lower, x: V, labels: list[int], keep: set[int]) -> tuple[V, list[int]]:
    gone = [i for i, label in enumerate(labels) if label not in keep]
    if not gone:
        return x, labels
    return low.reduce(x, "sum", gone, keepdims=False), [label for label in labels if label in keep]


def _pair(low: Lower, a: V, la: list[int], b: V, lb: list[int], later: set[int]) -> tuple[V, list[int]]:
    """Contract two operands, keeping the labels still needed later."""
    size = dict(zip(la, a.shape, strict=True))
    size |= {label: n for label, n in zip(lb, b.shape, strict=True) if n != 1 or label not in size}
    a, la = _drop_ones(low, a, la, size)
    b, lb = _drop_ones(low, b, lb, size)
    a, la = _sum_out(low, a, la, later | set(lb))
    b, lb = _sum_out(low, b, lb, later | set(la))
    out = [label for label in dict.fromkeys(la + lb) if label in later]
    return low.contract(a, b, la, lb, out), out


def _drop_ones(low: Lower, x: V, labels: list[int], size: dict[int, int]) -> tuple[V, list[int]]:
    """Without the dimensions of size one that broadcast against a larger one."""
    kept = [i for i, label in enumerate(labels) if x.shape[i] == size[label]]
    return low.reshape(x, [x.shape[i] for i in kept]), [labels[i] for i in kept]


# --- convolutions -----------------------------------------------------------------------------


@aten("conv1d", "conv2d", "conv3d")
def _conv(low: Lower, x: V, weight: V, bias: V | None = None, stride: Ints = 1, padding: Ints | str = 0,
          dilation: Ints = 1, groups: int = 1) -> V:  # fmt: skip
    n = weight.ndim - 2
    stride, dilation = many(stride, n), many(dilation, n)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, weight.shape[2:], strict=True)]
        pads = tuple((t // 2, t - t // 2) for t in total)
    else:
        pads = tuple((p, p) for p in many(padding, n))
    geometry = [
        dict(stride=s, dilation=d, pad_low=lo, pad_high=hi)
        for s, d, (lo, hi) in zip(stride, dilation, pads, strict=True)
    ]
    return convolve(low, x, weight, bias, groups, geometry, transposed=False)


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(low: Lower, x: V, weight: V, bias: V | None = None, stride: Ints = 1, padding: Ints = 0,
                    output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> V:  # fmt: skip
    n = weight.ndim - 2
    sizes = zip(weight.shape[2:], *(many(v, n) for v in (stride, padding, output_padding, dilation)), strict=True)
    geometry = [
        dict(dilation=d, spread=s, pad_low=d * (k - 1) - p, pad_high=d * (k - 1) - p + extra)
        for k, s, p, extra, d in sizes
    ]
    return convolve(low, x, weight, bias, groups, geometry, transposed=True)


@aten("convolution", "_convolution")
def _convolution(low: Lower, x: V, weight: V, bias: V | None, stride: Ints, padding: Ints, dilation: Ints,
                 transposed: bool, output_padding: Ints, groups: int, *flags: bool) -> V:  # fmt: skip
    if transposed:
        return _conv_transpose(low, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(low, x, weight, bias, stride, padding, dilation, groups)


def convolve(low: Lower, x: V, weight: V, bias: V | None, groups: int, geometry: list[dict[str, int]],
             transposed: bool) -> V:  # fmt: skip
    """A convolution as one windowed contraction; groups become a batch label.

    Weights are ``(out, in / groups, *taps)``, transposed ``(in, out / groups, *taps)``. A transposed
    convolution spreads its input by the stride and slides over it (its taps reversed, which no
    statistic sees).
    """
    n = len(geometry)
    batched = x.ndim == n + 2
    space, taps, outs = (tuple(range(base, base + n)) for base in (20, 40, 60))
    batch, channel, filters, group = 0, 1, 2, 3
    lead = (batch,) if batched else ()
    windows = [
        ops.Window(a, t, o, size, **spec)
        for a, t, o, size, spec in zip(space, taps, outs, weight.shape[2:], geometry, strict=True)
    ]
    pair = (channel, filters) if transposed else (filters, channel)
    if groups == 1:
        out = low.contract(x, weight, (*lead, channel, *space), (*pair, *taps), (*lead, filters, *outs), windows)
    else:
        c = x.shape[-n - 1]
        x = low.reshape(x, (*x.shape[: len(lead)], groups, c // groups, *x.shape[-n:]))
        weight = low.reshape(weight, (groups, weight.shape[0] // groups, *weight.shape[1:]))
        labels = (*lead, group, channel, *space), (group, *pair, *taps), (*lead, group, filters, *outs)
        out = low.contract(x, weight, *labels, windows)
        first = len(lead)
        out = low.reshape(out, (*out.shape[:first], out.shape[first] * out.shape[first + 1], *out.shape[first + 2 :]))
    return low.channelwise("add", out, bias, 1 if batched else 0)


@aten("_grouped_mm")
def _grouped_mm(low: Lower, a: V, b: V, offs: V | None = None, bias: V | None = None, out_dtype: object = None) -> V:
    """Rows sorted by expert: every expert is taken to get an equal share, which no statistic can tell
    from the real one as rows are exchangeable."""
    if a.ndim != 2 or b.ndim != 3 or bias is not None:
        return NotImplemented
    rows, experts = a.shape[0], b.shape[0]
    share = -(-rows // experts)
    if share * experts != rows:
        op = ops.Pad((0, 0), (share * experts - rows, 0), 0.0, "circular")
        a = low.add(op, (a,), (share * experts, a.shape[1]))
    out = low.contract(low.reshape(a, (experts, share, a.shape[1])), b, (0, 1, 2), (0, 2, 3), (0, 1, 3))
    low.note("tokens routed to experts are taken to be shared equally among them")
    return low.slice(low.reshape(out, (experts * share, b.shape[2])), 0, 0, rows)


@aten("bilinear")
def _bilinear(low: Lower, x1: V, x2: V, weight: V, bias: V | None = None) -> V:
    """The weight applied to all products of the two inputs: its own output is the call's."""
    n, m, lead = x1.shape[-1], x2.shape[-1], x1.shape[:-1]
    left, right = low.reshape(x1, (*lead, n, 1)), low.reshape(x2, (*lead, 1, m))
    at, o, i, j = tuple(range(len(lead))), 50, 51, 52
    out = low.contract(low.pointwise("mul", left, right), weight, (*at, i, j), (o, i, j), (*at, o))
    return out if bias is None else low.pointwise("add", out, bias)


@aten("_trilinear")
def _trilinear(low: Lower, i1: V, i2: V, i3: V, expand1: Sequence[int], expand2: Sequence[int],
               expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1) -> V:  # fmt: skip
    parts = [_unsqueezed(low, x, dims) for x, dims in ((i1, expand1), (i2, expand2), (i3, expand3))]
    product = low.pointwise("mul", low.pointwise("mul", parts[0], parts[1]), parts[2])
    return low.reduce(product, "sum", tuple(sumdim), keepdims=False)


def _unsqueezed(low: Lower, x: V, dims: Sequence[int]) -> V:
    shape = list(x.shape)
    for dim in sorted(dims):
        shape.insert(dim, 1)
    return low.reshape(x, shape)

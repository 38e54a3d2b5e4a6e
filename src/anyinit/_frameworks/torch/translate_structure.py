"""Joining, padding, picking and writing entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyinit._frameworks.torch.lower import Lower, Operand, V, aten, axes, axis, broadcast
from anyinit._graph import ops

# --- joining ----------------------------------------------------------------------------------


@aten("cat", "concat", "concatenate")
def _cat(low: Lower, tensors: Sequence[V], dim: int = 0) -> V:
    parts = [t for t in tensors if t.shape != (0,)]  # legacy empty tensors are skipped
    return low.concat(parts, axis(dim, parts[0].ndim))


@aten("stack")
def _stack(low: Lower, tensors: Sequence[V], dim: int = 0) -> V:
    dim = axis(dim, tensors[0].ndim + 1)
    parts = [low.reshape(t, (*t.shape[:dim], 1, *t.shape[dim:])) for t in tensors]
    return low.concat(parts, dim)


@aten("hstack", "vstack", "dstack", "column_stack")
def _hstack(low: Lower, tensors: Sequence[V]) -> V:
    dim = {"hstack": 1, "vstack": 0, "dstack": 2, "column_stack": 1}[low.base]
    rank = {"hstack": 1, "vstack": 2, "dstack": 3, "column_stack": 2}[low.base]
    parts = [t if t.ndim >= rank else _lifted(low, t, low.base) for t in tensors]
    return low.concat(parts, 0 if dim == 1 and parts[0].ndim == 1 else dim)


def _lifted(low: Lower, t: V, call: str) -> V:
    n = t.size if t.ndim < 2 else 0
    shape = {"vstack": (1, n), "column_stack": (n, 1), "hstack": (n,)}.get(call)
    return low.reshape(t, shape or ((1, n, 1) if t.ndim < 2 else (*t.shape, 1)))


@aten("repeat")
def _repeat(low: Lower, x: V, repeats: Sequence[int]) -> V:
    x = low.reshape(x, (1,) * (len(repeats) - x.ndim) + x.shape)
    for dim, times in enumerate(repeats):
        x = repeated(low, x, dim, times, tile=True)
    return x


@aten("tile")
def _tile(low: Lower, x: V, dims: Sequence[int]) -> V:
    return _repeat(low, x, (1,) * (x.ndim - len(dims)) + tuple(dims))


@aten("repeat_interleave.self_int")
def _repeat_interleave(low: Lower, x: V, repeats: int, dim: int | None = None, output_size: Any = None) -> V:
    x, dim = (low.reshape(x, (x.size,)), 0) if dim is None else (x, axis(dim, x.ndim))
    return repeated(low, x, dim, repeats, tile=False)


def repeated(low: Lower, x: V, dim: int, times: int, *, tile: bool) -> V:
    """Copies along one dimension."""
    if times == 1:
        return x
    shape = (*x.shape[:dim], x.shape[dim] * times, *x.shape[dim + 1 :])
    return low.add(ops.Repeat(dim, times, tile), (x,), shape, x.kind)


@aten("flip", "fliplr", "flipud")
def _flip(low: Lower, x: V, dims: Sequence[int] | None = None) -> V:
    dims = dims if dims is not None else (1,) if low.base == "fliplr" else (0,)
    return low.add(ops.Shuffle(axes(dims, x.ndim)), (x,), x.shape, x.kind)


@aten("roll")
def _roll(low: Lower, x: V, shifts: Any, dims: Any = ()) -> V:
    return low.add(ops.Shuffle(axes(dims, x.ndim)), (x,), x.shape, x.kind)


@aten("rot90")
def _rot90(low: Lower, x: V, k: int = 1, dims: Sequence[int] = (0, 1)) -> V:
    a, b = axes(dims, x.ndim)
    order = list(range(x.ndim))
    if k % 2:
        order[a], order[b] = b, a
    y = low.permute(x, order)
    return low.add(ops.Shuffle((a, b)), (y,), y.shape, x.kind)


# --- padding ----------------------------------------------------------------------------------


@aten("pad", "constant_pad_nd")
def _pad(low: Lower, x: V, pad: Sequence[int], mode: Any = "constant", value: float | None = None) -> V:
    if not isinstance(mode, str):
        mode, value = "constant", float(mode)
    return padded(low, x, pad, mode, float(value or 0.0))


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflect(low: Lower, x: V, padding: Sequence[int]) -> V:
    return padded(low, x, padding, "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replicate(low: Lower, x: V, padding: Sequence[int]) -> V:
    return padded(low, x, padding, "replicate")


def padded(low: Lower, x: V, pad: Sequence[int], mode: str, value: float = 0.0) -> V:
    """PyTorch's padding pairs, last dimension first; negative ones cut."""
    low_pad, high_pad = [0] * x.ndim, [0] * x.ndim
    for i in range(len(pad) // 2):
        dim = x.ndim - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        if before < 0 or after < 0:
            x = low.slice(x, dim, max(0, -before), x.shape[dim] - max(0, -after))
        low_pad[dim], high_pad[dim] = max(0, before), max(0, after)
    if not any(low_pad) and not any(high_pad):
        return x
    shape = [a + n + b for a, n, b in zip(low_pad, x.shape, high_pad, strict=True)]
    return low.add(ops.Pad(tuple(low_pad), tuple(high_pad), value, mode), (x,), shape, x.kind)


# --- picking ----------------------------------------------------------------------------------


@aten("embedding")
def _embedding(low: Lower, weight: V, indices: V, *options: Any, **flags: Any) -> V:
    return lookup(low, weight, indices)


def lookup(low: Lower, table: V, ids: V) -> V:
    """Rows of a table."""
    return low.add(ops.Lookup(), (table, ids), (*ids.shape, *table.shape[1:]), table.kind)


@aten("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(low: Lower, weight: V, indices: V, offsets: V, scale_grad_by_freq: bool = False, mode: int = 0,
                   sparse: bool = False, per_sample_weights: V | None = None, include_last_offset: bool = False,
                   padding_idx: int = -1) -> Any:  # fmt: skip
    bags, length = low.shapes[0][0], indices.shape[0]
    rest = (None,) * (len(low.shapes) - 1)
    if bags == 0 or length % bags:
        return (low.opaque(low.base, "bags of unequal length", (weight, indices, offsets))[0], *rest)
    rows = low.reshape(lookup(low, weight, indices), (bags, length // bags, *weight.shape[1:]))
    if per_sample_weights is not None:
        rows = low.pointwise("mul", rows, low.reshape(per_sample_weights, (bags, length // bags, 1)))
    return (low.reduce(rows, ("sum", "mean", "max")[mode], (1,), keepdims=False), *rest)


@aten("index_select")
def _index_select(low: Lower, x: V, dim: int, index: V) -> V:
    return pick(low, x, axis(dim, x.ndim), index)


def pick(low: Lower, x: V, dim: int, index: V) -> V:
    """Whole entries of a dimension, by an index tensor that replaces it: a lookup behind permutations."""
    order = [dim, *(i for i in range(x.ndim) if i != dim)]
    rows = lookup(low, low.permute(x, order), index)
    n = index.ndim
    back = [*range(n, n + dim), *range(n), *range(n + dim, rows.ndim)]
    return low.permute(rows, back)


@aten("index", "_unsafe_index")
def _index(low: Lower, x: V, indices: Sequence[V | None]) -> V:
    used = [i for i, index in enumerate(indices) if index is not None]
    if len(used) == 1 and indices[used[0]].kind != "bool":  # type: ignore[union-attr]
        return pick(low, x, used[0], indices[used[0]])  # type: ignore[arg-type]
    return low.add(ops.Gather(used[0]), (x, *(i for i in indices if i is not None)), low.shapes[0], x.kind)


@aten("gather", "take_along_dim")
def _gather(low: Lower, x: V, dim: int, index: V, sparse_grad: bool = False) -> V:
    if isinstance(dim, V):
        dim, index = index, dim  # type: ignore[assignment]
    return low.add(ops.Gather(axis(dim, x.ndim)), (x, index), low.shapes[0], x.kind)


@aten("take")
def _take(low: Lower, x: V, index: V) -> V:
    return low.add(ops.Gather(0), (low.reshape(x, (x.size,)), index), index.shape, x.kind)


@aten("masked_select")
def _masked_select(low: Lower, x: V, mask: V) -> V:
    return low.add(ops.Gather(0), (x, mask), low.shapes[0], x.kind)


# --- writing ----------------------------------------------------------------------------------


@aten("copy")
def _copy(low: Lower, x: V, src: V, non_blocking: bool = False) -> V:
    return low.expand(src, x.shape)


@aten("fill", "zero")
def _fill(low: Lower, x: V, value: Operand = 0.0) -> V:
    if isinstance(value, V):
        return low.expand(value, x.shape)
    return low.fill(value, x.shape, x.kind)


@aten("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill")
def _scatter(low: Lower, x: V, dim: int, index: V, src: Operand, reduce: str = "", **options: Any) -> V:
    call = low.base
    kind = "add" if "add" in call or reduce in ("add", "sum") or options.get("reduce") == "add" else "set"
    if not isinstance(src, V):
        src = low.fill(float(src), index.shape, x.kind)
    if options.get("alpha", 1) != 1:
        src = low.pointwise("mul", src, options["alpha"])
    return low.add(ops.Scatter(axis(dim, x.ndim), kind), (x, index, src), x.shape, x.kind)


@aten("index_put", "_index_put_impl", "_unsafe_index_put")
def _index_put(low: Lower, x: V, indices: Sequence[V | None], values: V, accumulate: bool = False, *rest: Any) -> V:
    used = [i for i, index in enumerate(indices) if index is not None]
    first = indices[used[0]]
    assert first is not None
    spread = values.size == 1 or values.shape == x.shape[x.ndim - values.ndim :] and values.ndim <= x.ndim - first.ndim
    if used == [0] and first.kind == "bool" and spread and not accumulate:
        mask = low.reshape(first, first.shape + (1,) * (x.ndim - first.ndim))
        return low.pointwise("where", mask, low.reshape(values, ()) if values.size == 1 else values, x)
    op = ops.Scatter(used[0], "add" if accumulate else "set")
    return low.add(op, (x, *(i for i in indices if i is not None), values), x.shape, x.kind)


@aten("masked_scatter")
def _masked_scatter(low: Lower, x: V, mask: V, source: V) -> V:
    return low.add(ops.Scatter(0), (x, mask, source), x.shape, x.kind)


@aten("slice_scatter", "select_scatter")
def _slice_scatter(low: Lower, x: V, src: V, dim: int = 0, start: int | None = None, end: int | None = None,
                   step: int = 1) -> V:  # fmt: skip
    dim = axis(dim, x.ndim)
    if low.base == "select_scatter":
        start = axis(start or 0, x.shape[dim])
        end = start + 1
        src = low.reshape(src, (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    first, stop, _ = slice(start, end, step).indices(x.shape[dim])
    return low.add(ops.Update(dim, first, stop, step), (x, src), x.shape, x.kind)


@aten("tril", "triu")
def _triangle(low: Lower, x: V, diagonal: int = 0) -> V:
    return low.add(ops.Triangle(low.base.startswith("triu"), diagonal), (x,), x.shape, x.kind)


@aten("meshgrid")
def _meshgrid(low: Lower, tensors: Sequence[V], indexing: str = "ij") -> list[V]:
    out = []
    for i, (x, shape) in enumerate(zip(tensors, low.shapes, strict=True)):
        dim = 1 - i if indexing == "xy" and i < 2 else i
        sizes = [1] * len(shape)
        sizes[dim] = x.size
        out.append(low.expand(low.reshape(x, sizes), shape))
    return out


@aten("broadcast_tensors")
def _broadcast_tensors(low: Lower, tensors: Sequence[V]) -> list[V]:
    shape = broadcast(*(t.shape for t in tensors))
    return [low.expand(t, shape) for t in tensors]


@aten("im2col")
def _im2col(low: Lower, x: V, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
            stride: Sequence[int]) -> V:  # fmt: skip
    if any(d != 1 for d in dilation):
        return NotImplemented
    x = padded(low, x, (padding[1], padding[1], padding[0], padding[0]), "constant")
    n = x.ndim
    windows = tuple((n - 2 + i, k, s) for i, (k, s) in enumerate(zip(kernel_size, stride, strict=True)))
    counts = [(x.shape[d] - k) // s + 1 for d, k, s in windows]
    y = low.add(ops.Unfold(windows), (x,), (*x.shape[:-2], *counts, *kernel_size), x.kind)
    lead = list(range(n - 2))
    y = low.permute(y, [*lead, n, n + 1, n - 2, n - 1])
    return low.reshape(y, low.shapes[0])


@aten("pixel_shuffle")
def _pixel_shuffle(low: Lower, x: V, upscale_factor: int) -> V:
    *lead, c, h, w = x.shape
    r, n = upscale_factor, len(lead)
    y = low.reshape(x, (*lead, c // (r * r), r, r, h, w))
    y = low.permute(y, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return low.reshape(y, (*lead, c // (r * r), h * r, w * r))


@aten("pixel_unshuffle")
def _pixel_unshuffle(low: Lower, x: V, downscale_factor: int) -> V:
    *lead, c, h, w = x.shape
    r, n = downscale_factor, len(lead)
    y = low.reshape(x, (*lead, c, h // r, r, w // r, r))
    y = low.permute(y, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return low.reshape(y, (*lead, c * r * r, h // r, w // r))


@aten("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(low: Lower, x: V, groups: int) -> V:
    n, c, *space = x.shape
    y = low.reshape(x, (n, groups, c // groups, *space))
    y = low.permute(y, [0, 2, 1, *range(3, y.ndim)])
    return low.reshape(y, x.shape)

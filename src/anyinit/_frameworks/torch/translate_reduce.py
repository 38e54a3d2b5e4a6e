"""Reductions, softmax, pooling, resizing, sorting and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anyinit._frameworks.torch.lower import Lower, V, aten, axes, axis
from anyinit._frameworks.torch.trees import Ints, many
from anyinit._graph import ops

Dims = int | Sequence[int] | None


def _reduction(kind: str) -> Any:
    def translate(low: Lower, x: V, dim: Dims = None, keepdim: bool = False, **options: Any) -> V:
        return low.reduce(x, kind, axes(dim, x.ndim), keepdim)

    return translate


for _kind, _names in {
    "sum": ("sum",), "mean": ("mean",), "prod": ("prod",), "any": ("any",), "all": ("all",),
    "argmax": ("argmax", "argmin"),
    "logsumexp": ("logsumexp", "special_logsumexp"), "max": ("amax", "max.default"), "min": ("amin", "min.default"),
}.items():  # fmt: skip
    aten(*_names)(_reduction(_kind))


@aten("max.dim", "min.dim")
def _max_dim(low: Lower, x: V, dim: int, keepdim: bool = False) -> Any:
    kind, dims = low.base, axes(dim, x.ndim)
    index = low.reduce(x, "argmax", dims, keepdim)
    return low.reduce(x, kind, dims, keepdim), index


@aten("max.other", "min.other")
def _max_other(low: Lower, a: V, b: V) -> V:
    return low.pointwise("maximum" if low.base == "max" else "minimum", a, b)


@aten("aminmax")
def _aminmax(low: Lower, x: V, dim: int | None = None, keepdim: bool = False) -> Any:
    return tuple(low.reduce(x, kind, axes(dim, x.ndim), keepdim) for kind in ("min", "max"))


@aten("var", "std")
def _var(low: Lower, x: V, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *,
         correction: float | None = None) -> V:  # fmt: skip
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    steps = int(unbiased) if correction is None else int(correction)
    return low.reduce(x, low.base, axes(dim, x.ndim), keepdim, steps)


@aten("var_mean", "std_mean")
def _var_mean(low: Lower, x: V, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *,
              correction: float | None = None) -> Any:  # fmt: skip
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    steps = int(unbiased) if correction is None else int(correction)
    dims = axes(dim, x.ndim)
    spread = low.reduce(x, low.base.removesuffix("_mean"), dims, keepdim, steps)
    return spread, low.reduce(x, "mean", dims, keepdim)


@aten("norm", "linalg_vector_norm", "linalg_norm", "frobenius_norm", "linalg_matrix_norm")
def _norm(low: Lower, x: V, ord: Any = 2, dim: Dims = None, keepdim: bool = False, **options: Any) -> Any:
    if low.base.startswith("frobenius"):
        ord, dim, keepdim = 2, ord, bool(dim) if dim is not None else keepdim
    if ord in (2, 2.0, None, "fro") and not (low.base == "linalg_norm" and ord == 2 and x.ndim == 2):
        return low.reduce(x, "norm", axes(dim, x.ndim), keepdim)
    if not isinstance(ord, (int, float)) or low.base in ("linalg_norm", "linalg_matrix_norm"):
        return NotImplemented
    size = low.pointwise("abs", x)
    if ord == float("inf"):
        return low.reduce(size, "max", axes(dim, x.ndim), keepdim)
    if ord == 1:
        return low.reduce(size, "sum", axes(dim, x.ndim), keepdim)
    powered = low.reduce(low.pointwise("pow", size, ord), "sum", axes(dim, x.ndim), keepdim)
    return low.pointwise("pow", powered, 1.0 / ord)


@aten("cdist", "_cdist_forward", "_euclidean_dist")
def _cdist(low: Lower, a: V, b: V, p: float = 2.0, *options: Any) -> Any:
    if p != 2:
        return NotImplemented
    left = low.reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
    right = low.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    gap = low.pointwise("sub", left, right)
    return low.reduce(gap, "norm", (gap.ndim - 1,), keepdims=False)


# --- softmax ----------------------------------------------------------------------------------


@aten("softmax", "_softmax", "log_softmax", "_log_softmax", "special_softmax", "_safe_softmax")
def _softmax(low: Lower, x: V, dim: int, *options: Any, **more: Any) -> V:
    op = ops.Softmax(axis(dim, x.ndim), "log" in low.base)
    return low.add(op, (x,), x.shape)


@aten("softmin")
def _softmin(low: Lower, x: V, dim: int, *options: Any) -> V:
    return low.add(ops.Softmax(axis(dim, x.ndim)), (low.pointwise("neg", x),), x.shape)


# --- order ------------------------------------------------------------------------------------


@aten("sort", "argsort", "msort")
def _sort(low: Lower, x: V, dim: Any = -1, descending: bool = False, **options: Any) -> Any:
    if isinstance(dim, bool):
        dim, descending = options.get("dim", -1), dim
    dim, descending = options.get("dim", dim), options.get("descending", descending)
    values = low.add(ops.Sort(axis(dim, x.ndim), None, descending), (x,), x.shape, x.kind)
    if low.base != "sort":
        return values
    return values, _places(low, x, axis(dim, x.ndim), x.shape)


@aten("topk")
def _topk(low: Lower, x: V, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    dim = axis(dim, x.ndim)
    shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
    index = _places(low, x, dim, shape)
    return low.add(ops.Sort(dim, k, largest), (x,), shape, x.kind), index


def _places(low: Lower, x: V, dim: int, shape: Sequence[int]) -> V:
    """Where sorted entries came from: integers that depend on the data, spread along the dimension."""
    first = low.reduce(x, "argmax", (dim,), keepdims=True)
    return low.expand(first, shape)


@aten("kthvalue", "median.dim", "mode")
def _kth(low: Lower, x: V, *options: Any, **more: Any) -> Any:
    return (low.opaque(low.base, "no rule for order statistics", (x,))[0], None)


@aten("cumsum", "cumprod")
def _cumulate(low: Lower, x: V, dim: int, **options: Any) -> V:
    op = ops.Cumulate(axis(dim, x.ndim), low.base.removeprefix("cum").removesuffix("_"))
    return low.add(op, (x,), x.shape, x.kind)


# --- pooling ----------------------------------------------------------------------------------


def _pool(low: Lower, x: V, kind: str, n: int, kernel: Ints, stride: Ints | None, padding: Ints, dilation: Ints,
          ceil: bool, count_pad: bool = True) -> V:  # fmt: skip
    size, dil, pad = many(kernel, n), many(dilation, n), many(padding, n)
    step = size if not stride and stride != 0 else many(stride, n)
    if step == ():
        step = size
    windows: list[ops.PoolWindow] = []
    for i in range(n):
        dim = x.ndim - n + i
        reach = dil[i] * (size[i] - 1) + 1
        out = low.shapes[0][dim]
        high = max((out - 1) * step[i] + reach - x.shape[dim] - pad[i], 0) if ceil else pad[i]
        windows.append(ops.PoolWindow(dim, size[i], step[i], pad[i], high, dil[i]))
    return low.add(ops.Pool(kind, tuple(windows), count_pad), (x,), low.shapes[0], x.kind)


@aten("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices",
      "max_pool1d_with_indices")  # fmt: skip
def _max_pool(low: Lower, x: V, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
              ceil_mode: bool = False) -> Any:  # fmt: skip
    n = int(low.base[8])
    out = _pool(low, x, "max", n, kernel_size, stride, padding, dilation, ceil_mode)
    return (out, None) if "indices" in low.base else out


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(low: Lower, x: V, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, ceil_mode: bool = False,
              count_include_pad: bool = True, divisor_override: int | None = None) -> V:  # fmt: skip
    n = int(low.base[8])
    count_pad = count_include_pad and not (ceil_mode and not any(many(padding, n)))
    out = _pool(low, x, "avg", n, kernel_size, stride, padding, 1, ceil_mode, count_pad)
    if divisor_override:
        size = 1
        for k in many(kernel_size, n):
            size *= k
        out = low.pointwise("mul", out, size / divisor_override)
    return out


@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
      "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")  # fmt: skip
def _adaptive(low: Lower, x: V, output_size: Ints) -> Any:
    """Equal windows where sizes divide; else the averages are a constant matrix along each dimension."""
    n = int(low.base.removesuffix("d")[-1])
    kind = "max" if "max" in low.base else "avg"
    dims = tuple(range(x.ndim - n, x.ndim))
    outs = low.shapes[0][-n:]
    if all(o == 1 for o in outs):
        out = low.reduce(x, "mean" if kind == "avg" else "max", dims, keepdims=True)
    elif all(x.shape[d] % o == 0 for d, o in zip(dims, outs, strict=True)):
        windows = tuple(
            ops.PoolWindow(d, x.shape[d] // o, x.shape[d] // o)
            for d, o in zip(dims, outs, strict=True)
            if x.shape[d] != o
        )
        out = low.add(ops.Pool(kind, windows), (x,), low.shapes[0], x.kind) if windows else low.pointwise("identity", x)
    elif kind == "avg":
        out = x
        for d, o in zip(dims, outs, strict=True):
            out = _averaged(low, out, d, o)
    else:
        return NotImplemented
    return (out, *(None for _ in low.shapes[1:])) if len(low.shapes) > 1 else out


def _averaged(low: Lower, x: V, dim: int, out: int) -> V:
    """Averages over the ranges ``floor(i n / out) .. ceil((i + 1) n / out)`` of one dimension."""
    size = x.shape[dim]
    matrix = np.zeros((out, size), np.float32)
    for i in range(out):
        start, stop = i * size // out, -(-(i + 1) * size // out)
        matrix[i, start:stop] = 1 / (stop - start)
    labels = tuple(range(x.ndim))
    result = tuple(x.ndim if d == dim else d for d in labels)
    return low.contract(x, low.const(matrix, "averages"), labels, (x.ndim, dim), result)


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
      "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
      "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")  # fmt: skip
def _resize(low: Lower, x: V, *options: Any, **more: Any) -> V:
    call = low.base
    kind = "nearest" if "nearest" in call else "cubic" if "cubic" in call else "linear"
    dims = tuple(range(2, x.ndim))
    sizes = tuple(low.shapes[0][d] for d in dims)
    return low.add(ops.Resize(dims, sizes, kind), (x,), low.shapes[0], x.kind)


# --- transforms -------------------------------------------------------------------------------


def _norm_name(norm: Any) -> str:
    return norm if isinstance(norm, str) else "backward"


@aten("fft_fft", "fft_ifft", "fft_rfft", "fft_irfft")
def _fft(low: Lower, x: V, n: int | None = None, dim: int = -1, norm: str | None = None) -> V:
    return _spectral(low, x, low.base.removeprefix("fft_"), (axis(dim, x.ndim),), norm)


@aten("fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2", "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn")
def _fftn(low: Lower, x: V, s: Sequence[int] | None = None, dim: Sequence[int] | None = None,
          norm: str | None = None) -> V:  # fmt: skip
    call = low.base.removeprefix("fft_")
    dims = axes((-2, -1) if dim is None and call.endswith("2") else dim, x.ndim)
    return _spectral(low, x, call.rstrip("2n"), dims, norm)


def _spectral(low: Lower, x: V, kind: str, dims: Sequence[int], norm: str | None) -> V:
    """``sizes`` are the lengths of the transform: of its real side where one side is real."""
    shape = low.shapes[0]
    sizes = tuple(shape[d] if kind in ("irfft", "fft", "ifft") else x.shape[d] for d in dims)
    kind_of = "float" if kind == "irfft" else "complex"
    return low.add(ops.Spectral(kind, tuple(dims), sizes, _norm_name(norm)), (x,), shape, kind_of)

"""Shapes of results where PyTorch's own rule without data is slow or missing.

Many of PyTorch's rules for meta tensors are Python code that takes a third of a millisecond and, on
first use, imports the whole compiler. ``STAND_INS[name](*args)`` gives an empty result for arguments
that are plainly right, and ``NotImplemented`` for all others, so that PyTorch itself handles the rare
cases and says what is wrong with the bad ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from anyinit._frameworks.torch.trees import Ints, many

STAND_INS: dict[str, Callable[..., Any]] = {}


def stand_in(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a shape rule."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        STAND_INS.update(dict.fromkeys(names, fn))
        return fn

    return register


def _plain(*tensors: Any) -> bool:
    """All are tensors of one floating or complex type."""
    first = tensors[0]
    if not isinstance(first, Tensor) or not (first.is_floating_point() or first.is_complex()):
        return False
    return all(isinstance(t, Tensor) and t.dtype == first.dtype for t in tensors)


def _empty(like: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(tuple(shape), dtype=dtype or like.dtype, device="meta")


def _same(x: Tensor) -> Tensor:
    """Of the same shape and, where that is a layout of its own, the same strides."""
    if x.is_contiguous() or 0 in x.stride():
        return _empty(x, x.shape)
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


# --- elementwise ------------------------------------------------------------------------------


@stand_in("relu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "softplus", "elu", "mish",
          "leaky_relu", "exp", "rsqrt", "sqrt", "neg", "erf", "sin", "cos", "hardtanh", "relu6", "selu", "celu", "roll",
          "log_sigmoid", "softmax", "log_softmax", "clamp_min", "clamp", "pow", "cumsum")  # fmt: skip
def _alike(x: Tensor, *numbers: Any, **options: Any) -> Any:
    real = _plain(x) and not x.is_complex() and not any(isinstance(n, (Tensor, complex)) for n in numbers)
    return _same(x) if real and not options.get("dtype") else NotImplemented


@stand_in("dropout")
def _dropout(x: Tensor, p: float, train: bool) -> Any:
    return _same(x) if train and p > 0 else NotImplemented


@stand_in("add", "sub", "mul", "div")
def _binary(a: Any, b: Any, **options: Any) -> Any:
    if options.get("rounding_mode") is not None:
        return NotImplemented
    if _plain(a) and isinstance(b, (int, float)) and not isinstance(b, bool):
        return _same(a)
    if not _plain(a, b):
        return NotImplemented
    if a.shape == b.shape:
        return _same(a)
    try:
        shape = torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        return NotImplemented
    return _same(a) if shape == a.shape else _same(b) if shape == b.shape else _empty(a, shape)


# --- contractions -----------------------------------------------------------------------------


@stand_in("linear")
def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    fits = weight.ndim == 2 and _plain(x, weight) and x.ndim > 0 and x.shape[-1] == weight.shape[1]
    fits = fits and (bias is None or (_plain(x, bias) and bias.shape == weight.shape[:1]))
    return _empty(x, (*x.shape[:-1], weight.shape[0])) if fits else NotImplemented


@stand_in("addmm")
def _addmm(bias: Tensor, a: Tensor, b: Tensor, **options: Any) -> Any:
    fits = _plain(a, b, bias) and a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and bias.shape == b.shape[1:]
    return _empty(a, (a.shape[0], b.shape[1])) if fits else NotImplemented


@stand_in("matmul", "bmm", "mm")
def _matmul(a: Tensor, b: Tensor) -> Any:
    fits = _plain(a, b) and a.ndim >= 2 and a.ndim == b.ndim and a.shape[:-2] == b.shape[:-2]
    return _empty(a, (*a.shape[:-1], b.shape[-1])) if fits and a.shape[-1] == b.shape[-2] else NotImplemented


@stand_in("conv1d", "conv2d", "conv3d")
def _conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Any = 0, dilation: Ints = 1,
          groups: int = 1) -> Any:  # fmt: skip
    n = weight.ndim - 2
    fits = _plain(x, weight) and x.ndim == n + 2 and x.shape[1] == weight.shape[1] * groups
    if not fits or isinstance(padding, str) or weight.shape[0] % groups:
        return NotImplemented
    if bias is not None and not (_plain(x, bias) and bias.shape == weight.shape[:1]):
        return NotImplemented
    steps, pads, spread = (many(v, n) for v in (stride, padding, dilation))
    space = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(x.shape[2:], weight.shape[2:], steps, pads, spread, strict=True)
    ]
    return _empty(x, (x.shape[0], weight.shape[0], *space)) if min(space) > 0 else NotImplemented


@stand_in("scaled_dot_product_attention")
def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *rest: Any,
               **options: Any) -> Any:  # fmt: skip
    fits = _plain(query, key, value) and query.ndim >= 3 and query.shape[-1] == key.shape[-1]
    fits = fits and query.shape[:-2] == key.shape[:-2] == value.shape[:-2] and key.shape[-2] == value.shape[-2]
    if fits and attn_mask is not None:
        fits = attn_mask.ndim <= query.ndim and attn_mask.shape[-1] == key.shape[-2]
        fits = fits and attn_mask.shape[-2] in (1, query.shape[-2])
    return _empty(query, (*query.shape[:-1], value.shape[-1])) if fits else NotImplemented


@stand_in("_grouped_mm")
def _grouped_mm(a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if a.ndim != 2 or b.ndim != 3 or a.shape[1] != b.shape[1]:
        return NotImplemented
    return _empty(a, (a.shape[0], b.shape[2]), dtype=out_dtype or a.dtype)


@stand_in("embedding")
def _embedding(weight: Tensor, indices: Tensor, *options: Any, **more: Any) -> Any:
    fits = weight.ndim == 2 and indices.dtype in (torch.int64, torch.int32)
    return _empty(weight, (*indices.shape, weight.shape[1])) if fits else NotImplemented


# --- norms, joining, averages, recurrent layers -----------------------------------------------


@stand_in("batch_norm", "instance_norm")
def _batch_norm(x: Tensor, weight: Tensor | None = None, *rest: Any, **options: Any) -> Any:
    fits = x.ndim >= 2 and (weight is None or weight.shape == x.shape[1:2])
    return _same(x) if fits else NotImplemented


@stand_in("group_norm")
def _group_norm(x: Tensor, num_groups: int, weight: Tensor | None = None, *rest: Any) -> Any:
    fits = x.ndim >= 2 and x.shape[1] % num_groups == 0 and (weight is None or weight.shape == x.shape[1:2])
    return _same(x) if fits else NotImplemented


@stand_in("layer_norm", "rms_norm")
def _layer_norm(x: Tensor, normalized_shape: Sequence[int], *rest: Any, **options: Any) -> Any:
    fits = tuple(x.shape[-len(normalized_shape) :]) == tuple(normalized_shape)
    return _empty(x, x.shape) if fits else NotImplemented


@stand_in("cat")
def _cat(parts: Sequence[Tensor], dim: int = 0) -> Any:
    shape = list(parts[0].shape)
    if not shape or not _plain(*parts) or any(t.ndim != len(shape) for t in parts):
        return NotImplemented
    dim %= len(shape)
    if any((*t.shape[:dim], *t.shape[dim + 1 :]) != (*shape[:dim], *shape[dim + 1 :]) for t in parts):
        return NotImplemented
    shape[dim] = sum(t.shape[dim] for t in parts)
    return _empty(parts[0], shape)


@stand_in("mean", "linalg_vector_norm")
def _reduced(x: Tensor, *rest: Any, **options: Any) -> Any:
    if options or not _plain(x) or x.is_complex():
        return NotImplemented
    dims, keep = (*rest[-2:],) if len(rest) >= 2 and isinstance(rest[-1], bool) else (*rest[-1:], False)
    if not isinstance(dims, (list, tuple)) or not dims:
        return NotImplemented
    gone = {d % x.ndim for d in dims}
    return _empty(x, [1 if i in gone else n for i, n in enumerate(x.shape) if keep or i not in gone])


@stand_in("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive(x: Tensor, sizes: Sequence[int | None]) -> Any:
    whole = [n for n in sizes if n is not None]
    if len(whole) < len(sizes) or x.ndim < len(sizes) + 1:
        return NotImplemented
    return _empty(x, (*x.shape[: -len(sizes)], *whole))


@stand_in("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(x: Tensor, hx: Any, params: Any, has_biases: bool, num_layers: Any, p: Any, train: Any,
               bidirectional: bool, batch_first: Any = None) -> Any:  # fmt: skip
    if not isinstance(batch_first, bool) or x.ndim != 3 or not _plain(x, *params):
        return NotImplemented
    states = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    if x.shape[2] != params[0].shape[1] or any(s.shape[1] != x.shape[0 if batch_first else 1] for s in states):
        return NotImplemented
    out = _empty(x, (*x.shape[:2], (2 if bidirectional else 1) * states[0].shape[-1]))
    return (out, *(_same(s) for s in states))

"""Normalizations: the statistics as one node, the affine part as elementwise nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyinit._frameworks.torch.lower import Lower, V, aten, axis
from anyinit._graph import ops


def normalize(low: Lower, x: V, dims: Sequence[int], eps: float, center: bool = True) -> V:
    """``(x - mean) / sqrt(var + eps)`` over the given dimensions."""
    return low.add(ops.Normalize(tuple(dims), float(eps), center), (x,), x.shape, x.kind)


def affine(low: Lower, x: V, weight: V | None, bias: V | None, dim: int) -> V:
    """Gain and bias along one dimension."""
    return low.channelwise("add", low.channelwise("mul", x, weight, dim), bias, dim)


@aten("layer_norm")
def _layer_norm(low: Lower, x: V, normalized_shape: Sequence[int], weight: V | None = None, bias: V | None = None,
                eps: float = 1e-5, cudnn_enable: bool = True) -> V:  # fmt: skip
    out = normalize(low, x, range(x.ndim - len(normalized_shape), x.ndim), eps)
    out = out if weight is None else low.pointwise("mul", out, weight)
    return out if bias is None else low.pointwise("add", out, bias)


@aten("native_layer_norm")
def _native_layer_norm(low: Lower, x: V, shape: Sequence[int], weight: V | None, bias: V | None, eps: float) -> Any:
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    mean = low.reduce(x, "mean", dims, keepdims=True)
    rstd = low.pointwise("rsqrt", low.pointwise("add", low.reduce(x, "var", dims, keepdims=True), eps))
    return _layer_norm(low, x, shape, weight, bias, eps), mean, rstd


@aten("rms_norm")
def _rms_norm(
    low: Lower, x: V, normalized_shape: Sequence[int], weight: V | None = None, eps: float | None = None
) -> V:
    eps = 2.0**-23 if eps is None else eps  # float32's spacing at one
    out = normalize(low, x, range(x.ndim - len(normalized_shape), x.ndim), eps, center=False)
    return out if weight is None else low.pointwise("mul", out, weight)


@aten("_fused_rms_norm")
def _fused_rms_norm(low: Lower, x: V, normalized_shape: Sequence[int], weight: V | None = None,
                    eps: float | None = None) -> Any:  # fmt: skip
    return _rms_norm(low, x, normalized_shape, weight, eps), None


@aten("group_norm")
def _group_norm(low: Lower, x: V, num_groups: int, weight: V | None = None, bias: V | None = None, eps: float = 1e-5,
                cudnn_enabled: bool = True) -> V:  # fmt: skip
    groups = (x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    out = normalize(low, low.reshape(x, groups), range(2, len(groups)), eps)
    return affine(low, low.reshape(out, x.shape), weight, bias, 1)


@aten("native_group_norm")
def _native_group_norm(low: Lower, x: V, weight: V | None, bias: V | None, n: int, c: int, hw: int, group: int,
                       eps: float) -> Any:  # fmt: skip
    return _group_norm(low, x, group, weight, bias, eps), None, None


@aten("batch_norm")
def _batch_norm(low: Lower, x: V, weight: V | None, bias: V | None, running_mean: V | None, running_var: V | None,
                training: bool, momentum: float, eps: float, cudnn_enabled: bool = True) -> V:  # fmt: skip
    if training or running_mean is None or running_var is None:
        out = normalize(low, x, [d for d in range(x.ndim) if d != 1], eps)
    else:
        out = _with_running(low, x, running_mean, running_var, eps)
    return affine(low, out, weight, bias, 1)


def _with_running(low: Lower, x: V, mean: V, var: V, eps: float) -> V:
    scale = low.pointwise("rsqrt", low.pointwise("add", var, eps))
    return low.channelwise("mul", low.channelwise("sub", x, mean, 1), scale, 1)


@aten("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "_batch_norm_impl_index")
def _native_batch_norm(low: Lower, x: V, weight: V | None, bias: V | None, running_mean: V | None,
                       running_var: V | None, training: bool, momentum: float, eps: float,
                       *rest: Any) -> Any:  # fmt: skip
    out = _batch_norm(low, x, weight, bias, running_mean, running_var, training, momentum, eps)
    return (out, *(None for _ in low.shapes[1:]))


@aten("instance_norm")
def _instance_norm(low: Lower, x: V, weight: V | None, bias: V | None, running_mean: V | None, running_var: V | None,
                   use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool = True) -> V:  # fmt: skip
    if use_input_stats or running_mean is None or running_var is None:
        out = normalize(low, x, range(2, x.ndim), eps)
    else:
        out = _with_running(low, x, running_mean, running_var, eps)
    return affine(low, out, weight, bias, 1)


@aten("_weight_norm")
def _weight_norm(low: Lower, v: V, g: V, dim: int = 0) -> V:
    return _weight_norm_parts(low, v, g, dim)[0]


@aten("_weight_norm_interface")
def _weight_norm_interface(low: Lower, v: V, g: V, dim: int = 0) -> Any:
    out, norm = _weight_norm_parts(low, v, g, dim)
    return out, low.reshape(norm, low.shapes[1])


def _weight_norm_parts(low: Lower, v: V, g: V, dim: int) -> tuple[V, V]:
    dims = tuple(range(v.ndim)) if dim == -1 else tuple(d for d in range(v.ndim) if d != axis(dim, v.ndim))
    norm = low.reduce(v, "norm", dims, keepdims=True)
    return low.pointwise("mul", v, low.pointwise("div", g, norm)), norm

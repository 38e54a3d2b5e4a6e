"""Scaled dot-product attention, spelled out."""

from __future__ import annotations

import math
from typing import Any

from anyinit._frameworks.torch.lower import Lower, V, aten
from anyinit._frameworks.torch.translate_contract import matmul
from anyinit._frameworks.torch.translate_random import dropout
from anyinit._frameworks.torch.translate_structure import repeated
from anyinit._graph import ops


@aten("scaled_dot_product_attention")
def _sdpa(low: Lower, query: V, key: V, value: V, attn_mask: V | None = None, dropout_p: float = 0.0,
          is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False) -> V:  # fmt: skip
    heads = query.shape[-3] if query.ndim > 3 else 1
    if enable_gqa and key.shape[-3] != heads:
        key, value = (repeated(low, x, x.ndim - 3, heads // x.shape[-3], tile=False) for x in (key, value))
    order = (*range(key.ndim - 2), key.ndim - 1, key.ndim - 2)
    logits = matmul(low, query, low.permute(key, order))
    logits = low.pointwise("mul", logits, 1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = low.causal_mask(*logits.shape[-2:])
    if attn_mask is not None:
        boolean = attn_mask.kind == "bool"
        logits = (
            low.pointwise("where", attn_mask, logits, -math.inf) if boolean else low.pointwise("add", logits, attn_mask)
        )
    weights = low.add(ops.Softmax(logits.ndim - 1), (logits,), logits.shape)
    return matmul(low, dropout(low, weights, dropout_p), value)


@aten("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_cudnn_attention")  # fmt: skip
def _flash(low: Lower, query: V, key: V, value: V, dropout_p: float = 0.0, is_causal: bool = False, *options: Any,
           attn_mask: V | None = None, scale: float | None = None) -> Any:  # fmt: skip
    out = _sdpa(low, query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    return (out, *(None for _ in low.shapes[1:]))


@aten("_scaled_dot_product_efficient_attention")
def _efficient(low: Lower, query: V, key: V, value: V, attn_bias: V | None, compute_log_sumexp: bool = False,
               dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None) -> Any:  # fmt: skip
    out = _sdpa(low, query, key, value, attn_bias, dropout_p, is_causal, scale=scale)
    return (out, *(None for _ in low.shapes[1:]))


@aten("_scaled_dot_product_attention_math")
def _math(low: Lower, query: V, key: V, value: V, attn_mask: V | None = None, dropout_p: float = 0.0,
          is_causal: bool = False, dropout_mask: V | None = None, *, scale: float | None = None,
          enable_gqa: bool = False) -> Any:  # fmt: skip
    return _sdpa(low, query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa), None

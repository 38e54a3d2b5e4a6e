"""Dropout, fresh noise and constant factories too large to be computed while recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyinit._frameworks.torch.lower import Lower, V, aten
from anyinit._graph import ops


@aten("dropout", "_dropout_impl")
def _dropout(low: Lower, x: V, p: float, train: bool = True) -> V:
    return dropout(low, x, p if train else 0.0)


@aten("native_dropout")
def _native_dropout(low: Lower, x: V, p: float, train: bool | None = True) -> Any:
    mask = low.add(ops.Random("bernoulli", (1 - p,), x.shape), (), x.shape, "bool")
    return dropout(low, x, p if train else 0.0), mask


def dropout(low: Lower, x: V, p: float, dims: tuple[int, ...] | None = None) -> V:
    """Dropout; nothing where ``p`` is zero."""
    if p == 0:
        return x
    return low.add(ops.Dropout(float(p), dims), (x,), x.shape, x.kind)


@aten("feature_dropout")
def _feature_dropout(low: Lower, x: V, p: float, train: bool) -> V:
    return dropout(low, x, p if train else 0.0, (0, 1))


def _noise(low: Lower, kind: str, *params: float) -> V:
    shape = low.shapes[0]
    return low.add(ops.Random(kind, tuple(float(p) for p in params), shape), (), shape, low.kinds[0])


@aten("randn", "randn_like", "normal.float_float")
def _randn(low: Lower, *options: Any, **more: Any) -> V:
    return _noise(low, "normal", 0.0, 1.0)


@aten("rand", "rand_like")
def _rand(low: Lower, *options: Any, **more: Any) -> V:
    return _noise(low, "uniform", 0.0, 1.0)


@aten("normal", "normal_functional")
def _normal(low: Lower, x: Any, mean: Any = 0.0, std: float = 1.0, *options: Any, **more: Any) -> V:
    if "Tensor" in low.base:
        return NotImplemented
    return _noise(low, "normal", mean, std)


@aten("normal.Tensor_float", "normal.Tensor_Tensor", "normal.float_Tensor")
def _normal_tensors(low: Lower, mean: Any = 0.0, std: Any = 1.0, **more: Any) -> V:
    return low.pointwise("add", low.pointwise("mul", _noise(low, "normal", 0.0, 1.0), std), mean)


@aten("prims::uniform")
def _prims_uniform(lower: Lower, shape: Any, *, low: float, high: float, **more: Any) -> V:
    return _noise(lower, "uniform", low, high)


@aten("uniform")
def _uniform(low: Lower, x: V, a: float = 0.0, b: float = 1.0, **more: Any) -> V:
    return _noise(low, "uniform", a, b)


@aten("exponential")
def _exponential(low: Lower, x: V, rate: float = 1.0, **more: Any) -> V:
    return _noise(low, "exponential", rate)


@aten("bernoulli", "bernoulli.p", "bernoulli.float")
def _bernoulli(low: Lower, x: V, p: Any = None, **more: Any) -> V:
    if isinstance(p, float):
        return _noise(low, "bernoulli", p)
    chance = x if p is None else p
    return low.pointwise("lt", _noise(low, "uniform", 0.0, 1.0), chance)


@aten("randint", "randint_like", "random", "randperm")
def _randint(low: Lower, *options: Any, **more: Any) -> V:
    numbers = [v for v in options if isinstance(v, int) and not isinstance(v, bool)]
    first, last = (0, numbers[0]) if len(numbers) == 1 else numbers[:2] if numbers else (0, 2)
    return _noise(low, "integer", first, last)


@aten("nonzero", "nonzero_static")
def _nonzero(low: Lower, x: V, *options: Any, **more: Any) -> V:
    """Which places a condition picks is not followed; they stand for places anywhere in the tensor."""
    return _noise(low, "integer", 0, max(x.shape, default=1))


@aten("multinomial")
def _multinomial(low: Lower, x: V, *options: Any, **more: Any) -> V:
    return low.add(ops.Random("integer", (0.0, float(x.shape[-1])), low.shapes[0]), (), low.shapes[0], "int")


def _constant(value: float) -> Any:
    def translate(low: Lower, *options: Any, **more: Any) -> V:
        return low.fill(value, low.shapes[0], low.kinds[0])

    return translate


for _names, _value in {
    ("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"): 0.0,
    ("ones", "ones_like", "new_ones"): 1.0,
}.items():
    aten(*_names)(_constant(_value))


@aten("full", "full_like", "new_full")
def _full(low: Lower, first: V | Sequence[int], *options: Any, **more: Any) -> V:
    value = more.get("fill_value", options[-1] if options else 0.0)
    if isinstance(value, V):
        return low.expand(value, low.shapes[0])
    return low.fill(float(value), low.shapes[0], low.kinds[0])

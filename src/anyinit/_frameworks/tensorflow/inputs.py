"""What the model is run on: a batch, an abstract value, a shape, or a callable that returns one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from anyinit._frameworks.primitives.inputs import arguments, is_shape, shape, sound
from anyinit.errors import ConfigError

REMEDY = "Pass input_spec: a shape such as (32, 64), a batch, a tuple or dict of them, or tf.TensorSpec."


@dataclass(frozen=True, slots=True)
class Batch:
    """Positional and keyword arguments of the model; leaves are tensors or ``tf.TensorSpec``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def leaves(self) -> list[Any]:
        """The flattened arguments, in the order of :meth:`names`."""
        return [leaf for _, leaf in _walk("", (self.args, self.kwargs))]

    def names(self) -> list[str]:
        """A name for every leaf: ``input.0`` or its keyword, then its place inside."""
        found = [f"input{path}" for path, _ in _walk("", self.args)]
        return found + [path.lstrip(".") for path, _ in _walk("", self.kwargs)]

    def specs(self) -> list[Any]:
        """Shape and type of every leaf."""
        return [leaf if _abstract(leaf) else tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in self.leaves()]

    def filled(self, leaves: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with ``leaves`` in place of their own."""
        args, kwargs = _rebuilt((self.args, self.kwargs), iter(leaves))
        return args, kwargs

    def given(self) -> bool:
        """Whether the caller gave numbers, not only shapes."""
        return not any(map(_abstract, self.leaves()))

    def synthetic(self, highs: Mapping[int, int]) -> list[Any]:
        """Real leaves: the caller's own; else standard normal floats and uniform integers from seed 0.
        ``highs[i]`` bounds the integers of leaf ``i``."""
        rng = np.random.default_rng(0)
        return [_real(leaf, rng, highs.get(i, 2)) for i, leaf in enumerate(self.leaves())]


def _abstract(leaf: Any) -> bool:
    return isinstance(leaf, tf.TensorSpec)


def _walk(path: str, tree: Any) -> list[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        return [pair for k in tree for pair in _walk(f"{path}.{k}", tree[k])]
    if isinstance(tree, (tuple, list)):
        return [pair for i, x in enumerate(tree) for pair in _walk(f"{path}.{i}", x)]
    return [] if tree is None else [(path, tree)]


def _rebuilt(tree: Any, leaves: Any) -> Any:
    if isinstance(tree, Mapping):
        return {k: _rebuilt(v, leaves) for k, v in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(_rebuilt(v, leaves) for v in tree)
    return None if tree is None else next(leaves)


def _real(leaf: Any, rng: np.random.Generator, high: int) -> Any:
    if not _abstract(leaf):
        return leaf
    shape = tuple(int(n) for n in leaf.shape)
    if leaf.dtype.is_floating or leaf.dtype.is_complex:
        return tf.cast(tf.constant(rng.standard_normal(shape)), leaf.dtype)
    return tf.cast(tf.constant(rng.integers(0, high, shape)), leaf.dtype)


def parse(spec: Any) -> Batch:
    """The batch an ``input_spec`` means."""
    return Batch(*arguments(spec, _value, REMEDY))


def _value(spec: Any) -> Any:
    """One argument: arrays are checked, shapes become float32 specs."""
    if isinstance(spec, tf.TensorShape):
        spec = tuple(spec)
    if is_shape(spec):
        return tf.TensorSpec(shape(spec, REMEDY), tf.float32)
    if isinstance(spec, Mapping):
        return {k: _value(v) for k, v in spec.items()}
    if isinstance(spec, (tuple, list)):
        return type(spec)(_value(v) for v in spec)
    if isinstance(spec, (tf.Tensor, tf.Variable, np.ndarray, np.generic, int, float, complex)):
        return _checked(spec)
    if hasattr(spec, "shape") and hasattr(spec, "dtype"):
        if any(n is None for n in spec.shape):
            raise ConfigError("A shape must be known in full", value=tuple(spec.shape), remedy=REMEDY)
        return tf.TensorSpec(tuple(spec.shape), tf.as_dtype(spec.dtype))
    if hasattr(spec, "__array__"):
        return _checked(np.asarray(spec))
    raise ConfigError("This is no input a TensorFlow model can take", value=type(spec).__name__, remedy=REMEDY)


def _checked(spec: Any) -> Any:
    tensor = tf.convert_to_tensor(spec)
    if isinstance(spec, np.ndarray) and spec.dtype == np.float64:
        tensor = tf.cast(tensor, tf.float32)
    finite = not tensor.dtype.is_floating or bool(tf.reduce_all(tf.math.is_finite(tensor)))
    sound(int(tf.size(tensor)), finite, tensor.shape)
    return tensor

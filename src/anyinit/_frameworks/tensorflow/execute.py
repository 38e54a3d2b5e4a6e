"""One operation of a graph, run eagerly on other operands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from anyinit._frameworks.primitives.flat import Aval


def attributes(op: Any) -> dict[str, Any]:
    """The attributes of an operation by name, texts decoded."""
    found: dict[str, Any] = {}
    for attribute in op.op_def.attr:
        if not attribute.name.startswith("_") and attribute.type != "func":
            found[attribute.name] = _plain(op.get_attr(attribute.name))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_plain(v) for v in value] if isinstance(value, list) else value


def binder(op: Any) -> Callable[..., Sequence[Any]]:
    """``call(*operands) -> outputs`` of an operation."""
    raw = getattr(tf.raw_ops, re.sub(r"\W", "", op.type), None)
    groups, inferred = list[tuple[str, int | None]](), set[str]()
    for arg in op.op_def.input_arg:
        size = int(op.get_attr(arg.number_attr)) if arg.number_attr else None
        if arg.type_list_attr:
            size = len(op.get_attr(arg.type_list_attr))
        inferred.update((arg.type_attr, arg.number_attr, arg.type_list_attr))
        groups.append((arg.name, size))
    fixed = {name: value for name, value in attributes(op).items() if name not in inferred}
    wanted = [*(name for name, _ in groups), *fixed]
    renamed = _renamed(raw, wanted) if raw is not None else {}

    def call(*operands: Any) -> Sequence[Any]:
        if raw is None:
            raise TypeError(f"{op.type} cannot be run on its own")
        left, named = iter(operands), dict[str, Any]()
        for name, size in groups:
            named[name] = next(left) if size is None else [next(left) for _ in range(size)]
        out = raw(**{renamed.get(name, name): value for name, value in (named | fixed).items()})
        return [out] if isinstance(out, tf.Tensor) else [t for part in out for t in _listed(part)]

    return call


def _renamed(raw: Any, names: Sequence[str]) -> dict[str, str]:
    """Arguments that the Python function calls otherwise than the operation does, paired in order."""
    taken = [name for name in inspect.signature(raw).parameters if name != "name"]
    return dict(zip((n for n in names if n not in taken), (t for t in taken if t not in names), strict=False))


def _listed(part: Any) -> list[Any]:
    return list(part) if isinstance(part, (list, tuple)) else [part]


def aval(tensor: Any) -> Aval | None:
    """Shape and type of a tensor; ``None`` where the shape is not known in full."""
    if not tensor.shape.is_fully_defined():
        return None
    return Aval(tuple(int(n) for n in tensor.shape), dtype_of(tensor.dtype))


def dtype_of(dtype: Any) -> Any:
    """The NumPy type of a TensorFlow one; its name for what is no number."""
    if dtype.base_dtype in (tf.resource, tf.variant, tf.string):
        return dtype.name
    return np.dtype(dtype.as_numpy_dtype)


def inferred(call: Callable[..., Sequence[Any]], operands: Sequence[Any]) -> tuple[Aval, ...] | None:
    """Shapes of the outputs from those of the operands (``Aval`` or a known array), by TensorFlow's own inference."""
    with tf.Graph().as_default():
        given = [
            tf.compat.v1.placeholder(tf.as_dtype(x.dtype), x.shape) if isinstance(x, Aval) else tf.constant(x)
            for x in operands
        ]
        found = [aval(t) for t in call(*given)]
    return None if None in found else tuple(a for a in found if a is not None)

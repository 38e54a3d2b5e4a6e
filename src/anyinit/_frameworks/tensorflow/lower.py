"""TensorFlow operations as the shared primitives: helpers of the translators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anyinit._frameworks.primitives.flat import Aval, Step
from anyinit._frameworks.primitives.lower import TRANSLATORS, Bound, Lowering


def as_primitive(
    low: Lowering, step: Step, name: str, ins: Sequence[Bound], shape: Sequence[int] | None = None, **params: Any
) -> Any:
    """What the primitive ``name`` makes of ``ins``; ``shape`` is that of its output where it is not the step's."""
    avals = step.avals if shape is None else (Aval(tuple(int(n) for n in shape), step.avals[0].dtype),)
    return TRANSLATORS[name](low, replace(step, name=name, params=params, avals=avals), *ins)


def one(found: Any) -> Bound:
    """The only output of a translation."""
    return found if isinstance(found, Bound) else found[0]


def numbers(bound: Bound) -> list[int] | None:
    """A constant operand as integers, or ``None`` if it depends on data."""
    if bound.data is None:
        return None
    return [int(n) for n in np.broadcast_to(bound.data, bound.shape).reshape(-1)]


def constant(value: Any, kind: str) -> Bound:
    """An array made while recording."""
    data = np.asarray(value)
    return Bound(data.shape, kind, data=data)


def channel_first(step: Step) -> bool:
    """Whether the channels of a step's operands come before space."""
    return str(step.params.get("data_format", "NHWC")).startswith("NC")


def padding(
    kind: str, explicit: Sequence[int], sizes: Sequence[tuple[int, int, int, int]], dims: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding below and above for each ``(size, window, stride, dilation)``; ``dims`` are their places in
    ``explicit``."""
    if kind == "EXPLICIT":
        return [(int(explicit[2 * d]), int(explicit[2 * d + 1])) for d in dims]
    if kind == "VALID":
        return [(0, 0)] * len(sizes)
    out = list[tuple[int, int]]()
    for size, window, stride, dilation in sizes:
        whole = max((-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
        out.append((whole // 2, whole - whole // 2))
    return out

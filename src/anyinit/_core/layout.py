"""The canonical layout of a weight and its fans, once for every framework.

However a framework stores a weight (``OIHW``, ``HWIO``, transposed, packed, stacked), a part of it is a
*view*, a chain of reshapes, permutations and slices of the stored array, whose dimensions are
then ordered ``groups + outs + ins``; flattened, that is ``groups`` matrices of ``(n_out, n_in)``. Draws are made
in that form and written through the view, so two layouts of one weight hold permutations of the same values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit.errors import PlanError

Array = NDArray[Any]
Step = tuple[Any, ...]
Dims = tuple[int, ...]


def assign(target: Array, view: Sequence[Step], groups: Dims, outs: Dims, ins: Dims, values: Array) -> None:
    """Write ``values`` of shape ``(groups, n_out, n_in)`` into the part of ``target`` that ``view`` shows.

    Raises:
        PlanError: the view or the values do not fit ``target``; it is unchanged.
    """
    shape = canonical_shape(target.shape, view, groups, outs, ins)
    if values.shape != shape:
        raise PlanError("Values do not fit the part", value=(values.shape, shape), remedy="Plan the model again.")
    part, is_view = _steps(target, view)
    order = groups + outs + ins
    if is_view:
        part = part.transpose(order)
        part[...] = values.reshape(part.shape)
    else:
        target.flat[_places(target.shape, view, order)] = values.reshape(-1)


def extract(target: Array, view: Sequence[Step], groups: Dims, outs: Dims, ins: Dims) -> Array:
    """Inverse of :func:`assign`: the part of ``target`` in canonical form, a copy where it must be."""
    shape = canonical_shape(target.shape, view, groups, outs, ins)
    return _steps(target, view)[0].transpose(groups + outs + ins).reshape(shape)


def canonical_shape(
    shape: Sequence[int], view: Sequence[Step], groups: Dims, outs: Dims, ins: Dims
) -> tuple[int, int, int]:
    """``(groups, n_out, n_in)`` of a part, without an array.

    Raises:
        PlanError: a step does not fit, or the dimensions are not each named once.
    """
    seen = viewed_shape(shape, view)
    if sorted(groups + outs + ins) != list(range(len(seen))):
        raise PlanError(
            "Groups, outputs and inputs do not name every dimension of the view once",
            value=(seen, groups, outs, ins),
            remedy="Plan the model again.",
        )
    sizes = [math.prod(seen[d] for d in dims) for dims in (groups, outs, ins)]
    return sizes[0], sizes[1], sizes[2]


def viewed_shape(shape: Sequence[int], view: Sequence[Step]) -> tuple[int, ...]:
    """Shape after the steps ``("reshape", shape)``, ``("permute", order)``, ``("slice", dim, start, stop, step)``."""
    current = tuple(int(n) for n in shape)
    for step in view:
        after = _after(current, step)
        if after is None:
            raise PlanError("A view does not fit a parameter", value=(current, step), remedy="Plan the model again.")
        current = after
    return current


def is_plain(view: Sequence[Step], groups: Dims, outs: Dims, ins: Dims) -> bool:
    """Whether the canonical order is the stored order of the whole parameter."""
    order = groups + outs + ins
    return not view and order == tuple(range(len(order)))


def fans(n_out: int, n_in: int, *, taps: int = 1, stride: int = 1, spread: int = 1) -> tuple[float, float]:
    """``(fan_in, fan_out)``: terms in one output of a contraction and in one input gradient.

    ``n_out`` and ``n_in`` are channels of one group, ``taps`` the number of kernel positions,
    ``stride`` and ``spread`` products over the spatial dimensions of a convolution's stride and of a transposed
    one's (each output of a transposed convolution meets ``taps / spread`` kernel positions).
    """
    return n_in * taps / spread, n_out * taps / stride


def _after(shape: tuple[int, ...], step: Step) -> tuple[int, ...] | None:
    kind, *args = step
    if kind == "reshape":
        new = tuple(args[0])
        return new if math.prod(new) == math.prod(shape) and min(new, default=0) >= 0 else None
    if kind == "permute":
        order = tuple(args[0])
        return tuple(shape[d] for d in order) if sorted(order) == list(range(len(shape))) else None
    if kind == "slice":
        dim, start, stop, stride = args
        if 0 <= dim < len(shape) and 0 <= start < stop <= shape[dim] and stride >= 1:
            return *shape[:dim], len(range(start, stop, stride)), *shape[dim + 1 :]
    return None


def _steps(array: Array, view: Sequence[Step]) -> tuple[Array, bool]:
    """The array after all steps, and whether it still shares the memory it was given."""
    start = array
    for kind, *args in view:
        if kind == "reshape":
            array = array.reshape(tuple(args[0]))
        elif kind == "permute":
            array = array.transpose(tuple(args[0]))
        else:
            dim, low, high, stride = args
            array = array[(slice(None),) * dim + (slice(low, high, stride),)]
    return array, np.may_share_memory(start, array)


def _places(shape: tuple[int, ...], view: Sequence[Step], order: Dims) -> NDArray[np.intp]:
    """Flat index into the parameter of every canonical entry."""
    every = np.arange(math.prod(shape)).reshape(shape)
    return _steps(every, view)[0].transpose(order).reshape(-1)

"""From a plan to the arrays it describes. Same plan, same bytes, whatever the model held."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._core.layout import assign, canonical_shape, is_plain
from anyinit._core.sampling import draw
from anyinit._solve.plan import Draw, Part, Plan, Weight
from anyinit.errors import PlanError

Array = NDArray[Any]
Read = Callable[[Collection[str]], Mapping[str, Array]]
Progress = Callable[[int, int, str], None]

_WORK = {
    "float64": "float64",
    "double": "float64",
    "complex64": "complex64",
    "complex32": "complex64",
    "complex128": "complex128",
}


def materialize(
    plan: Plan,
    read: Read,
    dtypes: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Array]:
    """The full array of every parameter the plan sets, by name.

    Each part is ``factor`` times its draw (scale and factor multiply in float64, entries are rounded once) or
    its constant, written through its view. ``keep`` parts, and entries that no part covers, hold what the
    model holds; a parameter that is kept altogether is left out.

    Args:
        plan: what to make.
        read: current values by name, asked for (once) only for parameters set in part.
        dtypes: types by name where they differ from the plan's. Half types are made in float32, which
            whoever writes them rounds; float64 and complex parameters in their own precision.
        progress: called with ``(done, total, name)`` after each parameter.

    Raises:
        PlanError: parts overlap, share a key, do not fit their parameter, or the type cannot be drawn.
    """
    _check_keys(plan)
    chosen = [w for w in plan.weights if any(_is_set(p) for p in w.parts)]
    partial = {w.name for w in chosen if not _covered(w)}
    current = read(sorted(partial)) if partial else {}
    made: dict[str, Array] = {}
    for done, weight in enumerate(chosen, 1):
        dtype = work_dtype((dtypes or {}).get(weight.name, weight.dtype), weight.name)
        made[weight.name] = _make(weight, plan.seed, dtype, current.get(weight.name))
        if progress is not None:
            progress(done, len(chosen), weight.name)
    return made


def part_values(seed: int, shape: tuple[int, ...], part: Part, dtype: str) -> Array:
    """One part of a parameter of ``shape`` in canonical form ``(groups, n_out, n_in)``."""
    how = part.draw
    size = canonical_shape(shape, how.view, how.groups, how.outs, how.ins)
    std, mean = how.std * how.factor, how.value * how.factor
    if how.distribution == "constant":
        return np.full(size, mean, dtype)
    return draw(seed, how.key, part.label, size, how.distribution, std, dtype, how.mirrored, mean)


def work_dtype(dtype: str, name: str = "") -> str:
    """The NumPy type in which a parameter of a framework's ``dtype`` is drawn."""
    work = _WORK.get(dtype, "float32" if "float" in dtype or dtype == "half" else "")
    if not work:
        raise PlanError(
            f"Parameter {name} has a type that cannot be drawn", value=dtype, remedy="Leave it out with skip=."
        )
    return work


def _make(weight: Weight, seed: int, dtype: str, current: Array | None) -> Array:
    parts = [p for p in weight.parts if _is_set(p)]
    if current is None and len(parts) == 1 and _plain(parts[0].draw):
        return part_values(seed, weight.shape, parts[0], dtype).reshape(weight.shape)
    if current is not None and current.shape != weight.shape:
        raise PlanError(
            f"Parameter {weight.name} has another shape than the plan",
            value=(current.shape, weight.shape),
            remedy="Plan this model again.",
        )
    array = np.empty(weight.shape, dtype) if current is None else np.array(current, dtype, order="C")
    for part in parts:
        how = part.draw
        assign(array, how.view, how.groups, how.outs, how.ins, part_values(seed, weight.shape, part, dtype))
    return array


def _is_set(part: Part) -> bool:
    return part.draw.distribution != "keep"


def _plain(how: Draw) -> bool:
    return is_plain(how.view, how.groups, how.outs, how.ins)


def _covered(weight: Weight) -> bool:
    """Whether the parts that are set fill the parameter; they may not overlap."""
    parts = [p.draw for p in weight.parts if _is_set(p)]
    shapes = [canonical_shape(weight.shape, d.view, d.groups, d.outs, d.ins) for d in parts]
    total = sum(g * o * i for g, o, i in shapes)
    if len(parts) > 1:
        hit = np.zeros(weight.shape, np.bool_)
        for how, shape in zip(parts, shapes, strict=True):
            assign(hit, how.view, how.groups, how.outs, how.ins, np.ones(shape, np.bool_))
        if int(hit.sum()) != total:
            raise PlanError(
                f"Parts of {weight.name} overlap", value=[p.label for p in weight.parts], remedy="Plan the model again."
            )
    return total == weight.size


def _check_keys(plan: Plan) -> None:
    """Two random parts with one key and label would hold the same numbers."""
    seen: dict[tuple[int, str], str] = {}
    for weight in plan.weights:
        for part in weight.parts:
            if part.draw.distribution in ("keep", "constant") or not part.draw.std:
                continue
            place = (part.draw.key, part.label)
            if place in seen:
                raise PlanError(
                    f"Two parts share a draw, of {seen[place]} and of {weight.name}",
                    value=place,
                    remedy="Give every part its own key or label.",
                )
            seen[place] = weight.name

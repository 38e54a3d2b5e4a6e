"""From a plan to the arrays it describes. Same plan, same bytes, whatever the model held."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._core.layout import assign, canonical_shape, is_plain, viewed_shape
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

    Each part is its draw or constant, then :func:`rescaled` by ``factor``, written through its view.
    ``keep`` parts, and entries that no part covers, hold what the model holds; a parameter that is
    kept altogether is left out.

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


def rematerialize(
    before: Plan, made: Mapping[str, Array], after: Plan, read: Read, dtypes: Mapping[str, str] | None = None
) -> dict[str, Array]:
    """What :func:`materialize` makes of ``after``, reusing what it ``made`` of ``before``.

    Only draws that differ cost anything, and where nothing but a first factor was added, one product.
    """
    old = {w.name: w for w in before.weights} if before.seed == after.seed else {}
    kept: dict[str, Array] = {}
    for weight in after.weights:
        earlier = old.get(weight.name)
        factor = _added_factor(earlier, weight) if earlier and weight.name in made else None
        if factor is not None:
            kept[weight.name] = rescaled(made[weight.name], factor)
    rest = after.with_weights(tuple(w for w in after.weights if w.name not in kept))
    fresh = materialize(rest, read, dtypes)
    return {w.name: {**kept, **fresh}[w.name] for w in after.weights if w.name in kept or w.name in fresh}


def _added_factor(before: Weight, after: Weight) -> float | None:
    """The factor that turns one made parameter into the other to the last bit; None if there is none."""
    one, two = [p.draw for p in before.parts], [p.draw for p in after.parts]
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return None
    if one == two:
        return 1.0
    lone = len(one) == len(two) == 1 and one[0].factor == 1.0 and _plain(one[0])
    return two[0].factor if lone and replace(one[0], factor=two[0].factor) == two[0] else None


def part_values(seed: int, shape: tuple[int, ...], part: Part, dtype: str) -> Array:
    """One part of a parameter of ``shape`` in canonical form ``(groups, n_out, n_in)``."""
    how = part.draw
    size = canonical_shape(shape, how.view, how.groups, how.outs, how.ins)
    if how.distribution == "delta_orthogonal":
        return rescaled(_centre_tap(seed, shape, how, dtype, size), how.factor)
    values = draw(seed, how.key, "", size, how.distribution, how.std, dtype, how.mirrored, how.value)
    return rescaled(values, how.factor)


def _centre_tap(seed: int, shape: tuple[int, ...], how: Draw, dtype: str, size: tuple[int, int, int]) -> Array:
    """An orthogonal matrix over the channels at the centre tap, zeros elsewhere (Xiao et al. 2018, alg. 1)."""
    sizes = [viewed_shape(shape, how.view)[d] for d in how.ins]
    channels, taps = sizes[0], tuple(sizes[1:])
    one = draw(seed, how.key, "", (size[0], size[1], channels), "orthogonal", how.std, dtype, how.mirrored, how.value)
    out = np.zeros((size[0], size[1], channels, *taps), dtype=one.dtype)
    out[(..., *(n // 2 for n in taps))] = one
    return out.reshape(size)


def rescaled(values: Array, factor: float) -> Array:
    """``factor * values`` with one rounding, from a float64 product, to the type of ``values``.

    So a network drawn with factor 1 and rescaled holds the bytes of one made with the factor.
    """
    if factor == 1.0:
        return values
    wide = np.result_type(values.dtype, np.float64)
    return np.multiply(values, factor, out=np.empty_like(values), dtype=wide, casting="same_kind")


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
    """Two random parts with one key would hold the same numbers. Labels do not enter, so that a
    packed weight and its parts held separately are drawn alike."""
    seen: dict[int, str] = {}
    for weight in plan.weights:
        for part in weight.parts:
            if part.draw.distribution in ("keep", "constant") or not part.draw.std:
                continue
            if part.draw.key in seen:
                raise PlanError(
                    f"Two parts share a draw, of {seen[part.draw.key]} and of {weight.name}",
                    value=part.draw.key,
                    remedy="Give every part its own key.",
                )
            seen[part.draw.key] = weight.name

"""Frozen records: one per parameter, derived from a plan and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anyinit._solve.plan import Part, Plan, Weight

RANDOM = frozenset({"normal", "truncated_normal", "uniform", "orthogonal", "delta_orthogonal"})


class Unscaled(NamedTuple):
    """A parameter that is not set."""

    name: str
    reason: str


class OpaqueOp(NamedTuple):
    """An operation without a rule: assumed to keep the level of its input, so nothing behind it is certified."""

    operation: str
    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One parameter tensor: what was done to it and what follows.

    Levels are second moments, means over draws. ``predicted`` stands where the target is enforced (after the
    activation, pooling and reshapes that follow, else at the output of the weight's own operation),
    ``predicted_output`` at the output of the weight's own operation, bias included. ``band`` and ``output_band`` are
    the 5 and 95 % quantiles of one draw. ``scale`` is the standard deviation of the entries, corrections included.
    A tensor of several parts (query, key and value; gates; experts) carries the means over its entries here and the
    parts' own numbers in ``parts``. Quantities that do not exist are ``None``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    aliases: tuple[str, ...]
    role: str
    activation: str
    path: str
    parts: tuple[Part, ...]
    fan: int
    fan_out: int
    distribution: str
    scale: float
    value: float
    target: float | None
    predicted: float | None
    band: tuple[float, float] | None
    predicted_output: float | None
    output_band: tuple[float, float] | None
    predicted_grad: float | None
    measured: float | None
    measured_output: float | None
    measured_grad: float | None
    planned: float | None
    chi: float | None
    chi_1: float | None
    why: str
    flags: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of scalars."""
        return math.prod(self.shape)

    @property
    def is_weight(self) -> bool:
        """Whether the tensor is contracted or looked up, in contrast to biases, gains and slopes."""
        return self.fan > 0 or self.predicted_output is not None or any(p.predicted_output for p in self.parts)


def layer(weight: Weight) -> Layer:
    """The record of one parameter of a plan."""
    parts = weight.parts
    share = _shares(weight)

    def words(get: Callable[[Part], str]) -> str:
        return ", ".join(dict.fromkeys(w for w in map(get, parts) if w))

    def level(get: Callable[[Part], float | None]) -> float | None:
        return _mean([get(p) for p in parts], share)

    def band(get: Callable[[Part], tuple[float, float] | None]) -> tuple[float, float] | None:
        return _joint_band([get(p) for p in parts], share)

    variance = level(lambda p: (p.draw.std * p.draw.factor) ** 2)
    return Layer(
        name=weight.name,
        shape=weight.shape,
        dtype=weight.dtype,
        aliases=weight.aliases,
        role=words(lambda p: p.role),
        activation=words(lambda p: p.activation),
        path=words(lambda p: p.path),
        parts=parts,
        fan=max((p.fan for p in parts), default=0),
        fan_out=max((p.fan_out for p in parts), default=0),
        distribution=words(lambda p: p.draw.distribution),
        scale=math.sqrt(variance) if variance else 0.0,
        value=level(lambda p: p.draw.value) or 0.0,
        target=level(lambda p: p.target),
        predicted=level(lambda p: p.predicted),
        band=band(lambda p: p.band),
        predicted_output=level(lambda p: p.predicted_output),
        output_band=band(lambda p: p.output_band),
        predicted_grad=level(lambda p: p.predicted_grad),
        measured=level(lambda p: p.measured),
        measured_output=level(lambda p: p.measured_output),
        measured_grad=level(lambda p: p.measured_grad),
        planned=level(lambda p: p.planned),
        chi=level(lambda p: p.chi),
        chi_1=level(lambda p: p.chi_1),
        why="; ".join(dict.fromkeys(f"{p.label}: {p.why}" if p.label else p.why for p in parts if p.why)),
        flags=tuple(dict.fromkeys(f for p in parts for f in p.flags)),
    )


def part_size(shape: Sequence[int], part: Part) -> int:
    """Number of scalars of a part, followed through its view (reshapes, permutations, slices)."""
    now = list(shape)
    for step in part.draw.view:
        kind, *rest = step
        if kind == "reshape":
            now = list(rest[0])
        elif kind == "permute":
            now = [now[i] for i in rest[0]]
        elif kind == "slice":
            dim, start, stop, stride = rest
            now[dim] = len(range(start, stop, stride))
    return math.prod(now)


def tally(plan: Plan, records: Sequence[Layer]) -> dict[str, dict[str, int]]:
    """How many tensors and scalars were drawn, set to a constant, kept, or not set.

    Every parameter is counted once: the four entries of ``tensors`` add up to its ``total``, and so do the scalars.
    A parameter that the plan only names as not set counts as a tensor; its size is known only from a record.
    """
    unset = {name for name, _ in plan.unscaled}
    tensors: dict[str, int] = dict.fromkeys(("drawn", "constant", "kept", "not set", "total"), 0)
    scalars = dict(tensors)
    for record in records:
        kinds = {p.draw.distribution for p in record.parts}
        if record.name in unset or not kinds:
            kind = "not set"
        else:
            kind = "drawn" if kinds & RANDOM else "constant" if "constant" in kinds else "kept"
        for counts, amount in ((tensors, 1), (scalars, record.size)):
            counts[kind] += amount
            counts["total"] += amount
    nameless = unset - {r.name for r in records}
    tensors["not set"] += len(nameless)
    tensors["total"] += len(nameless)
    return {"tensors": tensors, "scalars": scalars}


def _shares(weight: Weight) -> list[float]:
    sizes = [part_size(weight.shape, p) for p in weight.parts]
    return [n / total if (total := sum(sizes)) else 1 / len(sizes) for n in sizes]


def _joint_band(bands: Sequence[tuple[float, float] | None], share: Sequence[float]) -> tuple[float, float] | None:
    """Band of the mean over parts that are drawn independently: half-widths of logarithms add in squares."""
    known = [(b, w) for b, w in zip(bands, share, strict=True) if b is not None]
    if len(known) <= 1 or any(b[0] <= 0 for b, _ in known):
        return known[0][0] if len(known) == 1 else None
    total = sum(w for _, w in known)
    middles = [math.sqrt(low * high) * w / total for (low, high), w in known]
    halves = [0.5 * math.log(high / low) for (low, high), _ in known]
    middle = sum(middles)
    half = math.sqrt(sum((m * h) ** 2 for m, h in zip(middles, halves, strict=True))) / middle
    return middle * math.exp(-half), middle * math.exp(half)


def _mean(values: Sequence[float | None], share: Sequence[float]) -> float | None:
    """Mean over the entries of the parts for which the quantity exists."""
    known = [(v, s) for v, s in zip(values, share, strict=True) if v is not None]
    total = sum(s for _, s in known)
    if len(known) == 1:
        return known[0][0]
    return sum(v * s for v, s in known) / total if total else None

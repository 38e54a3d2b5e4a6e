"""What is wrong with an initialized model, found in its plan and measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from anyinit._solve.plan import BY_DESIGN, BY_REQUEST, Plan
from anyinit.report.records import Layer

FALSE_ALARM = 0.01
QUANTILE = 0.95
ROUNDING = 0.02


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a model is not healthy.

    kind: ``level``, ``not set``, ``depth``, ``opaque``, ``alike`` or ``not finite``.
    """

    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


def findings(plan: Plan, layers: Sequence[Layer]) -> tuple[Finding, ...]:
    """Every finding, in the order of the model and then of severity."""
    return (*_numbers(layers), *_levels(layers), *_alike(plan), *_unset(plan), *_depth(plan), *_opaque(plan))


def outside(measured: float, band: tuple[float, float], tests: int = 1) -> bool:
    """Whether a measured level is further out than chance explains.

    A band holds 90 % of single draws, so one layer in ten of a healthy network leaves its own. The band is read as
    the 5 and 95 % quantiles of a log-normal level and widened until a healthy network of ``tests`` layers is accused
    once in 100 draws (Bonferroni); two per cent are granted for rounding and finite batches.
    """
    low, high = band
    if not math.isfinite(measured):
        return True
    if low <= 0 or measured <= 0:
        return not low * (1 - ROUNDING) <= measured <= high * (1 + ROUNDING)
    normal = NormalDist()
    widen = normal.inv_cdf(1 - FALSE_ALARM / (2 * max(tests, 1))) / normal.inv_cdf(QUANTILE)
    centre, half = math.log(low * high) / 2, math.log(high / low) / 2
    return abs(math.log(measured) - centre) > half * widen + ROUNDING


def _numbers(layers: Sequence[Layer]) -> Iterator[Finding]:
    names = ("scale", "predicted", "predicted_output", "predicted_grad", "measured", "measured_output", "measured_grad")
    for record in layers:
        bad = [n for n in names if (v := getattr(record, n)) is not None and not math.isfinite(v)]
        if bad:
            yield Finding("not finite", record.name, f"{', '.join(bad)} not finite.")


def _levels(layers: Sequence[Layer]) -> Iterator[Finding]:
    tested = [r for r in layers if r.measured is not None or r.measured_output is not None]
    for record in tested:
        for place, value, band in (
            (record.path or "its target", record.measured, record.band),
            ("its own output", record.measured_output, record.output_band),
        ):
            if value is None or band is None or not math.isfinite(value):
                continue
            if outside(value, band, len(tested)):
                text = f"level {value:.3g} at {place}, expected {band[0]:.3g} to {band[1]:.3g} in 9 of 10 draws."
                yield Finding("level", record.name, text)
                break


def _alike(plan: Plan) -> Iterator[Finding]:
    """Nets whose every weight is a constant: units of a layer are copies of each other and stay so."""
    parts = [p for w in plan.weights for p in w.parts if p.role == "weight"]
    if not parts or any(p.draw.distribution != "constant" for p in parts):
        return
    if all(p.draw.value == 0 for p in parts):
        text = "all are zero: the output ignores the input, and no gradient reaches a weight behind another one"
    else:
        text = "all are constant: the units of a layer are copies of each other, have equal gradients and stay copies"
    yield Finding("alike", "weights", f"{text}. Draw them at random.")


def _unset(plan: Plan) -> Iterator[Finding]:
    for name, reason in plan.unscaled:
        if not reason.startswith((BY_REQUEST, BY_DESIGN)):
            yield Finding("not set", name, f"not set: {reason}")


def _depth(plan: Plan) -> Iterator[Finding]:
    for record in plan.stability:
        if not record.held:
            where = record.layers[0] if len(record.layers) == 1 else f"{record.depth} layers"
            yield Finding("depth", where, record.advice() or f"{record.kind} product {record.product:.3g} is not held.")


def _opaque(plan: Plan) -> Iterator[Finding]:
    for operation, where, why in plan.opaque:
        yield Finding("opaque", where, f"operation {operation} has no rule{f': {why}' if why else ''}.")

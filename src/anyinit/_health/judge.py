"""What is wrong, where and how bad. Every line is drawn where chance or a sound design cannot reach; what a finding
means and what helps stands in ``words.py``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from anyinit._health.facts import Facts, LayerFacts, WeightFacts
from anyinit._health.words import WORDS

LEVELS = (1e-8, 1e8)
"""Second moments at which float16 overflows or a float32 update no longer registers beside a weight of one."""
JUMP = (1e-6, 3e3)
"""Growth of the level at one weight: the first layer of a SIREN grows by 900, a branch of a million shrinks by 1e-6."""
IGNORES = 1e-4
"""Share of the level that differs between samples below which they are one (correlation above 0.9999)."""
RANGE = 1e10
"""First over last weight: second moment of gradient times weight, which no rescaling moves."""
STEP = (1e-8, 1.0)
"""First step over the weight: rounding of float32, and a step as long as the weight."""
OUTLIERS = 60.0
ONE_HOT = 0.05
"""Entropy over that of uniform weights: nineteen queries of twenty see one key."""
SATURATED = 0.5
LOSS_ABOVE = 2.0
"""Nats above log(classes), the cost of logits of level 4."""
SAMPLES, UNITS = 4, 8
"""Fewest for which a share of units says anything."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One finding.

    kind: a short name. where: weights, layers or ``output``. size: how bad, a number with its line. why: the
    mechanism. remedy: what to do.
    """

    kind: str
    where: tuple[str, ...]
    size: str
    why: str
    remedy: str

    def __str__(self) -> str:
        names = ", ".join(self.where[:3]) + (f" and {len(self.where) - 3} more" if len(self.where) > 3 else "")
        return f"{self.kind} at {names}: {self.size}. {self.why} {self.remedy}"


def judge(facts: Facts) -> tuple[Trouble, ...]:
    """Findings in the order of their severity: numbers, structure, signal, gradient, step, loss."""
    found = [*_numbers(facts), *_structure(facts)]
    if not any(t.kind == "not finite" for t in found):
        found += [*_signal(facts), *_units(facts), *_gradient(facts), *_step(facts), *_loss(facts)]
    return tuple(found)


def _at(kind: str, where: Iterable[LayerFacts | WeightFacts | str], size: str | Callable[[], str]) -> Iterator[Trouble]:
    """The finding, if it is found anywhere; ``size`` is only asked for then."""
    names = tuple(x if isinstance(x, str) else x.name for x in where)
    if names:
        yield Trouble(kind, names, size if isinstance(size, str) else size(), *WORDS[kind])


def _numbers(facts: Facts) -> Iterator[Trouble]:
    bad = [w for w in facts.weights if not w.finite]
    yield from _at("not finite", bad, "NaN or infinity among the entries")
    strange = [w for w in facts.weights if w.finite and w.strange > 0]
    yield from _at(
        "uninitialized", strange,
        lambda: f"{max(w.strange for w in strange):.0%} of the entries lie beyond 1e8 or below 1e-30",
    )  # fmt: skip
    sick = [x for x in facts.layers if not math.isfinite(x.level)] or ["output"] * (not facts.output_finite)
    if not bad:
        yield from _at("not finite", sick, "the signal overflows or is undefined")
    if not bad and not sick:
        wild = [w for w in facts.weights if not w.gradient_finite]
        yield from _at("gradient not finite", wild, "NaN or infinity in the gradient")


def _structure(facts: Facts) -> Iterator[Trouble]:
    weights = [w for w in facts.weights if w.role == "weight" and w.trainable]
    silent = all(w.gradient is None for w in weights)
    zero = [w for w in weights if w.rms == 0]
    dead = [w for w in zero if w.name in facts.blocked or (silent and len(zero) == len(weights))]
    yield from _at("zero weights", dead, "every entry is zero")
    rows = [w for w in weights if w.rms > 0 and w.equal_rows]
    twins = [w for w in rows if silent or set(w.outs) & set(w.gradient_alike)]
    yield from _at("identical units", twins, "all rows are equal" + ", and so are their gradients" * (not silent))
    yield from _at("identical rows", [w for w in rows if w not in twins], "all rows are equal")
    columns = [w for w in weights if w.rms > 0 and w.equal_columns and not w.equal_rows]
    yield from _at("identical columns", columns, "all columns are equal")
    for names in facts.clones:
        yield from _at("clones", names, f"{len(names)} separate tensors hold the same numbers")
    spiky = [w for w in weights if w.finite and not w.strange and w.dense_kurtosis > OUTLIERS]
    yield from _at(
        "outliers", spiky, lambda: f"kurtosis {max(w.kurtosis for w in spiky):.3g} (a Gaussian has 3)"
    )  # fmt: skip


def _signal(facts: Facts) -> Iterator[Trouble]:
    sound = [x for x in facts.layers if x.level > 0]
    for kind, beyond in (
        ("vanishing signal", [x for x in sound if x.level <= LEVELS[0]]),
        ("exploding signal", [x for x in sound if x.level >= LEVELS[1]]),
    ):
        yield from _at(kind, beyond, lambda beyond=beyond: f"level {beyond[-1].level:.3g} (second moment)")
    jumps = [x for x in sound if x.inflow and not x.normalized and not JUMP[0] < x.output / x.inflow < JUMP[1]]
    yield from _at("scale", jumps, lambda: f"level {jumps[0].inflow:.3g} before and {jumps[0].output:.3g} after it")
    same = _forgotten(facts)
    yield from _at("inputs forgotten", same, lambda: f"{min(same.values()):.2g} of the level differs between samples")
    tokens = [x for x in sound if x.tokens is not None and x.tokens < IGNORES <= (x.spread or 1)]
    yield from _at("tokens alike", tokens, "the tokens of a sample are one vector")
    hot = {where: e for where, e in facts.attention if e < ONE_HOT}
    yield from _at(
        "attention saturated", hot, lambda: f"entropy {min(hot.values()):.2g} of that of uniform weights"
    )  # fmt: skip


def _forgotten(facts: Facts) -> dict[str, float]:
    """Layers from which on no signal tells the samples apart, down to the output. A gate or a learned query that is the
    same for all samples stands beside a path that is not."""
    found: dict[str, float] = {}
    if facts.samples < 2 or (facts.input_spread or 0) <= 100 * IGNORES:
        return found
    for name, share in [("output", facts.output_spread), *((x.name, x.spread) for x in reversed(facts.layers))]:
        if share is not None and share >= IGNORES:
            break
        if share is not None:
            found[name] = share
    return dict(reversed(found.items()))


def _line(units: int) -> float:
    """Share of units of one sign that symmetric draws reach at full correlation of the samples: one half and 4
    sigma."""
    return min(0.5 + 2 / math.sqrt(max(units, 1)), 0.999)


def _units(facts: Facts) -> Iterator[Trouble]:
    layers = [x for x in facts.layers if facts.samples >= SAMPLES and x.units >= UNITS]
    dead = {x.name: x.dead for x in layers if x.dead is not None and x.output > 0 and x.dead > _line(x.units)}
    yield from _at("dead units", dead, lambda: f"{max(dead.values()):.0%} of the units are zero for every sample")
    always = {x.name: x.always_on for x in layers if x.always_on is not None and x.always_on > _line(x.units)}
    yield from _at("always on", always, lambda: f"{max(always.values()):.0%} of the units never switch off")
    flat = {x.name: x.saturated for x in facts.layers if x.saturated is not None and x.saturated > SATURATED}
    yield from _at(
        "saturated", flat, lambda: f"{max(flat.values()):.0%} of the entries lie where the activation is flat"
    )


def _gradient(facts: Facts) -> Iterator[Trouble]:
    yield from _at("no gradient", facts.blocked, "the gradient is exactly zero")
    alive = {w.name: w for w in facts.weights if w.role == "weight" and w.gradient and w.rms}
    chain = [alive[x.name] for x in facts.layers if x.name in alive]
    if len(chain) < 3:
        return
    ends = chain[0], chain[-1]
    (a, first), (b, last) = (((w.gradient or 0.0), (w.gradient or 0.0) * w.rms**2) for w in ends)
    ratio = first / max(last, 1e-300)
    if not 1 / RANGE < ratio < RANGE:
        kind = "vanishing gradient" if ratio < 1 else "exploding gradient"
        yield from _at(kind, ends, f"{a:.3g} at the first weight and {b:.3g} at the last (second moments)")


def _step(facts: Facts) -> Iterator[Trouble]:
    if facts.loss is None:  # gradients of a random combination of the outputs say nothing about a step
        return
    steps = {w.name: w.update for w in facts.weights if w.update and w.trainable and w.role == "weight"}
    large = {name: u for name, u in steps.items() if u > STEP[1]}
    yield from _at("step too large", large, lambda: f"the first step is {max(large.values()):.2g} times the weight")
    small = {name: u for name, u in steps.items() if u < STEP[0]}
    yield from _at("step too small", small, lambda: f"the first step is {min(small.values()):.2g} times the weight")


def _loss(facts: Facts) -> Iterator[Trouble]:
    if facts.loss is None or not facts.classes or facts.classes < 2:
        return
    expected = math.log(facts.classes)
    if facts.loss > expected + LOSS_ABOVE:
        said = f"{facts.loss:.3g}, where guessing costs log({facts.classes}) = {expected:.3g}"
        yield from _at("first loss", ["output"], said)

"""What is wrong, where, how bad, why, and what to do. Every line is drawn where chance or a sound design cannot
reach."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from anyinit._health.facts import Facts, WeightFacts

LEVELS = (1e-8, 1e8)
"""Second moments at which float16 overflows or a float32 update no longer registers beside a weight of one."""
JUMP = (1e-6, 3e3)
"""Growth of the level at one weight: a first layer of a SIREN grows by 900, a branch among a million shrinks by
1e-6."""
IGNORES = 1e-4
"""Share of the level that differs between samples below which they are one (correlation above 0.9999)."""
RANGE = 1e10
"""Ratio between the first and the last weight of the second moment of gradient times weight, which no rescaling
moves."""
STEP = (1e-8, 1.0)
"""First step over the weight: rounding of float32, and a step as long as the weight."""
OUTLIERS = 60.0
ONE_HOT = 0.05
"""Entropy over that of uniform weights: nineteen queries of twenty see one key. Unit logits give 0.8 and more."""
SATURATED = 0.5
LOSS_ABOVE = 2.0
"""Nats above log(classes): unit logits give 0.5, a level of 4 gives 2."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One finding.

    kind: a short name. where: weights, layers or ``model``. size: how bad, a number with its line. why: the
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
    broken = list(_numbers(facts))
    if any(t.kind == "not finite" for t in broken):
        return (*broken, *_structure(facts))
    return (*broken, *_structure(facts), *_signal(facts), *_gradient(facts), *_step(facts), *_loss(facts))


def _numbers(facts: Facts) -> Iterator[Trouble]:
    bad = tuple(w.name for w in facts.weights if not w.finite)
    if bad:
        yield Trouble(
            "not finite",
            bad,
            "NaN or infinity among the entries",
            "One such entry reaches every output.",
            "Initialize the tensor again.",
        )
    strange = [w for w in facts.weights if w.finite and w.strange > 0]
    if strange:
        share = max(w.strange for w in strange)
        yield Trouble(
            "uninitialized",
            tuple(w.name for w in strange),
            f"{share:.0%} of the entries lie beyond 1e8 or below 1e-30",
            "Memory that nobody wrote to looks like this.",
            "Initialize the tensor before use.",
        )
    sick = tuple(x.name for x in facts.layers if not math.isfinite(x.level))
    if not bad and (sick or not facts.output_finite):
        yield Trouble(
            "not finite",
            sick or ("output",),
            "the signal overflows or is undefined",
            "Levels beyond the number format leave no gradient.",
            "Lower the scales, or initialize anew.",
        )
    wild = tuple(w.name for w in facts.weights if not w.gradient_finite)
    if wild and not bad and not sick:
        yield Trouble(
            "gradient not finite",
            wild,
            "NaN or infinity in the gradient",
            "The first step destroys the weight.",
            "Look for roots, logarithms and divisions at zero; lower the scales.",
        )


def _several(w: WeightFacts) -> bool:
    return w.role == "weight" and w.trainable and any(w.shape[a] > 1 for a in w.outs)


def _structure(facts: Facts) -> Iterator[Trouble]:
    zero = [w for w in facts.weights if w.role == "weight" and w.rms == 0 and w.trainable]
    weights = [w for w in facts.weights if w.role == "weight"]
    stuck = set(facts.blocked)
    dead = tuple(w.name for w in zero if w.name in stuck or (w.gradient is None and len(zero) == len(weights)))
    if dead:
        yield Trouble(
            "zero weights",
            dead,
            "every entry is zero",
            "Its output and the gradient of what stands before it are zero, so nothing in front learns.",
            "Draw it at random.",
        )
    equal = [w for w in facts.weights if _several(w) and w.rms > 0 and set(w.outs) & set(w.alike)]
    symmetric = [w for w in equal if w.gradient_alike and set(w.outs) & set(w.gradient_alike)]
    if symmetric or (equal and all(w.gradient is None for w in equal)):
        chosen = symmetric or equal
        yield Trouble(
            "identical units",
            tuple(w.name for w in chosen),
            "all rows are equal, and so are their gradients",
            "Units that start as copies of each other get equal gradients and stay copies.",
            "Draw the weight at random.",
        )
    lone = [w for w in equal if w not in symmetric and w.gradient is not None]
    if lone:
        yield Trouble(
            "identical rows",
            tuple(w.name for w in lone),
            "all rows are equal",
            "Only the layer behind it tells its units apart.",
            "Draw the weight at random.",
        )
    inputs = [
        w
        for w in facts.weights
        if w.role == "weight"
        and w.trainable
        and w.rms > 0
        and w.outs
        and set(w.alike) - set(w.outs)
        and not set(w.alike) & set(w.outs)
        and len(w.shape) == 2
        and w.size_in > 1
    ]
    if inputs:
        yield Trouble(
            "identical columns",
            tuple(w.name for w in inputs),
            "all columns are equal",
            "The layer sees nothing but the sum of its inputs.",
            "Draw the weight at random.",
        )
    for names in facts.clones:
        yield Trouble(
            "clones",
            names,
            f"{len(names)} separate tensors hold the same numbers",
            "Layers or towers that were copied start, and with equal inputs stay, the same.",
            "Give each its own draw.",
        )
    spiky = [w for w in facts.weights if w.role == "weight" and w.finite and not w.strange and _outliers(w)]
    if spiky:
        yield Trouble(
            "outliers",
            tuple(w.name for w in spiky),
            f"kurtosis {max(w.kurtosis for w in spiky):.3g} (a Gaussian has 3)",
            "A few huge entries carry the level, the rest learn nothing.",
            "Draw the weight again.",
        )


def _outliers(w: WeightFacts) -> bool:
    """Kurtosis beyond that of a Gaussian on the entries that are not zero."""
    size = math.prod(w.shape)
    return size >= 64 and w.kurtosis * (1 - w.zeros) > OUTLIERS


def _line(units: int) -> float:
    """Share of units of one sign that symmetric draws reach at full correlation of the samples: one half and 4
    sigma."""
    return min(0.5 + 2 / math.sqrt(max(units, 1)), 0.999)


def _signal(facts: Facts) -> Iterator[Trouble]:
    sound = [x for x in facts.layers if x.level > 0]
    off = [x for x in sound if not LEVELS[0] < x.level < LEVELS[1]]
    if off:
        word = "vanishing signal" if off[0].level < 1 else "exploding signal"
        yield Trouble(
            word,
            tuple(x.name for x in off),
            f"level {off[-1].level:.3g} (second moment)",
            "Each layer multiplies the level by the same factor, so depth drives it away.",
            "Use a scale that keeps the level, or a normalization.",
        )
    jumps = [x for x in sound if x.inflow and not x.normalized and not JUMP[0] < x.output / x.inflow < JUMP[1]]
    if jumps:
        yield Trouble(
            "scale",
            tuple(x.name for x in jumps),
            f"level {jumps[0].inflow:.3g} before and {jumps[0].output:.3g} after it",
            "The weight's scale does not fit its fan.",
            "Draw it with variance near 1 / fan_in.",
        )
    varied = facts.samples >= 2 and facts.input_spread is not None and facts.input_spread > 100 * IGNORES
    same = [x for x in facts.layers if varied and x.spread is not None and x.spread < IGNORES and x.level > 0]
    if same or (varied and facts.output_spread is not None and facts.output_spread < IGNORES):
        share = min([x.spread for x in same if x.spread is not None] or [facts.output_spread or 0.0])
        yield Trouble(
            "inputs forgotten",
            tuple(x.name for x in same) or ("output",),
            f"{share:.2g} of the level differs between samples",
            "Different inputs give the same output: biases or means carry all of the level, or nothing does.",
            "Lower the biases, raise the weights, or draw zeros at random.",
        )
    tokens = [x for x in facts.layers if x.tokens is not None and x.tokens < IGNORES and not (x.spread or 1) < IGNORES]
    if tokens:
        yield Trouble(
            "tokens alike",
            tuple(x.name for x in tokens),
            "the tokens of a sample are one vector",
            "Attention or pooling averages them away.",
            "Scale q.k logits to unit level; keep the skip path.",
        )
    yield from _units(facts)
    hot = [(where, e) for where, e in facts.attention if e < ONE_HOT]
    if hot:
        yield Trouble(
            "attention saturated",
            tuple(dict.fromkeys(w for w, _ in hot)),
            f"entropy {min(e for _, e in hot):.2g} of that of uniform weights",
            "Logits are so large that each query sees one key, and softmax has no slope there.",
            "Scale queries and keys so that q.k has unit level.",
        )


def _units(facts: Facts) -> Iterator[Trouble]:
    few = max(facts.samples, 1) >= 4
    dead = [
        x
        for x in facts.layers
        if few and x.dead is not None and x.units >= 8 and x.dead > _line(x.units) and x.output > 0
    ]
    if dead:
        yield Trouble(
            "dead units",
            tuple(x.name for x in dead),
            f"{max(x.dead or 0 for x in dead):.0%} of the units are zero for every sample",
            "A unit that never fires has no gradient.",
            "Raise the biases or center the inputs.",
        )
    always = [
        x for x in facts.layers if few and x.always_on is not None and x.units >= 8 and x.always_on > _line(x.units)
    ]
    if always:
        yield Trouble(
            "always on",
            tuple(x.name for x in always),
            f"{max(x.always_on or 0 for x in always):.0%} of the units are positive for every sample",
            "Where no unit ever switches, the layer is linear.",
            "Lower the biases or center the inputs.",
        )
    flat = [x for x in facts.layers if x.saturated is not None and x.saturated > SATURATED]
    if flat:
        yield Trouble(
            "saturated",
            tuple(x.name for x in flat),
            f"{max(x.saturated or 0 for x in flat):.0%} of the entries lie where the activation is flat",
            "A flat activation passes no gradient.",
            "Lower the scale or the bias of the layer.",
        )


def _gradient(facts: Facts) -> Iterator[Trouble]:
    if facts.blocked:
        yield Trouble(
            "no gradient",
            tuple(facts.blocked),
            "the gradient is exactly zero",
            "Nothing that this weight does reaches the output.",
            "Draw the weights behind it at random, or connect it.",
        )
    alive = {w.name: w for w in facts.weights if w.role == "weight" and w.gradient and w.name not in facts.blocked}
    chain = [(x.name, g) for x in facts.layers if x.name in alive and (g := alive[x.name].gradient) is not None]
    if len(chain) >= 3:
        (first, a), (last, b) = chain[0], chain[-1]
        ratio = a * alive[first].rms ** 2 / max(b * alive[last].rms ** 2, 1e-300)
        if not 1 / RANGE < ratio < RANGE:
            word = "vanishing gradient" if ratio < 1 else "exploding gradient"
            yield Trouble(
                word,
                (first, last),
                f"{a:.3g} at the first weight and {b:.3g} at the last (second moments)",
                "Each layer multiplies the gradient by the same factor on the way back.",
                "Use orthogonal draws at the edge of stability, a skip path, or a normalization.",
            )


def _step(facts: Facts) -> Iterator[Trouble]:
    if facts.loss is None:  # gradients of a random combination of the outputs say nothing about a step
        return
    steps = [w for w in facts.weights if w.update is not None and w.trainable and w.role == "weight"]
    large = [w for w in steps if (w.update or 0) > STEP[1]]
    if large:
        yield Trouble(
            "step too large",
            tuple(w.name for w in large),
            f"the first step is {max(w.update or 0 for w in large):.2g} times the weight",
            "One step replaces what the weight was.",
            "Lower the learning rate or raise the scale.",
        )
    small = [w for w in steps if w.update is not None and 0 < w.update < STEP[0]]
    if small:
        yield Trouble(
            "step too small",
            tuple(w.name for w in small),
            f"the first step is {min(w.update or 0 for w in small):.2g} times the weight",
            "Below the rounding of float32 nothing changes.",
            "Raise the learning rate or lower the scale.",
        )


def _loss(facts: Facts) -> Iterator[Trouble]:
    if facts.loss is None or not facts.classes or facts.classes < 2:
        return
    expected = math.log(facts.classes)
    if facts.loss > expected + LOSS_ABOVE:
        yield Trouble(
            "first loss",
            ("output",),
            f"{facts.loss:.3g}, where guessing costs log({facts.classes}) = {expected:.3g}",
            "The logits are large and know nothing, so training first unlearns them.",
            "Lower the scale of the output layer.",
        )

"""Random numbers: seeds carry nothing, draws are noise."""

from __future__ import annotations

from typing import Any

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import (
    BITS,
    Bound,
    Lowering,
    out_kind,
    out_shape,
    takes_bits,
    translates,
)
from anyinit._frameworks.primitives.translate_random import noise
from anyinit._graph.ops import Random

NORMAL = ("RandomStandardNormal", "StatelessRandomNormal", "StatelessRandomNormalV2")
TRUNCATED = ("TruncatedNormal", "StatelessTruncatedNormal", "StatelessTruncatedNormalV2")
UNIFORM = ("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2")
INTEGERS = ("RandomUniformInt", "StatelessRandomUniformInt", "StatelessRandomUniformIntV2",
            "StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2")  # fmt: skip
STD_TRUNCATED = 0.8796256610342398
"""Standard deviation of a standard normal cut at two."""


@translates("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg", "StatelessRandomGetAlg",
            "RngReadAndSkip")  # fmt: skip
@takes_bits
def keys(low: Lowering, step: Step, *_: Bound) -> list[Bound]:
    return [Bound(a.shape, BITS) for a in step.avals]


@translates(*NORMAL, *TRUNCATED, *UNIFORM)
@takes_bits
def drawn(low: Lowering, step: Step, *_: Bound) -> Bound:
    kind, params = "normal", (0.0, 1.0)
    if step.name in UNIFORM:
        kind = "uniform"
    elif step.name in TRUNCATED:
        params = (0.0, STD_TRUNCATED)
    return noise(low, Random(kind, params, out_shape(step)), out_kind(step))


@translates(*INTEGERS)
@takes_bits
def integers(low: Lowering, step: Step, *ins: Bound) -> Any:
    if "Full" in step.name:
        return Bound(out_shape(step), BITS)
    ends = [low.scalar(b) for b in ins[-2:]]
    if ends[0] is None or ends[1] is None:
        return low.opaque(step, [b for b in ins if b.kind != BITS], "noise between computed ends")
    return noise(low, Random("integer", (ends[0], ends[1]), out_shape(step)), out_kind(step))

"""Random numbers: keys carry nothing, bits become noise where they turn into numbers."""

from __future__ import annotations

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import BITS, KEY, Bound, Lowering, kind_of, out_shape, takes_bits, translates
from anyinit._graph.graph import FLOAT
from anyinit._graph.ops import Random

KEYS = ("random_seed", "random_split", "random_fold_in", "random_wrap", "random_unwrap", "random_clone", "random_bits",
        "threefry2x32", "rng_bit_generator")  # fmt: skip


@translates(*KEYS)
@takes_bits
def keys(low: Lowering, step: Step, *_: Bound) -> list[Bound]:
    return [Bound(a.shape, KEY if kind_of(a.dtype) == KEY else BITS) for a in step.avals]


@translates("rng_uniform")
def rng_uniform(low: Lowering, step: Step, bottom: Bound, top: Bound) -> Bound | list[Bound]:
    ends = low.scalar(bottom), low.scalar(top)
    if ends[0] is None or ends[1] is None:
        return low.opaque(step, [bottom, top], "noise between computed ends")
    return noise(low, Random("uniform", (ends[0], ends[1]), out_shape(step)), FLOAT)


@translates("random_gamma")
@takes_bits
def random_gamma(low: Lowering, step: Step, _: Bound, alpha: Bound) -> Bound | list[Bound]:
    shape = low.scalar(alpha)
    if shape != 1.0:
        return low.opaque(step, [alpha], "gamma noise")
    return noise(low, Random("exponential", (1.0,), out_shape(step)), FLOAT)


def noise(low: Lowering, op: Random, kind: str) -> Bound:
    """A node of fresh noise; what it feeds counts as data."""
    out = low.made(op, (), op.shape, kind)
    low.fed.add(out.value)
    return out

"""What fits no other family: transforms of the whole signal."""

from __future__ import annotations

from anyinit._frameworks.primitives.flat import Step
from anyinit._frameworks.primitives.lower import Bound, Lowering, out_kind, out_shape, translates
from anyinit._graph.ops import Spectral

TRANSFORMS = ("fft", "ifft", "rfft", "irfft")


@translates("fft")
def fft(low: Lowering, step: Step, x: Bound) -> Bound:
    kind = str(step.params["fft_type"]).rsplit(".", 1)[-1].lower()
    kind = TRANSFORMS[int(kind)] if kind.isdigit() else kind
    sizes = tuple(int(n) for n in step.params["fft_lengths"])
    dims = tuple(range(len(x.shape) - len(sizes), len(x.shape)))
    return low.made(Spectral(kind, dims, sizes), (low.full(x),), out_shape(step), out_kind(step))

"""Recording on real numbers, for models that read values in Python (``if x.sum() > 0``, ``float(x)``).

The one file that touches JAX's tracing machinery: a trace whose tracers carry both a variable of the
flat program and its value. It needs a version of JAX with ``jax.extend.core.set_current_trace``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.core import Trace, Tracer

from anyinit._frameworks.jax.flatten import Flat, Maker, as_jax, aval_of, evaluate, needed_for
from anyinit.errors import TraceError

NOTE = "recorded on real numbers because the model reads values while it runs: other values may take another path"


class Recorder(Tracer):  # pyright: ignore[reportUntypedBaseClass]
    """A value of the run and the variable that stands for it."""

    def __init__(self, trace: Recording, value: Any, var: int) -> None:
        super().__init__(trace, jax.typeof(value))
        self.value, self.var = value, var

    def to_concrete_value(self) -> Any:
        """The value itself: this is what lets Python read it."""
        return self.value

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.value).__array__(*args, **kwargs)

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def tolist(self) -> Any:
        """As for an array."""
        return self.value.tolist()

    def item(self, *args: Any) -> Any:
        """As for an array."""
        return np.asarray(self.value).item(*args)


@dataclass(frozen=True, slots=True)
class _Atom:
    aval: Any


@dataclass(frozen=True, slots=True)
class _Source:
    name_stack: str = ""


@dataclass(frozen=True, slots=True)
class _Equation:
    """An equation as flattening wants to see it."""

    primitive: Any
    params: dict[str, Any]
    invars: list[_Atom]
    outvars: list[_Atom]
    source_info: _Source = field(default_factory=_Source)


class Recording(Trace):  # pyright: ignore[reportUntypedBaseClass]
    """Executes every primitive and adds it to the flat program."""

    def __init__(self, maker: Maker, parent: Any) -> None:
        super().__init__()
        self.maker, self.parent = maker, parent

    def split(self, value: Any) -> tuple[Any, int]:
        """The value and the variable of an operand; what no tracer carries is a constant."""
        if isinstance(value, Recorder) and value._trace is self:
            return value.value, value.var
        return value, self.maker.constant(value, closed=True)

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        """Run one primitive and record it."""
        pairs = [self.split(t) for t in tracers]
        with _current(self.parent):
            found = primitive.get_bind_params(params)
            functions, rest = found if isinstance(found, tuple) else ((), found)
            out = primitive.bind(*functions, *(as_jax(v) for v, _ in pairs), **rest)
        outs = list(out) if primitive.multiple_results else [out]
        ins, ends = ([_Atom(jax.typeof(v)) for v in side] for side in ([v for v, _ in pairs], outs))
        variables = self.maker.equation(_Equation(primitive, params, ins, ends), [v for _, v in pairs], "")
        made = [Recorder(self, value, var) for value, var in zip(outs, variables, strict=True)]
        return made if primitive.multiple_results else made[0]

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Sequence[Any], /, **_: Any) -> Any:
        """Custom gradients are of no concern on the way forward."""
        with _current(self):
            return fun.call_wrapped(*tracers)

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Sequence[Any], /, **_: Any
    ) -> Any:
        """Custom gradients are of no concern on the way forward."""
        with _current(self):
            return fun.call_wrapped(*tracers)


def _current(trace: Any) -> Any:
    from jax.extend.core import set_current_trace

    return set_current_trace(trace)


def record_eagerly(call: Callable[..., Any], leaves: Sequence[Any], structure: Any) -> tuple[Flat, Any]:
    """The flat program of ``call(*structure.unflatten(leaves))`` run on real ``leaves``, and the structure
    of its output.

    Raises:
        TraceError: this version of JAX offers no way to run a model under a recorder.
    """
    try:
        from jax.extend.core import take_current_trace
    except ImportError as error:
        raise TraceError(
            "The model reads values while it runs, which this version of JAX cannot record", value=jax.__version__,
            remedy="Use JAX 0.10 or newer, or lax.cond and lax.while_loop in the model.",
        ) from error  # fmt: skip
    flat = Flat()
    maker = Maker(flat, None)
    values = [as_jax(leaf) for leaf in leaves]
    flat.inputs = tuple(maker.new(aval_of(v)) for v in values)
    known = dict(zip(flat.inputs, values, strict=True))

    def decide(flat: Flat, var: int) -> Any:
        evaluate(flat, needed_for(flat, var), known)
        return np.asarray(known[var])

    maker.decide = decide
    with take_current_trace() as parent:
        trace = Recording(maker, parent)
        tracers = [Recorder(trace, v, i) for v, i in zip(values, flat.inputs, strict=True)]
        with _current(trace):
            out = call(*structure.unflatten(tracers))
    ends, tree = jax.tree_util.tree_flatten(out)
    flat.outputs = tuple(trace.split(e)[1] for e in ends)
    flat.notes.append(NOTE)
    flat.prune()
    return flat, tree

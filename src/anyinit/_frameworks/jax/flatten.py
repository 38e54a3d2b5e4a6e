"""A jaxpr without calls: every nested program inlined, loops unrolled, dead code pruned.

What holds a program is found by looking at the parameters of an equation, never at its name: the
names of call-like primitives change between versions of JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyinit._frameworks.primitives.flat import Aval, Decide, Flat, Step, needed_for
from anyinit._frameworks.primitives.fold import LIMIT, fold

UNROLL = 64
"""Longest loop that is always unrolled; longer ones while the recorded program stays short."""

BUDGET = 6000
"""Most equations one unrolled loop of more than ``UNROLL`` steps may add."""


def flatten(closed: Any, decide: Decide | None = None) -> Flat:
    """Flatten a closed jaxpr. ``decide(flat, variable)`` returns the value of a variable that steers
    control flow and depends on data (``None``: not known)."""
    flat = Flat()
    maker = Maker(flat, decide)
    flat.inputs = tuple(maker.new(aval_of(v.aval)) for v in closed.jaxpr.invars)
    flat.outputs = tuple(maker.program(closed, flat.inputs, ""))
    flat.prune()
    return flat


def aval_of(aval: Any) -> Aval:
    """Shape and type of an abstract value or an array."""
    return Aval(tuple(int(n) for n in getattr(aval, "shape", ())), getattr(aval, "dtype", None))


def program_of(value: Any) -> tuple[Any, Sequence[Any]] | None:
    """``(jaxpr, constants)`` when ``value`` is a program, closed or open."""
    inner = getattr(value, "jaxpr", None)
    if hasattr(inner, "eqns"):
        return inner, tuple(value.consts)
    return (value, ()) if hasattr(value, "eqns") and not value.constvars else None


def _callee(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """The one program an equation calls on exactly its own operands, if it is such an equation."""
    found = [p for p in map(program_of, eqn.params.values()) if p is not None]
    if len(found) != 1:
        return None
    inner = found[0][0]
    same = [aval_of(v.aval).shape for v in inner.invars] == [aval_of(v.aval).shape for v in eqn.invars]
    return found[0] if same and len(inner.outvars) == len(eqn.outvars) else None


@dataclass(slots=True)
class Maker:
    """Adds equations to a flat program."""

    flat: Flat
    decide: Decide | None

    def new(self, aval: Aval) -> int:
        """A new variable."""
        self.flat.avals.append(aval)
        return len(self.flat.avals) - 1

    def constant(self, value: Any, *, closed: bool = False) -> int:
        """A variable of known value; ``closed``: the model closes over it."""
        dtype = getattr(value, "dtype", None)
        if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
            var = self.new(Aval(tuple(value.shape), dtype))
            self.flat.known[var] = value
            return var
        data = np.asarray(value)
        var = self.new(Aval(data.shape, data.dtype))
        self.flat.known[var] = data
        if closed and data.ndim and np.issubdtype(data.dtype, np.inexact):
            self.flat.closed[var] = data.size
        return var

    def program(self, closed: Any, args: Sequence[int], scope: str) -> list[int]:
        """Inline a program on ``args``; the variables of its outputs."""
        found = program_of(closed)
        assert found is not None
        jaxpr, consts = found
        env = dict(zip(jaxpr.invars, args, strict=True))
        env.update((v, self.constant(c, closed=True)) for v, c in zip(jaxpr.constvars, consts, strict=True))

        def read(atom: Any) -> int:
            if hasattr(atom, "val"):
                return self.constant(np.asarray(atom.val, aval_of(atom.aval).dtype))
            return env[atom]

        for eqn in jaxpr.eqns:
            outs = self.equation(eqn, [read(v) for v in eqn.invars], scope)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, eqn: Any, ins: list[int], outer: str) -> list[int]:
        """Add one equation on variables ``ins``, inlining what it calls; the variables of its outputs."""
        stack = str(eqn.source_info.name_stack).replace("/", ".")
        scope = ".".join(s for s in (outer, stack) if s)
        params = eqn.params
        if {"length", "num_carry", "num_consts"} <= params.keys():
            return self.scan(params, ins, scope)
        if {"cond_jaxpr", "body_jaxpr"} <= params.keys():
            return self.loop(eqn, ins, scope)
        if "branches" in params:
            return self.branch(params["branches"], ins, scope)
        callee = _callee(eqn)
        if callee is not None:
            return self.inline(callee, ins, scope)
        avals = tuple(aval_of(v.aval) for v in eqn.outvars)
        return self.emit(eqn.primitive.name, params, ins, avals, scope, _binder(eqn))

    def inline(self, callee: tuple[Any, Sequence[Any]], ins: list[int], scope: str) -> list[int]:
        inner, consts = callee
        return self.program(_Closed(inner, tuple(consts)), ins, scope)

    def emit(
        self,
        name: str,
        params: Mapping[str, Any],
        ins: Sequence[int],
        avals: tuple[Aval, ...],
        scope: str,
        call: Callable[..., Any],
    ) -> list[int]:
        """Add one step, or its outputs as constants when every operand is known."""
        folded = self.fold(name, params, ins, avals, call)
        if folded is not None:
            return [self.constant(value) for value in folded]
        outs = tuple(self.new(a) for a in avals)
        self.flat.steps.append(Step(name, params, tuple(ins), outs, avals, scope, call))
        return list(outs)

    def fold(
        self,
        name: str,
        params: Mapping[str, Any],
        ins: Sequence[int],
        avals: tuple[Aval, ...],
        call: Callable[..., Any],
    ) -> Sequence[Any] | None:
        known = self.flat.known
        if not all(i in known for i in ins) or name.startswith(("random_", "rng_", "threefry")):
            return None
        if any(not isinstance(known[i], np.ndarray) for i in ins):
            return None
        args = [known[i] for i in ins]
        out = fold(name, params, args, avals[0].shape, np.dtype(avals[0].dtype)) if len(avals) == 1 else None
        if out is not None:
            return [out]
        if sum(math.prod(a.shape) * a.dtype.itemsize for a in avals) > LIMIT:
            return None
        return [np.asarray(v) for v in call(*args)]

    def scan(self, params: Mapping[str, Any], ins: list[int], scope: str) -> list[int]:
        consts = ins[: params["num_consts"]]
        carry = ins[params["num_consts"] : params["num_consts"] + params["num_carry"]]
        xs = ins[params["num_consts"] + params["num_carry"] :]
        length, body = int(params["length"]), params["jaxpr"]
        taken = self.steps_of(length, len(body.jaxpr.eqns), "scan")
        rows: list[list[int]] = []
        order = range(length - 1, -1, -1) if params.get("reverse") else range(length)
        for i in list(order)[:taken]:
            outs = self.program(body, [*consts, *carry, *(self.index(x, i, scope) for x in xs)], scope)
            carry, row = outs[: len(carry)], outs[len(carry) :]
            rows.append(row)
        rows += [rows[-1]] * (length - taken) if rows else []
        if params.get("reverse"):
            rows.reverse()
        if not rows:
            return [*carry, *(self.empty(v.aval, scope) for v in body.jaxpr.outvars[len(carry) :])]
        return [*carry, *(self.stack(list(column), scope) for column in zip(*rows, strict=True))]

    def steps_of(self, length: int, size: int, what: str) -> int:
        if length <= UNROLL or length * max(size, 1) <= BUDGET:
            return length
        self.flat.notes.append(f"a {what} of {length} steps was recorded for its first {UNROLL} steps")
        return UNROLL

    def index(self, var: int, i: int, scope: str) -> int:
        aval = self.flat.avals[var]
        call = lambda x: [lax.index_in_dim(jnp.asarray(x), i, 0, keepdims=False)]  # noqa: E731
        return self.emit("index", {"index": i}, [var], (Aval(aval.shape[1:], aval.dtype),), scope, call)[0]

    def stack(self, column: list[int], scope: str) -> int:
        aval = self.flat.avals[column[0]]
        out = Aval((len(column), *aval.shape), aval.dtype)
        return self.emit("stack", {"axis": 0}, column, (out,), scope, lambda *xs: [jnp.stack(xs)])[0]

    def empty(self, aval: Any, scope: str) -> int:
        return self.constant(np.zeros((0, *aval.shape), aval.dtype))

    def value(self, var: int) -> Any:
        """The value of a variable, known or computed from the data; ``None`` if neither can be had."""
        if var in self.flat.known:
            return self.flat.known[var]
        return None if self.decide is None else self.decide(self.flat, var)

    def branch(self, branches: Sequence[Any], ins: list[int], scope: str) -> list[int]:
        chosen = self.value(ins[0])
        if chosen is None:
            self.flat.notes.append(f"a branch that depends on data was recorded as its case {len(branches) - 1}")
            chosen = len(branches) - 1
        elif ins[0] not in self.flat.known:
            self.flat.notes.append(
                f"a branch that depends on data was recorded as its case {int(chosen)}, the one taken"
            )
        return self.program(branches[min(max(int(chosen), 0), len(branches) - 1)], ins[1:], scope)

    def loop(self, eqn: Any, ins: list[int], scope: str) -> list[int]:
        params = eqn.params
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        tests, consts, carry = ins[:first], ins[first:second], ins[second:]
        taken, guessed = 0, False
        if any(jax.dtypes.issubdtype(self.flat.avals[v].dtype, jax.dtypes.prng_key) for v in carry):
            avals = tuple(aval_of(v.aval) for v in eqn.outvars)
            return self.emit(eqn.primitive.name, params, ins, avals, scope, _binder(eqn))
        while taken < UNROLL:
            keep = self.program(params["cond_jaxpr"], [*tests, *carry], scope)[0]
            going = self.value(keep)
            guessed |= keep not in self.flat.known
            if (going is None and taken == 1) or (going is not None and not bool(going)):
                break
            carry = self.program(params["body_jaxpr"], [*consts, *carry], scope)
            taken += 1
        if guessed or taken == UNROLL:
            self.flat.notes.append(f"a while loop was recorded for {taken} of its steps")
        return carry


@dataclass(frozen=True, slots=True)
class _Closed:
    jaxpr: Any
    consts: Sequence[Any]


def _binder(eqn: Any) -> Callable[..., Sequence[Any]]:
    primitive, params, many = eqn.primitive, eqn.params, eqn.primitive.multiple_results

    def call(*args: Any) -> Sequence[Any]:
        found = primitive.get_bind_params(params)
        functions, rest = found if isinstance(found, tuple) else ((), found)
        out = primitive.bind(*functions, *args, **rest)
        return out if many else [out]

    if primitive.name == "psum" and all(isinstance(a, int) for a in params.get("axes", ("",))):
        return lambda *args: [jnp.sum(a, params["axes"]) for a in args]
    return call


def evaluate(flat: Flat, steps: Sequence[Step], env: dict[int, Any]) -> None:
    """Run ``steps`` on concrete values in ``env``, which grows by their outputs."""
    for step in steps:
        if not all(v in env for v in step.outs):
            args = [env[v] if v in env else flat.known[v] for v in step.ins]
            env.update(zip(step.outs, step.call(*map(as_jax, args)), strict=True))


def as_jax(value: Any) -> Any:
    """A NumPy array as a JAX array; anything else as it is."""
    return jnp.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else value


__all__ = ["Aval", "Flat", "Step", "evaluate", "flatten", "needed_for"]

"""A traced function without calls: nested functions inlined, loops unrolled, variables and lists followed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from anyinit._frameworks.primitives.flat import Aval, Decide, Flat, Step, needed_for
from anyinit._frameworks.primitives.fold import LIMIT
from anyinit._frameworks.tensorflow.execute import attributes, aval, binder, dtype_of, inferred
from anyinit.errors import TraceError

UNROLL = 64
"""Longest loop that is always unrolled; longer ones while the recorded program stays short."""

BUDGET = 6000
"""Most operations one unrolled loop of more than ``UNROLL`` steps may add."""

SAME = (
    "Identity", "StopGradient", "PreventGradient", "CheckNumerics", "EnsureShape", "Snapshot", "IdentityN",
    "PlaceholderWithDefault", "RefIdentity", "OptionalGetValue",
)  # fmt: skip
SILENT = ("NoOp", "Assert", "ControlTrigger", "PrintV2", "VarIsInitializedOp")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def flatten(concrete: Any, places: Callable[[Any], int | None], slots: Sequence[Any], decide: Decide | None) -> Flat:
    """Flatten a concrete function whose inputs are flat. ``places`` finds the slot of a resource handle;
    ``decide(flat, variable)`` returns the value of a variable that steers control flow and depends on data."""
    flat = Flat()
    maker = Maker(flat, decide)
    held = [maker.new(Aval(s.shape, dtype_of(s.variable.dtype))) for s in slots]
    maker.current = dict(enumerate(held))
    env: dict[Any, int] = {}
    for outside, inside in concrete.graph.captures:
        place = places(outside)
        if place is not None:
            env[inside.ref()] = maker.handle(place)
        elif hasattr(outside, "numpy") and outside.dtype not in (tf.resource, tf.variant):
            env[inside.ref()] = maker.constant(outside.numpy(), closed=True)
    captured = {inside.ref() for _, inside in concrete.graph.captures}
    own = [t for t in concrete.graph.inputs if t.ref() not in captured]
    batch = [maker.new(_known(aval(t), t)) for t in own]
    env.update((t.ref(), v) for t, v in zip(own, batch, strict=True))
    flat.inputs = (*held, *batch)
    flat.outputs = tuple(maker.graph(concrete.graph, env, list(concrete.graph.outputs)))
    flat.prune()
    return flat


def _known(found: Aval | None, tensor: Any) -> Aval:
    if found is None:
        raise TraceError(
            "A shape depends on data", value=tensor.name, remedy="Pass input_spec with every size, or forward=."
        )
    return found


@dataclass(slots=True)
class Maker:
    """Adds operations to a flat program; follows what is in each variable and list on the way."""

    flat: Flat
    decide: Decide | None
    current: dict[int, int] = field(default_factory=dict[int, int])
    handles: dict[int, int] = field(default_factory=dict[int, int])
    lists: dict[int, list[int | None]] = field(default_factory=dict[int, list[int | None]])

    def new(self, shaped: Aval) -> int:
        """A new variable."""
        self.flat.avals.append(shaped)
        return len(self.flat.avals) - 1

    def constant(self, value: Any, *, closed: bool = False) -> int:
        """A variable of known value; ``closed``: the model closes over it."""
        data = np.asarray(value)
        var = self.new(Aval(data.shape, data.dtype))
        self.flat.known[var] = data
        if closed and data.ndim and np.issubdtype(data.dtype, np.inexact):
            self.flat.closed[var] = data.size
        return var

    def handle(self, place: int) -> int:
        """A variable that stands for the slot at ``place`` itself, not for what is in it."""
        var = self.new(Aval((), "resource"))
        self.handles[var] = place
        return var

    def listed(self, items: list[int | None]) -> int:
        """A variable that stands for a list of variables."""
        var = self.new(Aval((), "variant"))
        self.lists[var] = items
        return var

    # ---- graphs -----------------------------------------------------------------------------
    def graph(self, graph: Any, env: dict[Any, int], outputs: Sequence[Any]) -> list[int]:
        """Inline a graph whose inputs are bound in ``env``; the variables of ``outputs``."""
        for op in graph.get_operations():
            if op.type in SILENT or (op.outputs and all(t.ref() in env for t in op.outputs)):
                continue
            if op.type == "Placeholder":
                continue
            ins = [env[t.ref()] for t in op.inputs] if all(t.ref() in env for t in op.inputs) else None
            if ins is not None:
                env.update(zip((t.ref() for t in op.outputs), self.operation(graph, op, ins), strict=False))
        missing = [t.name for t in outputs if t.ref() not in env]
        if missing:
            raise TraceError(
                "A value of the model could not be followed", value=missing[0], remedy="Pass forward= without it."
            )
        return [env[t.ref()] for t in outputs]

    def called(self, graph: Any, op: Any, name: str, ins: Sequence[int]) -> list[int]:
        """Inline the function that attribute ``name`` of an operation holds."""
        inner = graph._get_function(op.get_attr(name).name).graph
        env = dict(zip((t.ref() for t in inner.inputs), ins, strict=True))
        return self.graph(inner, env, list(inner.outputs))

    def operation(self, graph: Any, op: Any, ins: list[int]) -> Sequence[int]:
        """Add one operation on variables ``ins``; the variables of its outputs."""
        if op.type in SAME:
            return ins
        if op.type in CALLS:
            return self.called(graph, op, "f", ins)
        if op.type in ("If", "StatelessIf", "Case", "StatelessCase"):
            return self.branch(graph, op, ins)
        if op.type in ("While", "StatelessWhile"):
            return self.loop(graph, op, ins)
        if op.type == "Const":
            value = tf.make_ndarray(op.get_attr("value"))
            return [self.constant(value, closed=value.ndim > 1)]
        if ins and ins[0] in self.handles:
            found = self.variable(op, ins)
            if found is not None:
                return found
        if op.type.startswith(("TensorList", "EmptyTensorList")):
            return self.list(op, ins)
        if op.type in ("Shape", "Size", "Rank", "ShapeN"):
            return [self.constant(x) for x in self.sizes(op, ins)]
        return self.emit(op, op.type, attributes(op), ins, binder(op), [aval(t) for t in op.outputs])

    def sizes(self, op: Any, ins: Sequence[int]) -> list[Any]:
        shapes, kind = [self.flat.avals[v].shape for v in ins], op.outputs[0].dtype.as_numpy_dtype
        if op.type in ("Shape", "ShapeN"):
            return [np.asarray(s, kind) for s in shapes]
        return [np.asarray(math.prod(shapes[0]) if op.type == "Size" else len(shapes[0]), kind)]

    def emit(
        self, op: Any, name: str, params: dict[str, Any], ins: Sequence[int], call: Any, avals: Sequence[Aval | None]
    ) -> list[int]:
        """Add one step, or its outputs as constants when every operand is known."""
        known = self.flat.known
        if None in avals:
            avals = inferred(call, [known.get(v, self.flat.avals[v]) for v in ins]) or avals
        shaped = [_known(a, op) for a in avals]
        sure = all(v in known for v in ins) and "Random" not in name and not getattr(op.op_def, "is_stateful", False)
        if sure and sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in shaped) <= LIMIT:
            return [self.constant(t.numpy()) for t in call(*(tf.constant(known[v]) for v in ins))]
        outs = tuple(self.new(a) for a in shaped)
        scope = ".".join(op.name.split("/")[:-1])
        self.flat.steps.append(Step(name, params, tuple(ins), outs, tuple(shaped), scope, call))
        return list(outs)

    # ---- variables --------------------------------------------------------------------------
    def variable(self, op: Any, ins: list[int]) -> list[int] | None:
        """Reads and writes of variables: a write changes what later reads see, and nothing else."""
        place = self.handles[ins[0]]
        if op.type == "ReadVariableOp":
            return [self.current[place]]
        if op.type == "AssignVariableOp":
            self.current[place] = ins[1]
            return []
        if op.type in ("AssignAddVariableOp", "AssignSubVariableOp"):
            add = op.type == "AssignAddVariableOp"
            call: Any = (lambda a, b: [a + b]) if add else (lambda a, b: [a - b])
            held = self.current[place]
            shaped = self.flat.avals[held]
            (self.current[place],) = self.emit(op, "AddV2" if add else "Sub", {}, (held, ins[1]), call, [shaped])
            return []
        if op.type == "VariableShape":
            return [self.constant(np.asarray(self.flat.avals[self.current[place]].shape, np.int32))]
        if op.type == "ResourceGather":
            table = self.current[place]
            batch = int(op.get_attr("batch_dims"))
            rows = self.flat.avals[ins[1]].shape
            shaped = Aval((*rows, *self.flat.avals[table].shape[1 + batch :]), self.flat.avals[table].dtype)
            axis = self.constant(np.asarray(batch, np.int32))
            call = lambda x, i, a: [tf.gather(x, i, axis=batch, batch_dims=batch)]  # noqa: E731
            return self.emit(op, "GatherV2", {"batch_dims": batch}, (table, ins[1], axis), call, [shaped])
        return None

    # ---- lists ------------------------------------------------------------------------------
    def list(self, op: Any, ins: list[int]) -> list[int]:
        """Lists of tensors, as loops keep them."""
        held = list(self.lists.get(ins[0], ())) if ins else []
        kind = op.type
        if kind == "TensorListReserve":
            return [self.listed([None] * self.number(op, ins[1]))]
        if kind == "EmptyTensorList":
            return [self.listed([])]
        if kind == "TensorListFromTensor":
            return [self.listed([self.row(op, ins[0], i) for i in range(self.flat.avals[ins[0]].shape[0])])]
        if kind == "TensorListGetItem":
            item = held[self.number(op, ins[1])]
            return [self.blank(op, held, ins[2]) if item is None else item]
        if kind == "TensorListSetItem":
            place = self.number(op, ins[1])
            held += [None] * (place + 1 - len(held))
            held[place] = ins[2]
            return [self.listed(held)]
        if kind == "TensorListPushBack":
            return [self.listed([*held, ins[1]])]
        if kind == "TensorListPopBack":
            item = held.pop()
            return [self.listed(held), self.blank(op, held, ins[1]) if item is None else item]
        if kind == "TensorListLength":
            return [self.constant(np.asarray(len(held), np.int32))]
        if kind == "TensorListStack":
            return [self.stacked(op, [self.blank(op, held, ins[1]) if v is None else v for v in held])]
        raise TraceError("A list operation has no translation", value=kind, remedy="Pass forward= without it.")

    def number(self, op: Any, var: int) -> int:
        found = self.value(var)
        if found is None:
            raise TraceError("A place in a list depends on data", value=op.name, remedy="Pass forward= without it.")
        return int(found)

    def blank(self, op: Any, held: Sequence[int | None], shape: int) -> int:
        """Zeros where nothing was written yet."""
        like = next((self.flat.avals[v] for v in held if v is not None), None)
        if like is None:
            like = Aval(tuple(int(n) for n in self.flat.known[shape]), dtype_of(op.get_attr("element_dtype")))
        return self.constant(np.zeros(like.shape, like.dtype))

    def row(self, op: Any, var: int, i: int) -> int:
        shaped = self.flat.avals[var]
        out = Aval(shaped.shape[1:], shaped.dtype)
        return self.emit(op, "index", {"index": i}, [var], lambda x: [x[i]], [out])[0]

    def stacked(self, op: Any, column: list[int]) -> int:
        shaped = self.flat.avals[column[0]]
        out = Aval((len(column), *shaped.shape), shaped.dtype)
        return self.emit(op, "stack", {"axis": 0}, column, lambda *xs: [tf.stack(xs)], [out])[0]

    # ---- control flow -----------------------------------------------------------------------
    def value(self, var: int) -> Any:
        """The value of a variable, known or computed from the data; ``None`` if neither can be had."""
        if var in self.flat.known:
            return self.flat.known[var]
        return None if self.decide is None else self.decide(self.flat, var)

    def branch(self, graph: Any, op: Any, ins: list[int]) -> list[int]:
        chosen = self.value(ins[0])
        if "Case" in op.type:
            branches = op.get_attr("branches")
            name = branches[min(max(int(chosen or 0), 0), len(branches) - 1)].name
            inner = graph._get_function(name).graph
            return self.graph(inner, dict(zip((t.ref() for t in inner.inputs), ins[1:], strict=True)), inner.outputs)
        taken = chosen is None or bool(chosen)
        if ins[0] not in self.flat.known:
            self.flat.notes.append(f"a branch that depends on data was recorded as its case {int(taken)}")
        return self.called(graph, op, "then_branch" if taken else "else_branch", ins[1:])

    def loop(self, graph: Any, op: Any, carry: list[int]) -> list[int]:
        taken, guessed, start = 0, False, len(self.flat.steps)
        while taken < UNROLL or len(self.flat.steps) - start < BUDGET:
            before = dict(self.current)
            keep = self.called(graph, op, "cond", carry)[0]
            going = self.value(keep)
            guessed |= keep not in self.flat.known
            self.current = before
            if (going is None and taken == 1) or (going is not None and not bool(going)):
                break
            carry = self.called(graph, op, "body", carry)
            taken += 1
        else:
            self.flat.notes.append(f"a while loop was recorded for its first {taken} steps")
        if guessed:
            self.flat.notes.append(f"a while loop that depends on data was recorded for {taken} steps")
        return carry


def evaluate(flat: Flat, steps: Sequence[Step], env: dict[int, Any]) -> None:
    """Run ``steps`` on concrete values in ``env``, which grows by their outputs."""
    for step in steps:
        if not all(v in env for v in step.outs):
            args = [env[v] if v in env else tf.constant(flat.known[v]) for v in step.ins]
            env.update(zip(step.outs, step.call(*args), strict=True))


__all__ = ["evaluate", "flatten", "needed_for"]

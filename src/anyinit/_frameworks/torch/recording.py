"""From a model and its input to a graph: without data first, on real tensors where that fails."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from anyinit._frameworks.torch import effective
from anyinit._frameworks.torch.guard import Scopes, seed_noise, unchanged
from anyinit._frameworks.torch.inputs import Inputs
from anyinit._frameworks.torch.literals import Literals
from anyinit._frameworks.torch.memory import dtype_name, kind_of, storage_key
from anyinit._frameworks.torch.record import CopiesNeededError, IdsNeededError, Recorder, Tape
from anyinit._graph import ops
from anyinit._graph.graph import BOOL, INT, Graph, Leaf, Node, Value
from anyinit.errors import TraceError

Forward = Callable[..., Any] | None


@dataclass(frozen=True, slots=True)
class Recording:
    """A graph, where its values can be observed, and how the run was executed.

    ``level``: ``whole`` (below autograd: fused operations stay whole), ``plain`` (no gradients) or
    ``grad`` (with autograd, for models that differentiate inside); ``training``: all modules in
    training mode, the rule; ``meta``: recorded without data; ``writes``: the run writes into parameters.
    """

    graph: Graph
    tape: Tape
    level: str
    training: bool
    meta: bool
    writes: bool = False


@contextmanager
def level_of(level: str) -> Generator[None]:
    """The autograd state of a run."""
    with ExitStack() as stack:
        if level == "grad":
            stack.enter_context(torch.enable_grad())
        else:
            stack.enter_context(torch.no_grad())
        yield


@contextmanager
def whole_operations(level: str) -> Generator[None]:
    """Dispatch below autograd where the level asks for it."""
    if level != "whole":
        yield
        return
    with torch._C._AutoDispatchBelowAutograd():
        yield


def record(model: nn.Module, inputs: Inputs, forward: Forward) -> Recording:
    """The graph of one run in training mode.

    Raises:
        TraceError: the model cannot be run on this input; its own exception is chained.
    """
    notes: list[str] = []
    first: Exception | None = None
    plans = [(True, "whole", True), (False, "whole", True), (True, "grad", True), (False, "plain", True)]
    plans += [(False, "grad", True), (False, "whole", False), (False, "grad", False)]
    failures: dict[bool, Exception] = {}
    for meta, level, training in plans:
        if meta and level == "grad" and not _wants_gradients(first):
            continue
        try:
            found = attempt(model, inputs, forward, meta=meta, level=level, training=training)
        except IdsNeededError:
            raise
        except Exception as error:  # noqa: BLE001  (the model's own code may raise anything; kept and chained below)
            first = first or error
            if not meta:
                failures.setdefault(training, error)
            if meta and level == "whole":
                notes.append(f"recorded on real tensors because it could not be recorded without data: {_short(error)}")
            continue
        if not training:
            notes.append(f"recorded in evaluation mode because training mode failed: {_short(failures[True])}")
        if found.meta:
            notes = notes[1:]
        return _with_notes(found, notes)
    cause = failures[True]
    raise refused(cause, inputs) from cause


def refused(cause: Exception, inputs: Inputs) -> TraceError:
    """The error of a model that could not be run, in the form the library raises; chain ``cause`` to it."""
    return TraceError(
        f"The model could not be run on this input: {type(cause).__name__}: {cause}",
        value={name: (*leaf.shape, str(leaf.dtype).removeprefix("torch.")) for name, leaf in inputs.named()},
        remedy="Check the shape and type of the input (the first dimension counts the samples of a batch), "
        "or pass forward= to say how the model is called.",
    )


def _wants_gradients(error: Exception | None) -> bool:
    return error is not None and "grad" in str(error)


def _short(error: Exception) -> str:
    line = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return f"{type(error).__name__}: {line[:160]}"


def _with_notes(found: Recording, notes: list[str]) -> Recording:
    g = found.graph
    graph = Graph(g.values, g.leaves, g.nodes, g.outputs, (*notes, *g.notes), g.unused)
    return replace(found, graph=graph)


def attempt(model: nn.Module, inputs: Inputs, forward: Forward, *, meta: bool, level: str, training: bool,
            copies: bool = False) -> Recording:  # fmt: skip
    tree = inputs.without_data() if meta else inputs.real()
    computed = effective.find(model)
    weights = {item.name: item.value().requires_grad_(item.trainable) for item in computed}
    named = named_leaves(model, computed, weights)
    named |= {id(t): Leaf("input", name, dtype_name(t.dtype)) for name, t in inputs.named(tree)}
    recorder = Recorder(named, meta=meta, copies=copies)
    recorder.memory.lenient = any(p.is_meta for p in (*model.parameters(), *model.buffers()))
    for tensor in _shared_first(model):
        recorder.memory.track(tensor)
    for _, tensor in inputs.named(tree):
        recorder.memory.value(recorder.memory.track(tensor))
    try:
        with unchanged(model, training=training), effective.shown(computed, weights), Scopes(model) as scopes:
            recorder.scope = scopes
            seed_noise(0)  # as when it is run again: a path may depend on noise
            with level_of(level), recorder, whole_operations(level), Literals() if meta else nullcontext():
                result = inputs.call(model, forward, tree)
            outputs = recorder.outputs(result)
    except CopiesNeededError:
        if copies:
            raise
        return attempt(model, inputs, forward, meta=meta, level=level, training=training, copies=True)
    if meta and recorder.failure is not None:
        raise recorder.failure
    for item in computed:
        if not item.trainable:
            recorder.low.note(f"{item.name} is kept: its parametrization ({item.kind}) decides its numbers")
    return _finished(recorder, outputs, level, training)


def named_leaves(
    model: nn.Module, computed: Sequence[effective.Effective] = (), weights: Mapping[str, torch.Tensor] | None = None
) -> dict[int, Leaf]:
    """Leaves of all parameters and buffers by ``id``; tensors of one memory and shape share a leaf.
    Computed weights have leaves of their own."""
    found: dict[int, Leaf] = {}
    for item in computed:
        tensor = (weights or {})[item.name]
        found[id(tensor)] = Leaf("param", item.name, dtype_name(tensor.dtype), item.trainable, item.aliases)
    originals = {id(p) for item in computed for p in item.originals}
    named = model.named_parameters(remove_duplicate=False)
    tensors = [("param", name, p) for name, p in named if id(p) not in originals]
    tensors += [("buffer", *item) for item in model.named_buffers(remove_duplicate=False)]
    names: dict[tuple[Any, ...], list[str]] = {}
    for _, name, tensor in tensors:
        names.setdefault(place(tensor), []).append(name)
    for role, _, tensor in tensors:
        first, *others = names[place(tensor)]
        trainable = role == "param" and tensor.requires_grad
        found[id(tensor)] = Leaf(role, first, dtype_name(tensor.dtype), trainable, tuple(others))
    return found


def place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Identity of a tensor's entries: equal for two objects on the same memory with as many entries."""
    return storage_key(tensor), tensor.storage_offset(), tensor.numel()


def _shared_first(model: nn.Module) -> list[torch.Tensor]:
    """The first object on every memory that several parameter objects share."""
    seen: dict[tuple[Any, ...], torch.Tensor] = {}
    shared: dict[tuple[Any, ...], torch.Tensor] = {}
    for p in model.parameters():
        key = place(p)
        if key in seen and seen[key] is not p:
            shared[key] = seen[key]
        seen.setdefault(key, p)
    return list(shared.values())


# --- finishing --------------------------------------------------------------------------------

_STRUCTURE = (ops.Reshape, ops.Permute, ops.Expand, ops.Slice, ops.Update, ops.Fill, ops.Random)


def _idle(node: Node, values: list[Value]) -> bool:
    """Whether a result nobody reads may be dropped: rearrangements, noise, and whole numbers and truths."""
    if isinstance(node.op, _STRUCTURE) or values[node.output].kind in (INT, BOOL):
        return True
    return isinstance(node.op, ops.Opaque) and all(values[i].kind in (INT, BOOL) for i in node.inputs)


def _finished(recorder: Recorder, outputs: tuple[int, ...], level: str, training: bool) -> Recording:
    """Drop rearrangements and constants nobody reads, number values densely, and check."""
    b = recorder.builder
    needed = set(outputs) | {i for i, leaf in b.leaves.items() if leaf.role in ("input", "param")}
    kept: list[Node] = []
    for node in reversed(b.nodes):
        if node.output in needed or not _idle(node, b.values):
            kept.append(node)
            needed.add(node.output)
            needed.update(node.inputs)
    kept.reverse()
    order = sorted(needed)
    new = {old: i for i, old in enumerate(order)}
    nodes = tuple(
        Node(n.op, tuple(new[i] for i in n.inputs), new[n.output], n.scope, n.call, n.step) for n in kept
    )  # fmt: skip
    leaves = _numbered({new[i]: leaf for i, leaf in b.leaves.items() if i in new})
    used = {leaf.name for leaf in leaves.values()}
    declared = [leaf.name for leaf in recorder.memory.named.values() if leaf.role == "param"]
    unused = tuple(dict.fromkeys(name for name in declared if name not in used))
    values = tuple(b.values[i] for i in order)
    graph = Graph(values, leaves, nodes, tuple(new[i] for i in outputs), tuple(b.notes), unused)
    results = {new[i]: where for i, where in recorder.tape.results.items() if i in new}
    tape = Tape(recorder.tape.calls, results)
    return Recording(graph, tape, level, training, recorder.meta, recorder.writes)


def _numbered(leaves: dict[int, Leaf]) -> dict[int, Leaf]:
    """Constants without a name are counted in the order of their ids."""
    count = 0
    named: dict[int, Leaf] = {}
    for i in sorted(leaves):
        named[i] = leaves[i]
        if not leaves[i].name:
            count += 1
            named[i] = replace(leaves[i], name=f"const.{count}")
    return named


def equal(a: Graph, b: Graph) -> str:
    """Empty when two graphs are the same but for their notes; else the first difference in words."""
    for i, (x, y) in enumerate(zip(a.nodes, b.nodes, strict=False)):
        if x != y:
            return f"node {i}: {x} against {y}"
    if len(a.nodes) != len(b.nodes) or a.values != b.values or a.outputs != b.outputs:
        return f"{len(a.nodes)} nodes and {len(a.values)} values against {len(b.nodes)} and {len(b.values)}"
    for i in sorted({*a.leaves, *b.leaves}):
        p, q = a.leaves.get(i), b.leaves.get(i)
        if _face(p) != _face(q):
            return f"leaf {i}: {_face(p)} against {_face(q)}"
        if p and q and p.data is not None and not np.array_equal(p.data, q.data, equal_nan=True):  # type: ignore[arg-type]
            return f"leaf {i}, {p.name}: other numbers"
    return ""


def _face(leaf: Leaf | None) -> tuple[object, ...]:
    return () if leaf is None else (leaf.role, leaf.name, leaf.dtype, leaf.aliases, leaf.trainable, leaf.data is None)


__all__ = [
    "Recording",
    "equal",
    "kind_of",
    "level_of",
    "named_leaves",
    "place",
    "record",
    "whole_operations",
]

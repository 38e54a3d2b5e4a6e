"""The recorder: a dispatch mode that executes one run and writes every operation into a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import anyinit._frameworks.torch.translate  # noqa: F401  (fills the registries)
from anyinit._frameworks.torch.calls import EMPTY, LIKE, READS, Call, describe
from anyinit._frameworks.torch.lower import ATEN, Lower, V
from anyinit._frameworks.torch.memory import LIMIT, Memory, Tracked, kind_of, storage_key
from anyinit._frameworks.torch.views import STEPS, apply
from anyinit._graph.graph import Builder, Leaf

Tensor = torch.Tensor
META = torch.device("meta")
CPU = torch.device("cpu")


class DataNeededError(RuntimeError):
    """The run asks for numbers that a recording without data does not have."""


class CopiesNeededError(RuntimeError):
    """The run writes into memory of the user; record again on copies."""


@dataclass(slots=True)
class Tape:
    """What a recording leaves besides the graph: the observable calls in order, and for value ids
    the call and the position among its tensor results that show them."""

    calls: list[str] = field(default_factory=list[str])
    results: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])


class Recorder(TorchDispatchMode):
    """Records the calls made while it is active.

    Args:
        named: leaves of parameters, buffers and inputs by ``id`` of their tensor.
        meta: execute without data.
        copies: copy parameters before they are used.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # the default imports the whole compiler
        return False

    def __init__(self, named: Mapping[int, Leaf], *, meta: bool, copies: bool = False) -> None:
        super().__init__()
        self.builder = Builder()
        self.low = Lower(self.builder)
        self.memory = Memory(self.low, meta, dict(named), copies=copies)
        self.meta = meta
        self.tape = Tape()
        self.failure: Exception | None = None
        self.scope: Callable[[], str] = str
        self._depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = describe(func)
        kwargs = kwargs or {}
        if self._depth == 0:
            if not call.silent:
                self.tape.calls.append(call.name)
            self.builder.step = len(self.tape.calls) - 1 if not call.silent else -1
            self.builder.call = call.name
            self.builder.scope = self.scope()
        try:
            return self._call(func, call, args, kwargs)
        except Exception as error:
            self.failure = self.failure or error
            raise

    # --- one call ---------------------------------------------------------------------------

    def _call(self, func: Any, call: Call, args: Any, kwargs: Any) -> Any:
        tracked = [self.memory.track(t) for t in _tensors((args, kwargs))]
        if call.base in LIKE or not call.random and all(t.root.known for t in tracked):
            size = self._size(func, call, args, kwargs, tracked)
            if size <= LIMIT:
                return self._known(func, call, args, kwargs, tracked)
        if call.name in READS and self.meta:
            raise DataNeededError(f"{call.name} needs the numbers of a tensor that depends on the input or a weight")
        if not any(label in ATEN or label in STEPS for label in call.labels) and not call.mutated and self._depth < 6:
            done, result = self._decompose(func, args, kwargs)
            if done:
                return result
        return self._unknown(func, call, args, kwargs, tracked)

    def _size(self, func: Any, call: Call, args: Any, kwargs: Any, tracked: list[Tracked]) -> int:
        """Entries of the result of a call on known tensors, without making it."""
        if call.mutated or call.silent or tracked and max(t.handle.numel() for t in tracked) <= 2048:
            return 0
        if not tracked and "device" not in call.arguments:
            return 0
        try:
            out = func(
                *_swap(args, _metas, META), **_swap(kwargs, _metas, META, not tracked and "device" in call.arguments)
            )
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return 0  # its size depends on its numbers, which are few
        return max((t.numel() for t in _tensors(out)), default=0)

    def _known(self, func: Any, call: Call, args: Any, kwargs: Any, tracked: list[Tracked]) -> Any:
        """Execute a call whose operands are all known, for real."""
        memory = self.memory
        real = {id(t.handle): t.real if t.real is not None else t.handle for t in tracked}
        default = self.meta and call.base in LIKE and "device" not in kwargs
        out = func(*_swap(args, lambda t: real[id(t)], CPU), **_swap(kwargs, lambda t: real[id(t)], CPU, default))
        if call.name in EMPTY:
            out.zero_()
        if call.mutated:
            for t in self._mutated(call, args, kwargs):
                memory.touch(t.root)
        owners = {id(t.real): t for t in tracked if t.real is not None}
        homes = {storage_key(t.real): t for t in tracked if t.real is not None and t.root.known}

        def keep(result: Tensor, index: int, outs: Sequence[Tensor]) -> Tensor:
            owner = owners.get(id(result))
            if owner is not None:
                return owner.handle
            home = homes.get(storage_key(result))
            if home is None:
                memory.fresh(result, None)
            else:
                memory.view(result, home, self._chains(call, home, outs, args, kwargs)[index], real=result)
            return result

        return _each(out, keep)

    def _unknown(self, func: Any, call: Call, args: Any, kwargs: Any, tracked: list[Tracked]) -> Any:
        """Execute a call, add its nodes, and track its results."""
        memory = self.memory
        written = self._mutated(call, args, kwargs) if call.mutated else []
        if not self.meta and any(t.root.protected for t in written):
            raise CopiesNeededError(call.name)
        values = {id(t.handle): memory.handle(t) for t in tracked}
        run = {id(t.handle): memory.runnable(t) for t in tracked}
        device = META if self.meta else None
        default = self.meta and "device" in call.arguments and not tracked
        out = func(*_swap(args, lambda t: run[id(t)], device), **_swap(kwargs, lambda t: run[id(t)], device, default))
        outs = list(_tensors(out))
        owners = {id(run[id(t.handle)]): t for t in tracked}
        homes = {storage_key(run[id(t.handle)]): t for t in tracked}
        shown = outs or [t.handle for t in written]
        low = self.low
        low.shapes = tuple(tuple(t.shape) for t in shown)
        low.kinds = tuple(kind_of(t.dtype) for t in shown)
        if not outs and not written:
            return out
        fresh = [t for t in outs if id(t) not in owners] or written
        mark = len(self.builder.nodes)
        found = self._translate(call, args, kwargs, values, tracked, outs or shown) if fresh else [None] * len(shown)
        for t, v in zip(written, found, strict=False):
            memory.write(t, low.expand(v, tuple(t.handle.shape)) if isinstance(v, V) else memory.handle(t))
        if self._depth == 0 and not call.silent:
            for index, v in enumerate(found):
                if isinstance(v, V) and self._made_since(v, mark):
                    self.tape.results[v.id] = (self.builder.step, index)

        def keep(result: Tensor, index: int, outs: Sequence[Tensor]) -> Tensor:
            owner = owners.get(id(result))
            if owner is not None:
                return owner.handle
            home, value = homes.get(storage_key(result)), found[index]
            if home is not None:
                chain = self._chains(call, home, outs, args, kwargs)[index]
                memory.view(result, home, chain, result, value=value)
            elif value is not None:
                memory.fresh(result, value)
            return result

        return _each(out, keep)

    def _mutated(self, call: Call, args: Any, kwargs: Any) -> list[Tracked]:
        bound = dict(zip(call.arguments, args, strict=False)) | kwargs
        return [self.memory.track(t) for name in call.mutated for t in _tensors(bound.get(name))]

    def _chains(self, call: Call, home: Tracked, outs: Sequence[Tensor], args: Any, kwargs: Any) -> list[Any]:
        """Steps from the argument that owns the memory to each result."""
        maker = next((STEPS[label] for label in call.labels if label in STEPS), None)
        if maker is None or not isinstance(args[0], Tensor) or self.memory.track(args[0]) is not home:
            return [()] * len(outs) if all(o.shape == home.handle.shape for o in outs) else _same_memory(home, outs)
        shapes = [tuple(t.shape) for t in outs]
        return maker(tuple(home.handle.shape), shapes, *args[1:], **kwargs)

    # --- translation ------------------------------------------------------------------------

    def _translate(self, call: Call, args: Any, kwargs: Any, values: dict[int, V], tracked: list[Tracked],
                   outs: Sequence[Tensor]) -> list[V | None]:  # fmt: skip
        low, mark = self.low, len(self.builder.nodes)
        low.base = call.base
        swap = _swap(args, lambda t: values[id(t)], None), _swap(kwargs, lambda t: values[id(t)], None)
        maker = next((ATEN[label] for label in call.labels if label in ATEN), None)
        if maker is not None:
            swap[1].pop("out", None)
            result = maker(low, *swap[0], **swap[1])
        elif (steps := next((STEPS[label] for label in call.labels if label in STEPS), None)) is not None:
            chains = steps(swap[0][0].shape, list(low.shapes), *args[1:], **kwargs)
            result = [apply(low, swap[0][0], chain) for chain in chains]
        else:
            result = NotImplemented
        if result is NotImplemented:
            result = low.opaque(call.name, "no translation", [values[id(t.handle)] for t in tracked])
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        for index, (v, shape, kind) in enumerate(zip(found, low.shapes, low.kinds, strict=False)):
            if v is None:
                continue
            if v.shape != shape and not call.mutated:
                raise AssertionError(f"{call.name}: lowered to shape {v.shape} where {shape} was computed")
            found[index] = self._typed(v, kind, mark)
        return found

    def _typed(self, v: V, kind: str, mark: int) -> V:
        """The value as the kind of number the framework computed."""
        if v.kind == kind:
            return v
        if {v.kind, kind} == {"float", "int"} and kind == "int" and not self._made_since(v, mark):
            return self.low.pointwise("trunc", v)
        if kind == "bool" and not self._made_since(v, mark):
            return self.low.pointwise("ne", v, 0.0)
        if v.kind == "complex" and kind == "float" and not self._made_since(v, mark):
            return self.low.pointwise("real", v)
        if self._made_since(v, mark):
            shape = self.builder.values[v.id].shape
            self.builder.values[v.id] = type(self.builder.values[v.id])(shape, kind)
        return V(v.shape, kind, v.id)

    def _made_since(self, v: V, mark: int) -> bool:
        return v._id is not None and any(node.output == v._id for node in self.builder.nodes[mark:])

    def _decompose(self, func: Any, args: Any, kwargs: Any) -> tuple[bool, Any]:
        """Run the framework's own decomposition of an operation under the recorder."""
        table = torch._decomp.decomposition_table
        self._depth += 1
        failure, self.failure = self.failure, None
        try:
            with self:
                if func in table:
                    return True, table[func](*args, **kwargs)
                result = func.decompose(*args, **kwargs)
            return result is not NotImplemented, result
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError, AssertionError) as error:
            if isinstance(error, (DataNeededError, CopiesNeededError)):
                raise
            return False, None
        finally:
            self.failure = failure
            self._depth -= 1

    # --- the end ----------------------------------------------------------------------------

    def outputs(self, result: Any) -> tuple[int, ...]:
        """Value ids of the tensors in whatever the model returned."""
        return tuple(self.memory.value(self.memory.track(t)) for t in flatten(result))


def flatten(result: Any) -> Iterable[Tensor]:
    """Tensors in nested lists, tuples, mappings and dataclasses, in order."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for item in result.values():
            yield from flatten(item)
    elif isinstance(result, (list, tuple)):
        for item in result:
            yield from flatten(item)
    elif is_dataclass(result) and not isinstance(result, type):
        for item in fields(result):
            yield from flatten(getattr(result, item.name))


def _tensors(tree: Any) -> Iterable[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from _tensors(item)


def _swap(tree: Any, tensor: Callable[[Tensor], Any], device: torch.device | None, default: bool = False) -> Any:
    """The arguments with every tensor replaced and, where ``device`` is given, every device too."""
    if isinstance(tree, Tensor):
        return tensor(tree)
    if isinstance(tree, (list, tuple)) and type(tree) in (list, tuple):
        return type(tree)([_swap(item, tensor, device) for item in tree])
    if isinstance(tree, dict):
        swapped = {name: _swap(item, tensor, device) for name, item in tree.items()}
        if device is not None and (default or swapped.get("device") is not None):
            swapped["device"] = device
            swapped.pop("pin_memory", None)
        return swapped
    if isinstance(tree, torch.device) and device is not None:
        return device if device == META or tree == META else tree
    return tree


def _metas(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


def _each(out: Any, keep: Callable[[Tensor, int, Sequence[Tensor]], Tensor]) -> Any:
    """The results with every tensor passed through ``keep`` with its position among them."""
    outs = list(_tensors(out))
    count = iter(range(len(outs)))

    def walk(tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return keep(tree, next(count), outs)
        return type(tree)([walk(item) for item in tree]) if isinstance(tree, (list, tuple)) else tree

    return walk(out)


def _same_memory(home: Tracked, outs: Sequence[Tensor]) -> list[Any]:
    raise AssertionError(f"a view of shape {[tuple(o.shape) for o in outs]} on {tuple(home.handle.shape)} has no steps")

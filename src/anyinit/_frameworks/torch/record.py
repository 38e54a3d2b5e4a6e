"""The recorder: a dispatch mode that executes one run and writes every operation into a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import anyinit._frameworks.torch.translate  # noqa: F401  # pyright: ignore[reportUnusedImport] (fills the registries)
from anyinit._frameworks.torch.calls import EMPTY, FIXED, LIKE, READS, Call, describe, operands, plain_form
from anyinit._frameworks.torch.lower import ATEN, Lower, V
from anyinit._frameworks.torch.memory import LIMIT, DataNeededError, Memory, Tracked, kind_of, storage_key
from anyinit._frameworks.torch.standins import STAND_INS
from anyinit._frameworks.torch.trees import CPU, META, each, empty_twin, flatten, swap, tensors
from anyinit._frameworks.torch.views import STEPS, Chain, apply
from anyinit._graph.graph import FLOAT, Builder, Leaf, Value
from anyinit._graph.ops import Opaque

Items = dict[int, Tracked]
DEEPEST = 8


class IdsNeededError(RuntimeError):
    """A table of ``vocabulary`` rows is looked up with numbers that are no ids."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__(f"a table of {vocabulary} rows is looked up with floating-point numbers")
        self.vocabulary = vocabulary


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
    def _should_skip_dynamo(cls) -> bool:  # the default wraps the method and imports the whole compiler
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
        self.writes = False  # the run writes into a parameter
        self._depth = 0

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (plain := plain_form(func)) is not None:
            with self:
                return plain(*args, **kwargs)
        call = describe(func)
        try:
            return self._call(func, call, args, kwargs)
        except Exception as error:
            self.failure = self.failure or error
            raise

    # --- one call ---------------------------------------------------------------------------

    def _call(self, func: Any, call: Call, args: Any, kwargs: Any) -> Any:
        track = self.memory.track
        items = {id(t): track(t) for t in tensors((args, kwargs))}
        computable = not call.random and all(t.root.known for t in operands(call, list(items.values())))
        if computable and self._size(func, call, args, kwargs, items) <= LIMIT:
            return self._known(func, call, args, kwargs, items)
        if call.name in READS and self.meta:
            raise DataNeededError(f"{call.name} needs the numbers of a tensor that depends on the input or a weight")
        if self._depth == 0:
            self._begin(call)
        mark = len(self.builder.nodes)
        translated = any(label in ATEN or label in STEPS for label in call.labels)
        if not translated and not call.mutated and self._depth < DEEPEST:
            done, result = self._decompose(func, args, kwargs, items)
            if done:
                self._show(call, [self._current(t) for t in tensors(result)], mark)
                return result
        return self._unknown(func, call, args, kwargs, items)

    def _begin(self, call: Call) -> None:
        """The next observable call; calls on constants alone are not counted."""
        if not call.silent:
            self.tape.calls.append(call.name)
        self.builder.step = -1 if call.silent else len(self.tape.calls) - 1
        self.builder.call = call.name
        self.builder.scope = self.scope()

    def _size(self, func: Any, call: Call, args: Any, kwargs: Any, items: Items) -> int:
        """Entries of the result of a call on known tensors, without making it."""
        if call.mutated or call.silent or items and max(t.handle.numel() for t in items.values()) <= 2048:
            return 0
        factory = "device" in call.arguments
        if not items and not factory:
            return 0
        try:
            out = func(*swap(args, empty_twin, META), **swap(kwargs, empty_twin, META, factory))
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return 0  # its size depends on its numbers, which are few
        return max((t.numel() for t in tensors(out)), default=0)

    def _known(self, func: Any, call: Call, args: Any, kwargs: Any, items: Items) -> Any:
        """Execute a call whose operands are all known, for real."""
        memory = self.memory
        real = {key: t.real if t.real is not None else t.handle for key, t in items.items()}
        here = self.meta and call.base in LIKE
        out = func(*swap(args, lambda t: real[id(t)], CPU), **swap(kwargs, lambda t: real[id(t)], CPU, here))
        if call.name in EMPTY:
            out.zero_()
        for t in self._mutated(call, args, kwargs):
            memory.touch(t.root)
        owners = {id(t.real): t for t in items.values() if t.real is not None}
        homes = {storage_key(t.real): t for t in items.values() if t.real is not None and t.root.known}

        def keep(result: Tensor, index: int, outs: Sequence[Tensor]) -> Tensor:
            if id(result) in owners:
                return owners[id(result)].handle
            home = homes.get(storage_key(result))
            chain = None if home is None else self._chain(call, home, index, outs, args, kwargs)
            if home is None or chain is None:
                memory.fresh(result, None)
            else:
                memory.view(result, home, chain, real=result)
            return result

        return each(out, keep)

    def _unknown(self, func: Any, call: Call, args: Any, kwargs: Any, items: Items) -> Any:
        """Execute a call, add its nodes, and track its results."""
        memory, low = self.memory, self.low
        written = self._mutated(call, args, kwargs)
        if not self.meta and any(t.root.protected for t in written):
            raise CopiesNeededError(call.name)
        if call.base == "embedding" and kind_of(args[1].dtype) == FLOAT:
            raise IdsNeededError(args[0].shape[0])
        for t in written:
            self.writes = self.writes or _is_parameter(t)
            memory.reveal(t.root)
        values = {key: memory.handle(t) for key, t in items.items()}
        run = {key: memory.runnable(t) for key, t in items.items()}
        device = META if self.meta else None
        here = self.meta and "device" in call.arguments and not items
        given, options = swap(args, lambda t: run[id(t)], device), swap(kwargs, lambda t: run[id(t)], device, here)
        out = self._stood_in(call, given, options) if self.meta and call.base in STAND_INS else NotImplemented
        out = func(*given, **options) if out is NotImplemented else out
        low.results = list(tensors(out)) or [t.handle for t in written]
        if not low.results:
            return out
        low.shapes = tuple(tuple(t.shape) for t in low.results)
        low.kinds = tuple(kind_of(t.dtype) for t in low.results)
        owners = {id(run[key]): t for key, t in items.items()}
        homes = {storage_key(run[key]): t for key, t in items.items()}
        mark = len(self.builder.nodes)
        same = not written and all(id(t) in owners for t in low.results)
        found = [None] * len(low.results) if same else self._translate(call, args, kwargs, values)
        for t, v in zip(written, found, strict=False):
            if v is not None:
                memory.write(t, low.expand(v, tuple(t.handle.shape)))
        self._show(call, found, mark)

        def keep(result: Tensor, index: int, outs: Sequence[Tensor]) -> Tensor:
            if id(result) in owners:
                return owners[id(result)].handle
            home, value = homes.get(storage_key(result)), found[index]
            home = None if home is not None and home.root.known else home  # too large to be known
            chain = None if home is None else self._chain(call, home, index, outs, args, kwargs)
            if home is not None and chain is None and value is not None and memory.value(home) == value.id:
                chain = ()
            if home is not None and chain is not None:
                memory.view(result, home, chain, result, value=value)
            elif index in FIXED.get(call.base, ()):
                memory.fresh(result, None)
            else:
                memory.fresh(result, value or self._late(call, result, index, values))
            return result

        return each(out, keep)

    @staticmethod
    def _stood_in(call: Call, given: Sequence[Any], options: Any) -> Any:
        """An empty result of the right shape; the argument itself where the call writes into it."""
        if call.mutated and call.name == call.base:  # an ``out=`` argument
            return NotImplemented
        out = STAND_INS[call.base](*given, **options)
        if not call.mutated or out is NotImplemented:
            return out
        return given[0] if out.shape == given[0].shape else NotImplemented

    def _late(self, call: Call, result: Tensor, index: int, values: dict[int, V]) -> V:
        """A result the translation leaves out: opaque if somebody reads it after all."""
        op = Opaque(call.name, "no translation of this result", index)
        shape, kind = tuple(result.shape), kind_of(result.dtype)
        return V(shape, kind, make=lambda: self.low.add(op, [*values.values()], shape, kind).id)

    def _mutated(self, call: Call, args: Any, kwargs: Any) -> list[Tracked]:
        if not call.mutated:
            return []
        bound = dict(zip(call.arguments, args, strict=False)) | kwargs
        return [self.memory.track(t) for name in call.mutated for t in tensors(bound.get(name))]

    def _chain(
        self, call: Call, home: Tracked, index: int, outs: Sequence[Tensor], args: Any, kwargs: Any
    ) -> Chain | None:
        """Steps from the argument that owns the memory to a result, if they are known."""
        maker = next((STEPS[label] for label in call.labels if label in STEPS), None)
        if maker is None or not isinstance(args[0], Tensor) or self.memory.track(args[0]) is not home:
            return None
        return maker(tuple(home.handle.shape), [tuple(t.shape) for t in outs], *args[1:], **kwargs)[index]

    def _current(self, tensor: Tensor) -> V | None:
        item = self.memory.track(tensor)
        return None if item.root.known else V((), "", self.memory.value(item))

    def _show(self, call: Call, found: Sequence[V | None], mark: int) -> None:
        """Note which results of an observable call show which new values."""
        if self._depth == 0 and not call.silent:
            for index, v in enumerate(found):
                if v is not None and self._made_since(v, mark):
                    self.tape.results[v.id] = (self.builder.step, index)

    # --- translation ------------------------------------------------------------------------

    def _translate(self, call: Call, args: Any, kwargs: Any, values: dict[int, V]) -> list[V | None]:
        low, mark = self.low, len(self.builder.nodes)
        low.base = call.base
        given, options = swap(args, lambda t: values[id(t)]), swap(kwargs, lambda t: values[id(t)])
        maker = next((ATEN[label] for label in call.labels if label in ATEN), None)
        steps = next((STEPS[label] for label in call.labels if label in STEPS), None)
        result: Any = NotImplemented
        if maker is not None:
            options.pop("out", None)
            result = maker(low, *given, **options)
        elif steps is not None:
            chains = steps(given[0].shape, list(low.shapes), *args[1:], **kwargs)
            result = [apply(low, given[0], chain) for chain in chains]
        if result is NotImplemented:
            result = low.opaque(call.name, "no translation", [*values.values()])
        found: list[V | None] = list(result) if isinstance(result, (tuple, list)) else [result]
        for index, (v, shape, kind) in enumerate(zip(found, low.shapes, low.kinds, strict=False)):
            if v is not None:
                if v.shape != shape and not call.mutated:
                    raise AssertionError(f"{call.name}: lowered to shape {v.shape} where {shape} was computed")
                found[index] = self._typed(v, kind, mark)
        return found

    def _typed(self, v: V, kind: str, mark: int) -> V:
        """The value as the kind of number the framework computed."""
        if v.kind == kind:
            return v
        if self._made_since(v, mark):
            self.builder.values[v.id] = Value(self.builder.values[v.id].shape, kind)
            return V(v.shape, kind, v.id)
        if kind == "bool":
            return self.low.pointwise("ne", v, 0.0)
        if kind == "int" and v.kind == "float":
            return self._typed(self.low.pointwise("trunc", v), kind, mark)
        if kind == "float" and v.kind == "complex":
            return self.low.pointwise("real", v)
        return V(v.shape, kind, v.id)

    def _made_since(self, v: V, mark: int) -> bool:
        return v.made and any(node.output == v.id for node in self.builder.nodes[mark:])

    def _decompose(self, func: Any, args: Any, kwargs: Any, items: Items) -> tuple[bool, Any]:
        """Run the framework's own decomposition of an operation under the recorder."""
        run = {key: self.memory.adopt(t) for key, t in items.items()}
        args, kwargs = swap(args, lambda t: run[id(t)]), swap(kwargs, lambda t: run[id(t)])
        failure = self.failure
        self._depth += 1
        try:
            with self:
                table = torch._decomp.decomposition_table
                result = table[func](*args, **kwargs) if func in table else func.decompose(*args, **kwargs)
            return result is not NotImplemented, each(result, lambda t, *_: self.memory.track(t).handle)
        except (DataNeededError, CopiesNeededError):
            raise
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError, AssertionError):
            self.failure = failure  # it has no decomposition that can be recorded
            return False, None
        finally:
            self._depth -= 1

    # --- the end ----------------------------------------------------------------------------

    def outputs(self, result: Any) -> tuple[int, ...]:
        """Value ids of the tensors in whatever the model returned."""
        return tuple(self.memory.value(self.memory.track(t)) for t in flatten(result))


def _is_parameter(item: Tracked) -> bool:
    base = item.root.base
    return base is not None and base.leaf is not None and base.leaf.role == "param"

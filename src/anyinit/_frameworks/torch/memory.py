"""Which graph value a tensor of the run stands for.

Every tensor object the model sees is tracked by identity. Tensors that share a storage share a
:class:`Root` with a version; a write to any of them gives the root's base a new value and bumps the
version, and every other view derives itself anew from the base when it is next read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from anyinit._frameworks.torch.lower import Lower, V
from anyinit._frameworks.torch.trees import empty_twin
from anyinit._frameworks.torch.views import Chain, apply, strided, unview
from anyinit._graph import ops
from anyinit._graph.graph import BOOL, COMPLEX, FLOAT, INT, Leaf

LIMIT = 1 << 22
"""Largest number of entries of a constant that is computed while recording."""


def kind_of(dtype: torch.dtype) -> str:
    """The graph's name for a dtype's kind of number."""
    if dtype.is_complex:
        return COMPLEX
    if dtype.is_floating_point:
        return FLOAT
    return BOOL if dtype == torch.bool else INT


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` and the like."""
    return str(dtype).removeprefix("torch.")


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A copy as NumPy array; types NumPy lacks are widened to float32."""
    plain = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    plain = plain.resolve_conj().resolve_neg()
    if plain.dtype in (torch.bfloat16, torch.float16) or plain.dtype.itemsize == 1 and plain.is_floating_point():
        plain = plain.to(torch.float32)
    if plain.dtype == torch.complex32:
        plain = plain.to(torch.complex64)
    return plain.cpu().numpy().copy()


class DataNeededError(RuntimeError):
    """The run asks for numbers that a recording without data does not have."""


@dataclass(slots=True)
class Root:
    """One storage. ``known``: its contents depend on no input and no parameter."""

    known: bool
    base: Tracked | None = None
    version: int = 0
    protected: bool = False  # the user's own memory, which must not be written to


@dataclass(slots=True, eq=False)
class Tracked:
    """One tensor object: ``handle`` is what the model holds, ``run`` what operations are executed on
    (a meta twin when recording without data), ``real`` the contents of a known tensor."""

    handle: torch.Tensor
    run: torch.Tensor | None
    root: Root
    parent: Tracked | None = None
    chain: Chain = ()
    real: torch.Tensor | None = None
    leaf: Leaf | None = None
    value: int | None = None
    version: int = 0
    late: V | None = None  # the first value of memory made in the run


@dataclass(slots=True)
class Memory:
    """All tensors of one run. ``meta``: operations are executed without data."""

    low: Lower
    meta: bool
    named: dict[int, Leaf] = field(default_factory=dict[int, Leaf])
    tracked: dict[int, Tracked] = field(default_factory=dict[int, Tracked])
    storages: dict[int, list[Tracked]] = field(default_factory=dict[int, list[Tracked]])
    lenient: bool = False  # the model itself is without data
    copies: bool = False  # copy parameters too: the model writes into them

    # --- finding ----------------------------------------------------------------------------

    def track(self, tensor: torch.Tensor) -> Tracked:
        """The record of a tensor object, made on first sight."""
        found = self.tracked.get(id(tensor))
        return found if found is not None else self._first_sight(tensor)

    def _first_sight(self, tensor: torch.Tensor) -> Tracked:
        for other in self.storages.get(storage_key(tensor), ()):
            chain = _between(other.handle, tensor)
            if chain is not None:
                return self._alias(tensor, other, chain)
        leaf = self.named.get(id(tensor))
        if leaf is None and tensor.is_meta and tensor.numel() == 0:
            self.tracked[id(tensor)] = item = self.fresh(torch.empty_like(tensor, device="cpu"), None)
            item.run = tensor
            return item
        if leaf is None and self.meta and tensor.is_meta and not self.lenient:
            raise DataNeededError("an index or constant was made without its numbers")
        return self.source(tensor, leaf or Leaf("const", "", dtype_name(tensor.dtype)))

    def _alias(self, tensor: torch.Tensor, other: Tracked, chain: Chain) -> Tracked:
        """A tensor object that appeared without a call, on a storage seen before."""
        run = real = None
        if other.real is not None:
            real = tensor if other.real is other.handle else _apply_real(other.real, chain)
        if other.run is not None and not self.meta:
            run = tensor if other.run is other.handle else _apply_real(other.run, chain)
        return self.view(tensor, other, chain, run, real)

    def source(self, tensor: torch.Tensor, leaf: Leaf) -> Tracked:
        """Track a leaf: an input, a parameter, a buffer or a tensor made before the run."""
        state = leaf.role in ("buffer", "const") and not tensor.is_meta
        known = state and tensor.numel() <= LIMIT
        copied = known or not self.meta and (state or self.copies and leaf.role == "param")
        own = tensor.detach().clone() if copied else tensor
        root = Root(known, protected=not copied and leaf.role != "input" and not tensor.is_meta)
        run = own if not self.meta or tensor.is_meta else None
        root.base = Tracked(tensor, run, root, real=own if known else None, leaf=leaf)
        return self._keep(root.base)

    def fresh(self, handle: torch.Tensor, value: V | None) -> Tracked:
        """Track a result in memory of its own; ``value`` None: known, with the handle's contents."""
        known = value is None
        run = None if known and self.meta else handle
        root = Root(known)
        root.base = Tracked(handle, run, root, real=handle if known else None)
        root.base.late = value
        return self._keep(root.base)

    def view(self, handle: torch.Tensor, parent: Tracked, chain: Chain, run: torch.Tensor | None = None,
             real: torch.Tensor | None = None, value: V | None = None) -> Tracked:  # fmt: skip
        """Track a view of another tensor; ``value`` where its node was already added."""
        item = Tracked(handle, run, parent.root, parent, chain, real, version=-1)
        if value is not None:
            item.value, item.version = value.id, parent.root.version
        return self._keep(item)

    def _keep(self, item: Tracked) -> Tracked:
        self.tracked[id(item.handle)] = item
        self.storages.setdefault(storage_key(item.handle), []).append(item)
        return item

    def runnable(self, item: Tracked) -> torch.Tensor:
        """The tensor operations are executed on."""
        if item.run is None:
            item.run = empty_twin(item.handle) if self.meta else item.real
        assert item.run is not None
        return item.run

    def adopt(self, item: Tracked) -> torch.Tensor:
        """The runnable tensor, known as another handle of the same item."""
        run = self.runnable(item)
        self.tracked.setdefault(id(run), item)
        return run

    # --- values -----------------------------------------------------------------------------

    def handle(self, item: Tracked) -> V:
        """The value a tensor stands for now; added to the graph when it is used."""
        t = item.handle
        source = (lambda: item.real) if item.root.known else None
        return V(tuple(t.shape), kind_of(t.dtype), make=lambda: self.value(item), source=source)

    def value(self, item: Tracked) -> int:
        """The value id a tensor stands for now."""
        if item.value is None or item.version != item.root.version:
            item.value, item.version = self._derive(item), item.root.version
        return item.value

    def _derive(self, item: Tracked) -> int:
        if item.parent is not None and not item.chain:
            return self.value(item.parent)
        if item.late is not None and not item.root.known and item.root.version == 0:
            return item.late.id
        if item.root.known or item.parent is None:
            return self._leaf(item)
        return apply(self.low, self.handle(item.parent), item.chain).id

    def _leaf(self, item: Tracked) -> int:
        t = item.handle
        leaf = item.leaf or Leaf("const", "", dtype_name(t.dtype))
        if leaf.role in ("buffer", "const") and not t.is_meta:
            leaf = replace(leaf, data=to_numpy(item.real if item.real is not None else t))
        return self.low.builder.leaf(leaf, tuple(t.shape), kind_of(t.dtype))

    def write(self, item: Tracked, new: V) -> None:
        """``item`` and everything that shares its memory now hold ``new``."""
        root = item.root
        self.reveal(root)
        whole, node = new, item
        while node.parent is not None:
            whole = unview(self.low, self.handle(node.parent), node.chain, whole)
            node = node.parent
        root.version += 1
        node.value, node.version = whole.id, root.version
        item.value, item.version = new.id, root.version

    def touch(self, root: Root) -> None:
        """A known storage was changed by known numbers."""
        root.version += 1

    def reveal(self, root: Root) -> None:
        """A known storage stops being known: its contents so far become a constant of the graph."""
        if root.known:
            assert root.base is not None
            self.value(root.base)
            root.known = False
            root.version += 1
            root.base.version = root.version


def storage_key(tensor: torch.Tensor) -> int:
    """Identity of a tensor's memory; a tensor without a single one (sparse) is its own."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return id(tensor)


def _between(base: torch.Tensor, other: torch.Tensor) -> Chain | None:
    if base.dtype != other.dtype:
        return None
    offset = other.storage_offset() - base.storage_offset()
    return strided(tuple(base.shape), base.stride(), tuple(other.shape), other.stride(), offset)


def _apply_real(tensor: torch.Tensor, chain: Chain) -> torch.Tensor:
    for op in chain:
        match op:
            case ops.Permute(order):
                tensor = tensor.permute(order)
            case ops.Reshape(shape):
                tensor = tensor.view(shape)
            case _:
                raise AssertionError(f"no such step between two views of one storage: {op}")
    return tensor

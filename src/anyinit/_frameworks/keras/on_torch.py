"""Keras on PyTorch: the PyTorch recorder, with the names of Keras and its running statistics as buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from anyinit._frameworks.keras import calling
from anyinit._frameworks.keras.variables import Named, named
from anyinit._frameworks.primitives.flat import BUFFER, PARAM
from anyinit._frameworks.primitives.inputs import is_shape
from anyinit._frameworks.torch.runtime import TorchRuntime
from anyinit._graph.graph import Graph, Leaf

Array = np.ndarray[Any, Any]


def runtime(model: Any, spec: Any, forward: Callable[..., Any] | None) -> KerasTorchRuntime:
    """The runtime of a Keras model on PyTorch."""
    if callable(spec) and not hasattr(spec, "shape"):
        spec = spec()
    _build(model, spec)
    run, held = calling.runner(model, forward), places(model)

    def recorded(_: Any, batch: Any) -> Any:
        args: tuple[Any, ...] = batch if isinstance(batch, tuple) else ()
        if isinstance(batch, Mapping):
            kwargs = dict(batch)
        else:
            kwargs, args = {}, args or (batch,)
        if any(getattr(x, "is_meta", False) for x in keras.tree.flatten((args, kwargs))):
            raise TypeError("Keras moves tensors to its own device")
        with keras.StatelessScope() as scope:
            now = dict(model.named_parameters(remove_duplicate=False))
            scope.state_mapping.update((id(item.variable), now[name]) for name, item in held.items())
            return run(args, kwargs)

    return KerasTorchRuntime(held, TorchRuntime(model, _concrete(spec), recorded))


def places(model: Any) -> dict[str, Named]:
    """The variables of Keras by the names that PyTorch knows their tensors under. Keras reads its variables from
    where it keeps them, so a run on other tensors must be told of each."""
    known = {id(n.variable.value): n for n in named(model)}
    if known.keys() - {id(p) for p in model.parameters()}:
        model._track_variables()  # sublayers that were built after their model are not yet among its parameters
    own = model.named_parameters(remove_duplicate=False)
    return {name: known[id(p)] for name, p in own if id(p) in known}


def _concrete(spec: Any) -> Any:
    """Keras tensors as meta tensors of PyTorch, which stand for shape and type."""
    import torch

    def one(x: Any) -> Any:
        if isinstance(x, keras.KerasTensor):
            return torch.empty(tuple(x.shape), dtype=getattr(torch, x.dtype), device="meta")
        return x

    return keras.tree.map_structure(one, spec) if not is_shape(spec) else spec


def _build(model: Any, spec: Any) -> None:
    def symbol(x: Any) -> Any:
        if is_shape(x):
            return keras.KerasTensor(tuple(x))
        if isinstance(x, Mapping):
            return {k: symbol(v) for k, v in x.items()}
        if isinstance(x, (tuple, list)):
            return type(x)(map(symbol, x))
        dtype = str(x.dtype).removeprefix("torch.")
        return keras.KerasTensor(tuple(x.shape), dtype="float32" if dtype == "float64" else dtype)

    symbols = symbol(spec)
    kwargs = symbols if isinstance(symbols, dict) else {}
    args = () if kwargs else tuple(symbols) if isinstance(symbols, (tuple, list)) else (symbols,)

    def zeros() -> Any:
        return keras.tree.map_structure(lambda t: keras.ops.zeros(t.shape, t.dtype), (args, kwargs))

    calling.build(model, args, kwargs, zeros)


class KerasTorchRuntime:
    """The runtime of PyTorch under the names of Keras."""

    def __init__(self, held: Mapping[str, Named], inner: TorchRuntime) -> None:
        self._inner, self._graph = inner, None
        self._named = {name: n.name for name, n in held.items()}
        self._roles = {n.name: n for n in held.values()}
        self._theirs: dict[str, str] = {}
        for name, ours in self._named.items():
            self._theirs.setdefault(ours, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _ours(self, name: str) -> str:
        return self._named.get(name, name)

    def _back(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        return {self._theirs.get(n, n): v for n, v in weights.items()}

    def parameters(self) -> list[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]]:
        """Those of PyTorch that Keras calls parameters, under its names."""
        out = list[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]]()
        for name, _, shape, dtype, _ in self._inner.parameters():
            known = self._roles.get(self._ours(name))
            if known is None or known.role == PARAM:
                out.append((self._ours(name), (), shape, dtype, known is None or known.trainable))
        return out

    def record(self) -> Graph:
        """The graph with the names and roles of Keras."""
        if self._graph is None:
            graph = self._inner.record()
            unused = tuple(self._ours(n) for n in graph.unused)
            kept = tuple(n for n in unused if n not in self._roles or self._roles[n].role == PARAM)
            leaves = {i: self._leaf(leaf) for i, leaf in graph.leaves.items()}
            self._graph = replace(graph, leaves=leaves, unused=kept)
        return self._graph

    def _leaf(self, leaf: Leaf) -> Leaf:
        if leaf.role not in (PARAM, BUFFER) or leaf.name not in self._named:
            return leaf
        known = self._roles[self._ours(leaf.name)]
        return replace(leaf, name=known.name, role=known.role, aliases=(), trainable=known.role == PARAM)

    def read(self, names: Collection[str]) -> dict[str, Array]:
        """As PyTorch's."""
        found = self._inner.read([self._theirs.get(n, n) for n in names])
        return {self._ours(n): v for n, v in found.items()}

    def write(self, values: Mapping[str, Array], *, rollback: bool = True) -> None:
        """As PyTorch's."""
        self._inner.write(self._back(values), rollback=rollback)

    def run(self, weights: Mapping[str, Array], watch: Collection[int], visit: Any) -> None:
        """As PyTorch's."""
        self._inner.run(self._back(weights), watch, visit)

    def gradients(self, weights: Mapping[str, Array], seed: int | None) -> dict[str, Array]:
        """As PyTorch's."""
        found = self._inner.gradients(self._back(weights), seed)
        return {self._ours(n): v for n, v in found.items()}

    def sample_gradients(self, weights: Mapping[str, Array], seed: int, count: int) -> Iterator[dict[str, Array]]:
        """As PyTorch's."""
        for found in self._inner.sample_gradients(self._back(weights), seed, count):
            yield {self._ours(n): v for n, v in found.items()}

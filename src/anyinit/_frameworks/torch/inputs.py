"""From whatever was given as input to the arguments of one call."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anyinit._frameworks.torch import adapters
from anyinit._frameworks.torch.memory import to_numpy
from anyinit.errors import ConfigError

_REMEDY = "Pass a shape such as (32, 3, 224, 224), a batch (tensor, array, tuple, dict) or a function returning one."


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that has to be made: ``vocabulary`` is set for ids below it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    vocabulary: int | None = None

    def make(self, generator: torch.Generator, device: torch.device) -> Tensor:
        """Synthetic contents: standard normal numbers or uniform ids."""
        if self.vocabulary is not None:
            return torch.randint(0, self.vocabulary, self.shape, generator=generator).to(device, self.dtype)
        wide = torch.complex64 if self.dtype.is_complex else torch.float32
        return torch.randn(self.shape, generator=generator, dtype=wide).to(device, self.dtype)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The input of a run: a tree whose leaves are tensors of the caller or slots to fill.

    ``spread``: how the tree is passed to the model: ``args`` (a tuple, spread), ``kwargs`` (a
    mapping, spread) or ``one``. ``given``: it holds the caller's own numbers.
    """

    tree: Any
    spread: str
    given: bool
    device: torch.device

    def named(self, tree: Any = None) -> Iterator[tuple[str, Any]]:
        """Leaf names and leaves: ``input.0`` or the keyword, nested with dots."""
        tree = self.tree if tree is None else tree
        if self.spread == "kwargs":
            for key, item in tree.items():
                yield from _walk(str(key), item)
        elif self.spread == "args":
            for i, item in enumerate(tree):
                yield from _walk(f"input.{i}", item)
        else:
            yield from _walk("input.0", tree)

    def without_data(self) -> Any:
        """The tree with meta tensors."""

        def empty(leaf: Any) -> Any:
            if isinstance(leaf, Slot):
                return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")
            meta = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
            return meta.requires_grad_(leaf.requires_grad)

        return _map(self.tree, empty)

    def real(self, seed: int = 0) -> Any:
        """The tree with real tensors: copies of the caller's, synthetic where only a shape is known."""
        generator = torch.Generator().manual_seed(seed)

        def fill(leaf: Any) -> Any:
            if isinstance(leaf, Slot):
                return leaf.make(generator, self.device)
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)

        return _map(self.tree, fill)

    def as_ids(self, vocabulary: int) -> Inputs | None:
        """The same shapes filled with ids below ``vocabulary``; None unless all are made up numbers."""
        leaves = [leaf for _, leaf in self.named()]
        if not leaves or not all(isinstance(leaf, Slot) and leaf.vocabulary is None for leaf in leaves):
            return None
        return replace(self, tree=_map(self.tree, lambda leaf: Slot(leaf.shape, torch.int64, vocabulary)))

    def as_pair(self) -> Inputs | None:
        """Two samples instead of one, where only the shape of one was given."""
        leaves = [leaf for _, leaf in self.named()]
        if not leaves or not all(isinstance(leaf, Slot) and leaf.shape[:1] == (1,) for leaf in leaves):
            return None
        return replace(self, tree=_map(self.tree, lambda leaf: replace(leaf, shape=(2, *leaf.shape[1:]))))

    def as_numbers(self, dtype: torch.dtype) -> Inputs | None:
        """The same shapes filled with numbers; None unless all are made up ids."""
        leaves = [leaf for _, leaf in self.named()]
        if not leaves or not all(isinstance(leaf, Slot) and leaf.vocabulary is not None for leaf in leaves):
            return None
        return replace(self, tree=_map(self.tree, lambda leaf: Slot(leaf.shape, dtype)))

    def call(self, model: nn.Module, forward: Callable[..., Any] | None, tree: Any) -> Any:
        """One run."""
        if forward is not None:
            return forward(model, tree)
        target = adapters.callee(model)
        if self.spread == "kwargs":
            return target(**tree)
        return target(*tree) if self.spread == "args" else target(tree)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The caller's own batch by leaf name; empty when only a shape was given."""
        if not self.given:
            return {}
        return {name: to_numpy(x) for name, x in self.named() if isinstance(x, Tensor) and not x.is_meta}


def _walk(name: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, (Tensor, Slot)):
        yield name, item
    elif isinstance(item, Mapping):
        for key, part in item.items():
            yield from _walk(f"{name}.{key}", part)
    elif isinstance(item, (list, tuple)):
        for i, part in enumerate(item):
            yield from _walk(f"{name}.{i}", part)
    elif _record(item):
        for f in fields(item):
            yield from _walk(f"{name}.{f.name}", getattr(item, f.name))


def _record(item: Any) -> bool:
    """Whether it is an instance of a data class."""
    return is_dataclass(item) and not isinstance(item, type)


def _rebuilt(item: Any, fn: Callable[[Any], Any]) -> Any:
    """The same record with every field passed through ``fn``; the caller's own is left as it is."""
    twin = copy.copy(item)
    for f in fields(item):
        object.__setattr__(twin, f.name, fn(getattr(item, f.name)))
    return twin


def _map(tree: Any, fn: Callable[[Any], Any]) -> Any:
    if isinstance(tree, (Tensor, Slot)):
        return fn(tree)
    if isinstance(tree, dict):
        return type(tree)((key, _map(item, fn)) for key, item in tree.items())
    if isinstance(tree, Mapping):
        return {key: _map(item, fn) for key, item in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(item, fn) for item in tree))
    if _record(tree):
        return _rebuilt(tree, lambda item: _map(item, fn))
    return type(tree)(_map(item, fn) for item in tree) if isinstance(tree, (list, tuple)) else tree


# --- reading what was given -------------------------------------------------------------------


def parse(model: nn.Module, spec: Any, forward: Callable[..., Any] | None) -> Inputs:
    """The input of a model from ``input_spec``.

    Raises:
        ConfigError: nothing usable was given and nothing could be inferred, or the batch is empty
            or not finite.
    """
    if callable(spec) and not isinstance(spec, Tensor):
        spec = spec()
    if spec is None:
        from anyinit._frameworks.torch.infer import inferred

        spec = inferred(model)
        if spec is None and forward is not None:
            return Inputs((), "args", False, device_of(model))  # the callable has its own data
    if spec is None:
        raise ConfigError(
            "No input was given and none can be inferred from this model", value=type(model).__name__, remedy=_REMEDY
        )
    device, dtype = device_of(model), dtype_of(model)
    vocabulary = first_vocabulary(model)
    tree = _read(spec, _Make(device, dtype, vocabulary, smallest_vocabulary(model)))
    if isinstance(tree, Mapping):
        spread = "kwargs"
    else:
        spread = "args" if isinstance(tree, (tuple, list)) and not hasattr(tree, "_fields") else "one"
    if forward is None:
        tree, spread = _as_called(adapters.callee(model), tree, spread)
    given = any(isinstance(leaf, Tensor) for _, leaf in _walk("", tree))
    inputs = Inputs(tree, spread, given, device)
    if not any(True for _ in inputs.named()) and forward is None and spec != ():  # (): only to read and write
        raise ConfigError("The input holds no tensor", value=spec, remedy=_REMEDY)
    for name, leaf in inputs.named():
        _check(name, leaf)
    return inputs


def _as_called(model: nn.Module, tree: Any, spread: str) -> tuple[Any, str]:
    """How the model's own ``forward`` takes the input: a mapping it has no such keywords for is one
    argument; entries of a tuple beyond its arguments (the labels of a data set) are left out."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return tree, spread
    kinds = {p.kind for p in parameters}
    if spread == "kwargs" and inspect.Parameter.VAR_KEYWORD not in kinds:
        fits = set(tree) <= {p.name for p in parameters}
        return tree, "kwargs" if fits else "one"
    if spread == "args" and inspect.Parameter.VAR_POSITIONAL not in kinds:
        places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return tuple(tree)[: len(places)] if places else tree, spread
    return tree, spread


@dataclass(frozen=True, slots=True)
class _Make:
    """What a bare shape stands for in this model."""

    device: torch.device
    dtype: torch.dtype
    vocabulary: int | None
    smallest: int | None = None

    def slot(self, shape: tuple[int, ...]) -> Slot:
        """Ids for a model that starts with a lookup, else numbers of the model's own type."""
        return Slot(shape, torch.int64, self.vocabulary) if self.vocabulary else Slot(shape, self.dtype)

    def typed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Slot:
        """Numbers of a stated type; integers are ids of the smallest table of the model, else 0 and 1."""
        own = torch.from_numpy(np.empty(0, dtype)).dtype
        if own.is_floating_point or own.is_complex:
            return Slot(shape, own)
        return Slot(shape, own, 2 if own == torch.bool else self.smallest or 2)


def _is_shape(spec: Any) -> bool:
    whole = (int, np.integer)
    return (
        isinstance(spec, (tuple, list))
        and len(spec) > 0
        and all(isinstance(n, whole) and not isinstance(n, bool) for n in spec)
    )


def _read(spec: Any, make: _Make) -> Any:
    if isinstance(spec, Slot):
        return spec
    if isinstance(spec, torch.Size) or _is_shape(spec):
        return make.slot(tuple(int(n) for n in spec))
    if isinstance(spec, Tensor):
        if spec.is_meta and make.device.type != "meta":
            return (
                replace(make.slot(tuple(spec.shape)), dtype=spec.dtype)
                if spec.is_floating_point()
                else make.slot(tuple(spec.shape))
            )
        return spec.to(make.device)
    if isinstance(spec, (np.ndarray, np.generic)):
        tensor = torch.from_numpy(np.array(spec))
        if tensor.is_floating_point() and make.dtype.is_floating_point and tensor.dtype == torch.float64:
            tensor = tensor.to(make.dtype)  # NumPy's default type, not a choice
        return tensor.to(make.device)
    if isinstance(spec, Mapping):
        return {key: _read(item, make) for key, item in spec.items()}
    if isinstance(spec, tuple) and hasattr(spec, "_fields"):
        return type(spec)(*(_read(item, make) for item in spec))
    if isinstance(spec, (list, tuple)):
        return type(spec)(_read(item, make) for item in spec)
    if isinstance(getattr(spec, "shape", None), tuple) and isinstance(getattr(spec, "dtype", None), np.dtype):
        return make.typed(spec.shape, spec.dtype)
    if _record(spec):
        return _rebuilt(spec, lambda item: _read(item, make))
    if spec is None or isinstance(spec, (bool, int, float, str)):
        return spec
    if isinstance(spec, torch.utils.data.DataLoader):
        return _read(next(iter(spec)), make)
    raise ConfigError("The input is of a type that cannot be used", value=type(spec).__name__, remedy=_REMEDY)


def _check(name: str, leaf: Tensor | Slot) -> None:
    shape = tuple(leaf.shape)
    if any(n <= 0 for n in shape):
        raise ConfigError(f"The batch {name} is empty", value=shape, remedy="Pass at least one sample.")
    if isinstance(leaf, Tensor) and leaf.layout != torch.strided:
        raise ConfigError(
            f"The batch {name} is sparse, which cannot be recorded", value=str(leaf.layout),
            remedy="Pass batch.to_dense(), or make it sparse inside forward=.",
        )  # fmt: skip
    if isinstance(leaf, Tensor) and not leaf.is_meta and (leaf.is_floating_point() or leaf.is_complex()):
        bad = int((~torch.isfinite(leaf.detach())).sum())
        if bad:
            raise ConfigError(
                f"The batch {name} is not finite", value=f"{bad} of {leaf.numel()} entries are NaN or infinite",
                remedy="Clean the batch or pass its shape instead.",
            )  # fmt: skip


def device_of(model: nn.Module) -> torch.device:
    """Where the first parameter or buffer lives."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def dtype_of(model: nn.Module) -> torch.dtype:
    """Type of the first floating or complex parameter."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point() or tensor.is_complex():
            return tensor.dtype
    return torch.get_default_dtype()


def first_vocabulary(model: nn.Module) -> int | None:
    """Number of ids when the first weighted module of the model looks rows up, else None."""
    for module in model.modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return module.num_embeddings
        if any(True for _ in module.parameters(recurse=False)) and any(
            p.ndim > 1 for p in module.parameters(recurse=False)
        ):
            return None
    return None


def smallest_vocabulary(model: nn.Module) -> int | None:
    """Number of ids that every table of the model has, None without one."""
    tables = [m.num_embeddings for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]
    return min(tables, default=None)

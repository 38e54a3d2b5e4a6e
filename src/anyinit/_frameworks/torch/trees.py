"""Walking the arguments and results of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

Ints = int | Sequence[int]
META = torch.device("meta")
CPU = torch.device("cpu")


def many(value: Ints, n: int) -> tuple[int, ...]:
    """One number for each of ``n`` dimensions, as PyTorch reads its arguments."""
    listed = (value,) if isinstance(value, int) else tuple(value)
    return listed * n if len(listed) == 1 else listed


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


def tensors(tree: Any) -> Iterable[Tensor]:
    """Tensors among the arguments of an operation: lists, tuples and dictionaries only."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors(item)


def swap(tree: Any, tensor: Callable[[Tensor], Any], device: torch.device | None = None, force: bool = False) -> Any:
    """The arguments with every tensor replaced and, where ``device`` is given, every meta device too
    (every device, when it is meta itself). ``force`` adds a ``device`` keyword."""
    if isinstance(tree, Tensor):
        return tensor(tree)
    if type(tree) in (list, tuple):
        return type(tree)([swap(item, tensor, device) for item in tree])
    if isinstance(tree, dict):
        swapped = {name: swap(item, tensor, device) for name, item in tree.items()}
        if device is not None and (force or swapped.get("device") is not None):
            swapped["device"] = device
            swapped.pop("pin_memory", None)
        return swapped
    if isinstance(tree, torch.device) and device is not None and META in (device, tree):
        return device
    return tree


def empty_twin(tensor: Tensor) -> Tensor:
    """A meta tensor of the same geometry."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


def each(out: Any, keep: Callable[[Tensor, int, Sequence[Tensor]], Tensor]) -> Any:
    """The results with every tensor passed through ``keep`` with its position among them."""
    outs = list(tensors(out))
    count = iter(range(len(outs)))

    def walk(tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return keep(tree, next(count), outs)
        return type(tree)([walk(item) for item in tree]) if isinstance(tree, (list, tuple)) else tree

    return walk(out)

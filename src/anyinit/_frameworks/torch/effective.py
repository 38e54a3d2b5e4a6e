"""Weights that a module computes from other parameters before it uses them.

``torch.nn.utils.parametrize`` and the older hooks keep originals and derive the weight from them at
every call. The weight that is used is what counts for signals, so it stands in the graph under its
own name (``layer.weight``) as a parameter. Where the originals can be found again from any weight
(weight normalization) it is set through them. Where they cannot, but a weight grows with its original
(symmetric or masked forms), the original stands in the graph and the computation is recorded. Else
(spectral normalization, orthogonal maps) the weight is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from anyinit._frameworks.torch.guard import modules_kept


@dataclass(frozen=True, slots=True)
class Effective:
    """One computed weight: ``compute`` makes it from ``originals``, ``invert`` finds originals that
    give a wanted weight (None: it cannot be set). ``kind`` names the parametrization in words."""

    name: str
    aliases: tuple[str, ...]
    module: nn.Module
    attribute: str
    originals: tuple[nn.Parameter, ...]
    compute: Callable[..., Tensor]
    invert: Callable[[Tensor], Sequence[Tensor]] | None
    kind: str

    def value(self) -> Tensor:
        """The weight as the module would compute it now; nothing is changed by asking."""
        with torch.no_grad(), _still(self.module):
            return self.compute(*(p.detach() for p in self.originals)).clone()

    @property
    def trainable(self) -> bool:
        """Whether the weight can be set and moves in training."""
        return self.invert is not None and any(p.requires_grad for p in self.originals)


def find(model: nn.Module) -> list[Effective]:
    """Every computed weight of a model, in the order of its modules."""
    paths: dict[nn.Module, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(module, []).append(path)
    found: list[Effective] = []
    for module, names in paths.items():
        for attribute, originals, compute, invert, kind in _computed(module):
            full = tuple(f"{path}.{attribute}" if path else attribute for path in names)
            item = Effective(full[0], full[1:], module, attribute, originals, compute, invert, kind)
            if invert is not None and _inverts(item):
                found.append(item)
            elif not _scales(item):
                found.append(replace(item, invert=None))
    return found


def _computed(module: nn.Module) -> Iterator[tuple[str, tuple[nn.Parameter, ...], Any, Any, str]]:
    chains = getattr(module, "parametrizations", {}) if parametrize.is_parametrized(module) else {}
    for attribute, chain in chains.items():
        parts: Any = chain
        if parts.is_tensor:
            originals = (parts.original,)
        else:
            originals = tuple(getattr(parts, f"original{i}") for i in range(parts.ntensors))
        kind = ", ".join(type(p).__name__.strip("_") for p in parts)
        yield attribute, originals, _forward_of(list(parts)), _inverse_of(list(parts)), kind
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm):
            pair = getattr(module, hook.name + "_v"), getattr(module, hook.name + "_g")
            dim = hook.dim
            yield hook.name, pair, _weight_norm(dim), _weight_norm_inverse(dim), "WeightNorm"
        elif isinstance(hook, SpectralNorm):
            original = getattr(module, hook.name + "_orig")
            yield hook.name, (original,), _spectral(hook, module), None, "SpectralNorm"


def _forward_of(parts: list[Any]) -> Callable[..., Tensor]:
    def compute(*originals: Tensor) -> Tensor:
        out = parts[0](*originals)
        for part in parts[1:]:
            out = part(out)
        return out

    return compute


def _inverse_of(parts: list[Any]) -> Callable[[Tensor], Sequence[Tensor]] | None:
    if not all(hasattr(part, "right_inverse") for part in parts):
        return None

    def invert(weight: Tensor) -> Sequence[Tensor]:
        out: Any = weight
        for part in reversed(parts):
            out = part.right_inverse(out)
        return [out] if isinstance(out, Tensor) else list(out)

    return invert


def _weight_norm(dim: int) -> Callable[..., Tensor]:
    return lambda v, g: torch._weight_norm(v, g, dim)


def _weight_norm_inverse(dim: int) -> Callable[[Tensor], Sequence[Tensor]]:
    return lambda weight: (weight, torch.norm_except_dim(weight, 2, dim))


def _spectral(hook: SpectralNorm, module: nn.Module) -> Callable[..., Tensor]:
    return lambda _: hook.compute_weight(module, do_power_iteration=False)


def _inverts(item: Effective) -> bool:
    """Whether a weight drawn at random comes out as it was set."""
    shape = item.originals[0].shape
    generator = torch.Generator().manual_seed(0)
    assert item.invert is not None
    with torch.no_grad(), _still(item.module):
        try:
            shape = item.compute(*(p.detach() for p in item.originals)).shape
            wanted = torch.randn(shape, generator=generator).to(item.originals[0].device, item.originals[0].dtype)
            if wanted.is_meta:
                return item.kind in ("WeightNorm",)
            return torch.allclose(item.compute(*item.invert(wanted)), wanted, rtol=1e-2, atol=1e-3)
        except (RuntimeError, ValueError, NotImplementedError):
            return False


def _scales(item: Effective) -> bool:
    """Whether twice the original gives twice the weight."""
    with torch.no_grad(), _still(item.module):
        parts = [p.detach() for p in item.originals]
        if any(p.is_meta for p in parts):
            return item.kind not in ("SpectralNorm", "Orthogonal")
        try:
            once, twice = item.compute(*parts), item.compute(*(2 * p for p in parts))
        except (RuntimeError, ValueError, NotImplementedError):
            return False
        return bool(once.abs().max() > 0) and torch.allclose(twice, 2 * once, rtol=1e-2)


@contextmanager
def _still(module: nn.Module) -> Generator[None]:
    """In evaluation mode and on copies of the buffers; whatever a parametrization changes is put back."""
    buffers = [(b, b.data) for b in module.buffers()]
    with modules_kept(module):
        try:
            for m in module.modules():
                vars(m)["training"] = False
            for b, own in buffers:
                b.data = own.clone()
            yield
        finally:
            for b, own in buffers:
                b.data = own


@contextmanager
def shown(items: Sequence[Effective], tensors: Mapping[str, Tensor]) -> Generator[None]:
    """Inside, every module uses the given tensor in place of what it would compute. To be entered
    inside :func:`guard.modules_kept`, which puts attributes and hooks back."""
    if not items:
        yield
        return
    with parametrize.cached():
        for item in items:
            tensor = tensors[item.name]
            for key, hook in list(item.module._forward_pre_hooks.items()):
                if isinstance(hook, (WeightNorm, SpectralNorm)) and hook.name == item.attribute:
                    del item.module._forward_pre_hooks[key]
                    vars(item.module)[item.attribute] = tensor
            parametrize._cache[id(item.module), item.attribute] = tensor
        yield

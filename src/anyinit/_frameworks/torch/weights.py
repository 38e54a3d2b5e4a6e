"""Reading and writing parameters by name, in their own type, all or nothing."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from anyinit._frameworks.torch.memory import to_numpy
from anyinit._frameworks.torch.recording import place
from anyinit.errors import ConfigError, PlanError

Array = np.ndarray[Any, Any]


def by_name(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every name of every parameter, aliases included."""
    return dict(model.named_parameters(remove_duplicate=False))


def _found(model: nn.Module, names: Collection[str]) -> dict[str, nn.Parameter]:
    known = by_name(model)
    missing = [name for name in names if name not in known]
    if missing:
        raise PlanError("The model has no such parameter", value=missing[0], remedy="Plan again for this model.")
    return {name: known[name] for name in names}


def read(model: nn.Module, names: Collection[str]) -> dict[str, Array]:
    """Copies of parameters as NumPy arrays; half types widened to float32."""
    found = _found(model, names)
    for name, p in found.items():
        _refuse_meta(name, p, "read")
    return {name: to_numpy(p) for name, p in found.items()}


def _refuse_meta(name: str, p: torch.Tensor, verb: str) -> None:
    if p.is_meta:
        raise ConfigError(
            f"The parameter {name} is on the meta device and holds no numbers, so it cannot be {verb}",
            remedy='Give the model memory first: model.to_empty(device="cpu").',
        )


def write(model: nn.Module, values: Mapping[str, Array]) -> None:
    """Set parameters in place after checking all of them; a failure half-way restores what was written."""
    found = _found(model, values)
    ready = {name: _rounded(name, p, values[name]) for name, p in found.items()}
    saved: list[tuple[nn.Parameter, torch.Tensor]] = []
    try:
        with torch.no_grad():
            for name, p in found.items():
                saved.append((p, p.detach().clone()))
                p.copy_(ready[name])
    except BaseException:
        with torch.no_grad():
            for p, old in saved:
                p.copy_(old)
        raise


def _rounded(name: str, p: nn.Parameter, value: Array) -> torch.Tensor:
    """The array as a tensor of the parameter's type, rounded to nearest even."""
    _refuse_meta(name, p, "written")
    array = np.asarray(value)
    if array.shape != tuple(p.shape):
        raise PlanError(
            f"The value for {name} has another shape than the parameter", value=(array.shape, tuple(p.shape)),
            remedy="Plan again for this model.",
        )  # fmt: skip
    if array.dtype.kind == "c" and not p.dtype.is_complex:
        raise PlanError(f"The value for {name} is complex, the parameter is not", value=str(array.dtype))
    if not np.isfinite(array).all():
        raise PlanError(f"The value for {name} is not finite", value=name)
    tensor = torch.from_numpy(np.ascontiguousarray(array)).to(p.dtype)
    if p.dtype.is_floating_point and not bool(torch.isfinite(tensor).all()):
        raise PlanError(f"The value for {name} overflows {p.dtype}", value=float(np.abs(array).max()))
    return tensor.to(p.device)


def _laid_out(p: nn.Parameter, values: torch.Tensor) -> torch.Tensor:
    """A copy with the parameter's own strides, so that other views of its memory can be made of it."""
    out = torch.empty_strided(p.shape, p.stride(), dtype=p.dtype, device=p.device)
    return out.copy_(values)


def _plain_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    """Tensors kept as ordinary attributes of modules."""
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
                yield value


@contextmanager
def substituted(model: nn.Module, weights: Mapping[str, Array], *, all_copied: bool = False) -> Generator[None]:
    """Inside, the parameters hold ``weights`` and buffers are copies; afterwards both hold their own
    memory again, which was never written to. The parameter objects are the same throughout.
    ``all_copied``: parameters without a new value are copies too, for runs that write into them."""
    found = _found(model, weights)
    for name, p in by_name(model).items():
        _refuse_meta(name, p, "run")
    new = {place(p): _laid_out(p, p.detach()) for p in model.parameters()} if all_copied else {}
    new |= {place(p): _laid_out(p, _rounded(name, p, weights[name])) for name, p in found.items()}
    saved: list[tuple[torch.Tensor, torch.Tensor]] = []
    copies: dict[tuple[Any, ...], torch.Tensor] = {}
    try:
        for p in model.parameters():
            if place(p) in new:
                saved.append((p, p.data))
                p.data = new[place(p)].as_strided(p.shape, p.stride())
        for b in (*model.buffers(), *_plain_tensors(model)):
            key = place(b)
            saved.append((b, b.data))
            b.data = copies.setdefault(key, b.detach().clone())
        yield
    finally:
        for tensor, own in reversed(saved):
            tensor.data = own

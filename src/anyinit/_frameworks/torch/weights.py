"""Reading and writing weights by name, in their own type, all or nothing."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anyinit._frameworks.torch import effective
from anyinit._frameworks.torch.effective import Effective
from anyinit._frameworks.torch.memory import to_numpy
from anyinit._frameworks.torch.recording import place
from anyinit.errors import ConfigError, PlanError

Array = np.ndarray[Any, Any]
Weight = nn.Parameter | Effective


def by_name(model: nn.Module) -> dict[str, Weight]:
    """Every name of every parameter and computed weight, aliases included."""
    computed = effective.find(model)
    hidden = {id(p) for item in computed for p in item.originals}
    named = model.named_parameters(remove_duplicate=False)
    known: dict[str, Weight] = {name: p for name, p in named if id(p) not in hidden}
    return known | {name: item for item in computed for name in (item.name, *item.aliases)}


def _found(model: nn.Module, names: Collection[str], verb: str) -> dict[str, Weight]:
    known = by_name(model)
    missing = [name for name in names if name not in known]
    if missing:
        raise PlanError("The model has no such parameter", value=missing[0], remedy="Plan again for this model.")
    for name in names:
        _refuse_meta(name, _memory(known[name]), verb)
    return {name: known[name] for name in names}


def _memory(weight: Weight) -> nn.Parameter:
    return weight.originals[0] if isinstance(weight, Effective) else weight


def _refuse_meta(name: str, p: Tensor, verb: str) -> None:
    if p.is_meta:
        raise ConfigError(
            f"The parameter {name} is on the meta device and holds no numbers, so it cannot be {verb}",
            remedy='Give the model memory first: model.to_empty(device="cpu"); or use plan, which needs none.',
        )


def read(model: nn.Module, names: Collection[str]) -> dict[str, Array]:
    """Copies of weights as NumPy arrays; half types widened to float32."""
    found = _found(model, names, "read")
    return {name: to_numpy(w.value() if isinstance(w, Effective) else w) for name, w in found.items()}


def write(model: nn.Module, values: Mapping[str, Array], *, rollback: bool = True) -> None:
    """Set weights in place after checking all of them; a failure half-way restores what was written, unless
    ``rollback`` is off, which saves the memory of a second copy. A computed weight is set through the parameters it
    is computed from."""
    ready: list[tuple[nn.Parameter, Tensor]] = []
    for name, weight in _found(model, values, "written").items():
        ready += _targets(name, weight, values[name])
    saved = [(p, p.detach().clone()) for p, _ in ready] if rollback else []
    with torch.no_grad():
        try:
            for p, new in ready:
                p.copy_(new)
        except BaseException:
            for p, old in saved:
                p.copy_(old)
            raise


def _targets(name: str, weight: Weight, value: Array) -> list[tuple[nn.Parameter, Tensor]]:
    if not isinstance(weight, Effective):
        return [(weight, _rounded(name, weight, value))]
    if weight.invert is None:
        raise PlanError(
            f"The weight {name} is decided by its parametrization", value=weight.kind, remedy="Leave it out."
        )
    wanted = _rounded(name, weight.value(), value)
    with torch.no_grad():
        return [(p, new.reshape(p.shape)) for p, new in zip(weight.originals, weight.invert(wanted), strict=True)]


def _rounded(name: str, like: Tensor, value: Array) -> Tensor:
    """The array as a tensor of the weight's type, rounded to nearest even."""
    array = np.asarray(value)
    if array.shape != tuple(like.shape):
        raise PlanError(
            f"The value for {name} has another shape than the parameter", value=(array.shape, tuple(like.shape)),
            remedy="Plan again for this model.",
        )  # fmt: skip
    if array.dtype.kind == "c" and not like.dtype.is_complex:
        raise PlanError(f"The value for {name} is complex, the parameter is not", value=str(array.dtype))
    if not np.isfinite(array).all():
        raise PlanError(f"The value for {name} is not finite", value=name)
    tensor = torch.from_numpy(np.ascontiguousarray(array)).to(like.dtype)
    if like.dtype.is_floating_point and not bool(torch.isfinite(tensor).all()):
        raise PlanError(f"The value for {name} overflows {like.dtype}", value=float(np.abs(array).max()))
    return tensor.to(like.device)


# --- running with other weights ---------------------------------------------------------------


def _laid_out(p: Tensor, values: Tensor) -> Tensor:
    """A copy with the parameter's own strides, so that other views of its memory can be made of it."""
    return torch.empty_strided(p.shape, p.stride(), dtype=p.dtype, device=p.device).copy_(values)


def _plain_tensors(model: nn.Module) -> Iterator[Tensor]:
    """Tensors kept as ordinary attributes of modules."""
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                yield value


@contextmanager
def substituted(
    model: nn.Module, weights: Mapping[str, Array], *, all_copied: bool = False
) -> Generator[dict[str, Tensor]]:
    """Inside, the parameters hold ``weights`` and buffers are copies; afterwards both hold their own
    memory again, which was never written to. The parameter objects are the same throughout. Yields the
    weights the run uses, by name.

    ``all_copied``: parameters without a new value are copies too, for runs that write into them.
    """
    known = by_name(model)
    found = _found(model, list(known), "run")
    new = {place(p): _laid_out(p, p.detach()) for p in model.parameters()} if all_copied else {}
    for name, value in weights.items():
        weight = found.get(name)
        if weight is None:
            raise PlanError("The model has no such parameter", value=name, remedy="Plan again for this model.")
        if not isinstance(weight, Effective):
            new[place(weight)] = _laid_out(weight, _rounded(name, weight, value))
    computed = effective.find(model)
    used: dict[str, Tensor] = {}
    for item in computed:
        value = item.value()
        used[item.name] = _rounded(item.name, value, weights[item.name]) if item.name in weights else value
        used[item.name].requires_grad_(item.trainable)
    with _swapped(model, new), effective.shown(computed, used):
        yield {**{n: p for n, p in model.named_parameters() if n in known}, **used}


@contextmanager
def _swapped(model: nn.Module, new: Mapping[tuple[Any, ...], Tensor]) -> Generator[None]:
    saved: list[tuple[Tensor, Tensor]] = []
    copies: dict[tuple[Any, ...], Tensor] = {}
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

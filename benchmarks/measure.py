"""Levels and gradients of real draws, measured with hooks and autograd: nothing of the library is used to measure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import anyinit

LEAST, STANDARD_ERROR = 4, 0.1


def call(model: nn.Module, batch: Any) -> Any:
    """The model's output for a tensor, a tuple or a dictionary."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


def floats(output: Any) -> list[torch.Tensor]:
    """Every floating tensor of a nested output, each once."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    inside = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    return list({id(t): t for item in inside for t in floats(item)}.values())


def levels(model: nn.Module, batch: Any, forward: Callable[..., Any] = call) -> dict[str, float]:
    """Second moment at the output of every module that owns a ``weight``, in training mode.

    Of a table that is also the output layer only the output counts, under both names.
    """
    found: dict[str, list[float]] = defaultdict(list)

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                found[name].append(output.detach().double().square().mean().item())

        return hook

    owners = [
        (n, m)
        for n, m in model.named_modules()
        if isinstance(getattr(m, "weight", None), nn.Parameter) and not isinstance(m, torch.jit.ScriptModule)
    ]
    heads = {id(m.weight) for _, m in owners if not isinstance(m, nn.Embedding)}
    named = [(n, m) for n, m in owners if not (isinstance(m, nn.Embedding) and id(m.weight) in heads)]
    handles = [m.register_forward_hook(watch(f"{n}.weight".lstrip("."))) for n, m in named]
    try:
        with torch.set_grad_enabled(forward is not call):  # a loss may differentiate inside
            forward(model.train(), batch)
    finally:
        for handle in handles:
            handle.remove()
    return {name: sum(seen) / len(seen) for name, seen in found.items()}


def gradients(model: nn.Module, batch: Any, seed: int, forward: Callable[..., Any] = call) -> dict[str, float]:
    """Second moment of the gradient of ``sum(output * c)``, ``c`` standard normal, for every parameter.

    Empty for a model that writes over what its own backward pass needs.
    """
    generator = torch.Generator().manual_seed(seed)
    outputs = [o for o in floats(forward(model.train(), batch)) if o.requires_grad]
    if not outputs:
        return {}
    total = sum((o * torch.randn(o.shape, generator=generator)).sum() for o in outputs)
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    try:
        grads = torch.autograd.grad(total, list(named.values()), allow_unused=True)  # type: ignore[arg-type]
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return {}
    return {n: g.double().square().mean().item() for n, g in zip(named, grads, strict=True) if g is not None}


@dataclass
class Ensemble:
    """Measurements over draws, by parameter name."""

    levels: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    gradients: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def draws(self) -> int:
        """How many networks were drawn."""
        return max((len(v) for v in self.levels.values()), default=0)


def mean(values: list[float]) -> float:
    """Arithmetic mean."""
    return sum(values) / len(values)


def error_in_bits(values: list[float]) -> float:
    """Standard error of the logarithm to base 2 of the mean."""
    centre = mean(values)
    spread = math.sqrt(sum((v - centre) ** 2 for v in values) / (len(values) - 1))
    return spread / centre / math.sqrt(len(values)) / math.log(2) if centre > 0 else 0.0


def draw(model: nn.Module, batch: Any, most: int, least: int = LEAST, **options: Any) -> Ensemble:
    """Initialize and measure until every level is known to 0.1 bit, ``least`` to ``most`` times."""
    out = Ensemble()
    forward = options.get("forward", call)
    for seed in range(most):
        anyinit.initialize(model, batch, seed=seed, correct="never", **options)
        for name, level in levels(model, batch, forward).items():
            out.levels[name].append(level)
        for name, gradient in gradients(model, batch, seed, forward).items():
            out.gradients[name].append(gradient)
        if seed + 1 >= least and all(error_in_bits(v) < STANDARD_ERROR for v in out.levels.values()):
            break
    return out


def bits(predicted: float | None, measured: float) -> float:
    """Distance in bits; infinite where one is zero, negative or missing."""
    if not predicted or not measured or predicted < 0:
        return 0.0 if predicted == measured else math.inf
    return abs(math.log2(predicted / measured))

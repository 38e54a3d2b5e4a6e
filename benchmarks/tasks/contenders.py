"""Starting points: each changes a freshly built model in place.

The gain by activation is PyTorch's own recommendation where it has one (relu, tanh) and keeps a unit second moment
elsewhere; a layer that feeds no activation has gain one. Embeddings and normalizations stay as the model's author made
them, as in common practice; biases are zero. Recurrent matrices are drawn gate by gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import nn

import anyinit
from tasks.task import Task

Draw = Callable[[torch.Tensor, float], object]

CHANGES: dict[str, dict[str, object]] = {
    "independent draws": {"mirror": False},
    "normal draws": {"distribution": "normal"},
    "no biases": {"bias": "zero"},
    "whole branches": {"residual": "none"},
    "no correction": {"correct": "never"},
    "last layer x 3.2": {"gains": math.sqrt(10.0)},
}
"""What :func:`anyinit.initialize` is told otherwise, one change at a time; the gain is that of the last weight."""
LEVELS = {"relu2": 1.5, "leaky": 0.52, "sin": 0.5 * (1 - math.exp(-2.0))}  # E f(z)^2 of a standard normal z


def _gain(activation: str | None) -> float:
    if activation is None:
        return 1.0
    if activation in {"relu", "tanh"}:
        return nn.init.calculate_gain(activation)
    return 1 / math.sqrt(LEVELS[activation]) if activation in LEVELS else anyinit.gain(activation)


def _matrices(model: nn.Module) -> Iterator[tuple[torch.Tensor, float]]:
    """Every weight that a rule by layer class knows, in blocks that are drawn on their own, with its gain."""
    for layer in model.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            if layer.bias is not None:
                layer.bias.zero_()
            yield layer.weight, _gain(getattr(layer, "feeds", None))
        elif isinstance(layer, (nn.GRU, nn.LSTM)):
            for name, value in layer.named_parameters():
                if name.startswith("bias"):
                    value.zero_()
                else:
                    yield from ((gate, 1.0) for gate in value.chunk(3 if isinstance(layer, nn.GRU) else 4))


def _by_class(draw: Draw) -> Callable[[nn.Module], None]:
    def start(model: nn.Module) -> None:
        with torch.no_grad():
            for weight, gain in _matrices(model):
                draw(weight, gain)

    return start


def _he(weight: torch.Tensor, _gain: float) -> object:
    return nn.init.kaiming_normal_(weight, nonlinearity="relu")


def lsuv(model: nn.Module, batch: torch.Tensor, tolerance: float = 0.1, rounds: int = 10) -> None:
    """Layer-sequential unit variance (Mishkin & Matas 2016, algorithm 1): orthonormal weights, then every layer in
    the order of execution is divided by the spread of its own output until that is one."""
    _by_class(lambda w, _: nn.init.orthogonal_(w))(model)
    order: list[nn.Module] = []
    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    hooks = [m.register_forward_hook(lambda m, _, out: order.append(m)) for m in layers]
    with torch.no_grad():
        model(batch)
    for hook in hooks:
        hook.remove()
    for layer in dict.fromkeys(order):
        seen: list[float] = []
        hook = layer.register_forward_hook(lambda m, _, out, seen=seen: seen.append(float(out.var())))
        with torch.no_grad():
            for _ in range(rounds):
                seen.clear()
                model(batch)
                if not seen or not math.isfinite(seen[0]) or seen[0] <= 0 or abs(seen[0] - 1) < tolerance:
                    break
                layer.weight.div_(math.sqrt(seen[0]))
        hook.remove()


def first_bias(model: nn.Module) -> None:
    """Biases of the first dense layer uniform within ``1 / sqrt(fan_in)``, PyTorch's own rule; others zero."""
    layer = next((m for m in model.modules() if isinstance(m, nn.Linear)), None)
    if layer is not None and layer.bias is not None:
        bound = 1 / math.sqrt(layer.in_features)
        with torch.no_grad():
            layer.bias.uniform_(-bound, bound)


def start(name: str, task: Task, model: nn.Module, batch: torch.Tensor, seed: int) -> None:
    """Initialize ``model`` by the contender ``name``; the global generator must be seeded already."""
    if name in CHANGES:
        options = dict(CHANGES[name])
        if "gains" in options:
            last = [n for n, p in model.named_parameters() if p.ndim > 1][-1]
            options["gains"] = {last: options["gains"]}
        anyinit.initialize(model, batch, seed=seed, forward=task.forward, **options)
        return
    if name in {"anyinit", "anyinit unit"}:
        target = "auto" if name == "anyinit" else "unit"
        anyinit.initialize(model, batch, seed=seed, target=target, forward=task.forward)
    elif name == "lsuv":
        state = {k: v.clone() for k, v in model.state_dict().items() if "running" in k or "num_batches" in k}
        lsuv(model, batch)
        model.load_state_dict(state, strict=False)
    elif name != "default":
        draws: dict[str, Draw] = {
            "xavier": nn.init.xavier_normal_,
            "orthogonal": nn.init.orthogonal_,
            "orthogonal bias": nn.init.orthogonal_,
            "he": _he,
        }
        _by_class(draws[name])(model)
        if name == "orthogonal bias":
            first_bias(model)

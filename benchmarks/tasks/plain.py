"""Networks without normalization and without shortcuts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tasks.task import Task, classes, digits, entropy, feeds, rows, spread, squares, surface


class Square(nn.Module):
    """``relu(x) ** 2``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).square()


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "mish": nn.Mish, "elu": nn.ELU, "relu2": Square,
}  # fmt: skip


def mlp(sizes: tuple[int, int, int], depth: int, activation: str) -> nn.Sequential:
    """``depth`` weights in all; ``sizes``: inputs, width, outputs."""
    first, width, last = sizes
    layers: list[nn.Module] = [nn.Flatten()]
    for k in range(depth - 1):
        layers += [feeds(nn.Linear(width if k else first, width), activation), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear(width, last))


def conv(depth: int, channels: int, activation: str) -> nn.Sequential:
    """3 x 3 convolutions at full resolution, then one linear layer on the mean over positions."""
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 8))]
    for k in range(depth - 1):
        layer = nn.Conv2d(channels if k else 1, channels, 3, padding=1)
        layers += [feeds(layer, activation), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * channels, 10))


def on_surface(name: str, depth: int, activation: str, steps: int) -> Task:
    x, y = surface()
    return Task(name, lambda: mlp((2, 64, 1), depth, activation), rows(x, y, 256), squares, spread(y), steps)


def on_digits(name: str, depth: int, activation: str, steps: int) -> Task:
    x, y = digits()
    return Task(name, lambda: mlp((64, 64, 10), depth, activation), rows(x, y, 128), classes, entropy(y), steps)


def tasks() -> list[Task]:
    x, y = digits()
    return [
        on_surface("gelu 50", 50, "gelu", 200),
        on_digits("relu 30", 30, "relu", 300),
        on_surface("tanh 60", 60, "tanh", 200),
        on_digits("relu^2 6", 6, "relu2", 400),
        on_digits("mish 20", 20, "mish", 200),
        on_surface("elu 12", 12, "elu", 300),
        Task("conv 16", lambda: conv(16, 16, "relu"),
             rows(x, y, 64), classes, entropy(y), 150),
    ]  # fmt: skip

"""Functions of coordinates: a picture, and a differential equation."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from tasks.plain import mlp
from tasks.task import Batch, Task, feeds, picture, rows, spread, squares

FREQUENCY = 30.0


class Waves(nn.Module):
    """A SIREN with the initialization of its paper (Sitzmann et al. 2020) as its own default."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        sizes = [2, *[width] * (depth - 1)]
        self.layers = nn.ModuleList(feeds(nn.Linear(a, b), "sin") for a, b in pairwise(sizes))
        self.head = nn.Linear(width, 1)
        with torch.no_grad():
            for k, layer in enumerate([*self.layers, self.head]):
                fan = layer.weight.shape[1]
                bound = math.sqrt(6 / fan) / FREQUENCY if k else 1 / fan
                layer.weight.uniform_(-bound, bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sin(FREQUENCY * layer(x))
        return self.head(x)


def residual(model: Any, x: torch.Tensor) -> torch.Tensor:
    """``u'' + f`` of ``-u'' = f`` with ``u = sin(2 pi x) + sin(5 pi x) / 2``, and the two boundary values."""
    x = x.detach().requires_grad_(True)
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    force = (2 * math.pi) ** 2 * torch.sin(2 * math.pi * x) + 0.5 * (5 * math.pi) ** 2 * torch.sin(5 * math.pi * x)
    return (bend + force) / force.detach().square().mean().sqrt()


def equation(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean squared residual in units of the force, and of the boundary values."""
    ends = model(torch.tensor([[0.0], [1.0]]))
    return residual(model, batch[0]).square().mean() + 10 * ends.square().mean()


def tasks() -> list[Task]:
    x, y = picture()
    line = torch.linspace(0, 1, 512)[:, None]
    return [
        Task("siren", lambda: Waves(64, 5),
             rows(x, y, 512), squares, spread(y), 500),
        Task("pinn", lambda: mlp((1, 64, 1), 8, "tanh"),
             rows(line, line, 128), equation, 1.0, 400, forward=residual),
    ]  # fmt: skip

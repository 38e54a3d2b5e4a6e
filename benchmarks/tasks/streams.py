"""Residual streams that pass an activation, without and with normalization, and plain nets of other activations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tasks.task import Task, classes, digits, entropy, feeds, letters, rows, spread, squares, surface, windows

Function = Callable[[torch.Tensor], torch.Tensor]


class Stream(nn.Module):
    """``x <- f(x + branch)``, a branch being two layers."""

    def __init__(self, blocks: int, make: Callable[[bool], nn.Module], name: str, f: Function, head: nn.Module) -> None:
        super().__init__()
        self.f, self.stem, self.head = f, feeds(make(True), name), head
        self.inner = nn.ModuleList(feeds(make(False), name) for _ in range(blocks))
        self.outer = nn.ModuleList(make(False) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.f(self.stem(x))
        for inner, outer in zip(self.inner, self.outer, strict=True):
            x = self.f(x + outer(self.f(inner(x))))
        return self.head(x)


def dense(width: int) -> Callable[[bool], nn.Module]:
    return lambda first: nn.Linear(64 if first else width, width)


def filters(channels: int) -> Callable[[bool], nn.Module]:
    return lambda first: nn.Conv2d(1 if first else channels, channels, 3, padding=1, stride=2 if first else 1)


def plain(sizes: tuple[int, int, int], depth: int, name: str, layer: Callable[[], nn.Module]) -> nn.Sequential:
    """``depth`` weights in all; ``sizes``: inputs, width, outputs."""
    first, width, last = sizes
    layers: list[nn.Module] = []
    for k in range(depth - 1):
        layers += [feeds(nn.Linear(width if k else first, width), name), layer()]
    return nn.Sequential(*layers, nn.Linear(width, last))


class Normed(nn.Sequential):
    """Linear, LayerNorm and gelu, again and again."""

    def __init__(self, width: int, depth: int) -> None:
        layers: list[nn.Module] = []
        for k in range(depth - 1):
            layers += [feeds(nn.Linear(width if k else 64, width), "gelu"), nn.LayerNorm(width), nn.GELU()]
        super().__init__(*layers, nn.Linear(width, 10))


class Memory(nn.Module):
    """One layer of an LSTM on letters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        _, count = letters()
        self.token, self.head = nn.Embedding(count, width), nn.Linear(width, count)
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.token(x))[0])


def pooled(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def tasks() -> list[Task]:
    x, y = digits()
    points, heights = surface()
    most, wide = entropy(y), spread(heights)
    images = x[:, None] if x.ndim == 3 else x
    flat = x.flatten(1)
    text, _ = letters()
    gelu, relu = nn.functional.gelu, torch.relu
    return [
        Task("stream relu 16", lambda: Stream(16, dense(48), "relu", relu, nn.Linear(48, 10)),
             rows(flat, y, 64), classes, most, 150),
        Task("stream gelu 12", lambda: Stream(12, dense(64), "gelu", gelu, nn.Linear(64, 10)),
             rows(flat, y, 64), classes, most, 150),
        Task("stream conv 10", lambda: Stream(10, filters(16), "relu", relu, pooled(16)),
             rows(images, y, 64), classes, most, 150),
        Task("leaky 24", lambda: plain((64, 64, 10), 24, "leaky", lambda: nn.LeakyReLU(0.2)),
             rows(flat, y, 64), classes, most, 150),
        Task("silu 16", lambda: plain((2, 64, 1), 16, "silu", nn.SiLU),
             rows(points, heights, 128), squares, wide, 250),
        Task("softsign 30", lambda: plain((2, 64, 1), 30, "softsign", nn.Softsign),
             rows(points, heights, 128), squares, wide, 200),
        Task("layer norm 12", lambda: Normed(64, 12),
             rows(flat, y, 64), classes, most, 150),
        Task("lstm", lambda: Memory(96),
             windows(48, 16), classes, entropy(text), 150),
    ]  # fmt: skip

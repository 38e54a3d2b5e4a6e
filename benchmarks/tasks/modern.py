"""Residual nets, attention and recurrence."""

from __future__ import annotations

import torch
from torch import nn

from tasks.task import Task, classes, digits, entropy, feeds, letters, rows, windows


class ResidualMLP(nn.Module):
    """Residual blocks of two layers without any normalization."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Linear(64, width)
        self.inner = nn.ModuleList(feeds(nn.Linear(width, width), "silu") for _ in range(blocks))
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x.flatten(1))
        for inner, outer in zip(self.inner, self.outer, strict=True):
            x = x + outer(nn.functional.silu(inner(x)))
        return self.head(x)


class Block(nn.Module):
    """A pre-norm transformer block with packed query, key and value weights."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = feeds(nn.Linear(width, 4 * width), "gelu"), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Patches(nn.Module):
    """A vision transformer on 2 x 2 patches of the digits."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.patch = nn.Linear(4, width)
        self.position = nn.Parameter(torch.randn(16, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, 4, causal=False) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.unflatten(1, (4, 2)).unflatten(3, (4, 2)).transpose(2, 3).flatten(3).flatten(1, 2)
        return self.head(self.norm(self.blocks(self.patch(x) + self.position)).mean(1))


class Letters(nn.Module):
    """A GPT on letters."""

    def __init__(self, width: int, blocks: int, length: int) -> None:
        super().__init__()
        _, count = letters()
        self.token, self.position = nn.Embedding(count, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4, causal=True) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, count, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.position(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(self.token(x) + places)))


class Recurrent(nn.Module):
    """One recurrent layer on letters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        _, count = letters()
        self.token, self.head = nn.Embedding(count, width), nn.Linear(width, count)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.token(x))[0])


class Shortcut(nn.Module):
    """Two convolutions with batch norm around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = feeds(nn.Conv2d(channels, channels, 3, padding=1, bias=False), "relu")
        self.two = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm2(self.two(torch.relu(self.norm1(self.one(x))))))


def normed() -> nn.Sequential:
    """A small ResNet with batch norm."""
    stem = feeds(nn.Conv2d(1, 16, 3, padding=1, bias=False), "relu")
    body = (Shortcut(16) for _ in range(4))
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)), stem, nn.BatchNorm2d(16), nn.ReLU(), *body, nn.Flatten(), nn.Linear(1024, 10)
    )


def tasks() -> list[Task]:
    x, y = digits()
    text, _ = letters()
    last, most = entropy(text), entropy(y)
    return [
        Task("residual 24", lambda: ResidualMLP(64, 24),
             rows(x, y, 128), classes, most, 150),
        Task("resnet bn", normed,
             rows(x, y, 64), classes, most, 120),
        Task("vit", lambda: Patches(48, 4),
             rows(x, y, 64), classes, most, 150),
        Task("gpt", lambda: Letters(64, 3, 48),
             windows(48, 16), classes, last, 150),
        Task("gru", lambda: Recurrent(96),
             windows(48, 16), classes, last, 150),
    ]  # fmt: skip

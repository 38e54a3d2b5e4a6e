"""Shapes of vision models without torchvision: ``python benchmarks/zoo.py --file benchmarks/models_vision.py``.

A class token beside patches, rolled windows, squeeze and excite, channel shuffle, dense connections.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Build = Callable[[], tuple[nn.Module, Tensor]]


def block(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, batch normalization, ReLU."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class Attention(nn.Module):
    """Self-attention of several heads over ``(rows, tokens, width)``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    """Attention and a feed-forward part on a residual stream, over all tokens or in rolled windows."""

    def __init__(self, width: int, heads: int, window: int = 0, shift: int = 0) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + (self._windows(self.first(x)) if self.window else self.mix(self.first(x)))
        return x + self.feed(self.second(x))

    def _windows(self, x: Tensor) -> Tensor:
        b, h, w, d = x.shape
        n = self.window
        x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = x.reshape(b, h // n, n, w // n, n, d).transpose(2, 3).reshape(-1, n * n, d)
        x = self.mix(x).reshape(b, h // n, w // n, n, n, d).transpose(2, 3).reshape(b, h, w, d)
        return torch.roll(x, (self.shift, self.shift), (1, 2))


class ClassToken(nn.Module):
    """Patches behind a learned token, which alone is read out."""

    def __init__(self, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.patch, self.out = nn.Conv2d(3, width, 8, 8), nn.Linear(width, 10)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 17, width))
        self.layers = nn.Sequential(*(Layer(width, 4) for _ in range(depth)), nn.LayerNorm(width))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        joined = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1) + self.places
        return self.out(self.layers(joined)[:, 0])


class Windows(nn.Module):
    """Attention in windows, every second one rolled, patches merged between."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.low = nn.Sequential(Layer(width, 2, 4), Layer(width, 2, 4, 2))
        self.merge = nn.Sequential(nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False))
        self.high = nn.Sequential(Layer(2 * width, 4, 4), nn.LayerNorm(2 * width))
        self.out = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.low(self.patch(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return self.out(self.high(self.merge(x)).mean((1, 2)))


class Excited(nn.Module):
    """Depthwise convolutions whose channels are gated by their own means."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem, self.deep, self.last = block(3, width, stride=2), block(width, width, groups=width), block(width, 64)
        self.squeeze, self.excite, self.out = nn.Conv2d(width, 16, 1), nn.Conv2d(16, width, 1), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.deep(self.stem(x))
        x = x * torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.out(self.last(x).mean((2, 3)))


class Shuffled(nn.Module):
    """One half of the channels passes, the other is worked on, then both are interleaved."""

    def __init__(self, width: int = 48, depth: int = 3) -> None:
        super().__init__()
        half = width // 2
        self.stem, self.out = block(3, width, stride=2), nn.Linear(width, 10)
        self.steps = nn.ModuleList(nn.Sequential(block(half, half, 1), block(half, half)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for step in self.steps:
            passed, worked = x.chunk(2, 1)
            x = torch.stack([passed, step(worked)], 2).flatten(1, 2)
        return self.out(x.mean((2, 3)))


class Dense(nn.Module):
    """Every block reads all before it."""

    def __init__(self, grow: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.stem, self.out = block(3, grow), nn.Linear(grow * (depth + 1), 10)
        self.steps = nn.ModuleList(block(grow * (k + 1), grow) for k in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        found = [self.stem(x)]
        for step in self.steps:
            found.append(step(torch.cat(found, 1)))
        return self.out(torch.cat(found, 1).mean((2, 3)))


def _on_images(build: Callable[[], nn.Module]) -> Build:
    return lambda: (build(), torch.randn(8, 3, 32, 32))


ZOO: dict[str, Build] = {
    "class_token": _on_images(ClassToken),
    "windows": _on_images(Windows),
    "excited": _on_images(Excited),
    "shuffled": _on_images(Shuffled),
    "dense": _on_images(Dense),
}

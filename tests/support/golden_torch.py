"""The networks of ``golden.py`` in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from golden import Net, channels_first


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in ((16, 32), (32, 32), (32, 32), (32, 4))])

    def forward(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = F.silu(layer(x))
        return self.layers[-1](x)


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.grouped = nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=4)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.up = nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.grouped(F.relu(self.stem(x))))
        x = F.relu(self.up(F.relu(self.depthwise(x))))
        return self.head(x.mean((2, 3)))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, 16), nn.GroupNorm(4, 32)])
        self.first = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)])
        self.second = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)])
        self.widen = nn.Conv2d(16, 32, 1, stride=2)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for k in range(2):
            x = x if k == 0 else self.widen(x)
            x = x + self.second[k](F.relu(self.first[k](F.relu(self.norms[k](x)))))
        return self.head(F.relu(x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.packed = packed
        self.norms = nn.ModuleList([nn.LayerNorm(16), nn.LayerNorm(16)])
        self.qkv = nn.ModuleList([nn.Linear(16, 48)] if packed else [nn.Linear(16, 16) for _ in range(3)])
        self.out, self.up, self.down = nn.Linear(16, 16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Any) -> Any:
        h = self.norms[0](x)
        q, k, v = self.qkv[0](h).chunk(3, -1) if self.packed else (f(h) for f in self.qkv)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in (q, k, v))
        h = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(h.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.norms[1](x))))


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.cell(x)[0][:, -1])


def _run(model: Any, params: Any, x: Any) -> Any:
    with torch.no_grad():
        x = torch.from_numpy(x)
        return model(x.movedim(-1, 1) if x.ndim == 4 else x).numpy()


def net(model: type[nn.Module], shape: tuple[int, ...], **options: Any) -> Net:
    return Net(model(**options), _run, channels_first(shape))

"""The PyTorch half of the twins: what is saved for the other frameworks is what this one records.

``python tests/torch/test_twins.py`` saves the graphs anew after a deliberate change of the importer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from anyinit._frameworks.torch.runtime import open_model
from twin_graphs import FOLDER, IDS, NAMES, dump, saved


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (layer(x).view(split).transpose(1, 2) for layer in (self.q, self.k, self.v))
        logits = q / (width // self.heads) ** 0.5 @ k.transpose(-1, -2)
        seen = torch.tril(torch.ones(length, length, dtype=torch.bool))
        weights = torch.where(seen, logits, torch.tensor(-1e30)).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.attention = Attention(width, 2)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.positions = nn.Parameter(torch.zeros(16, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, ids):
        x = self.blocks(self.tokens(ids) + self.positions)
        return F.linear(self.norm(x), self.tokens.weight)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.grouped = nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=4)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(F.gelu(self.grouped(x)).mean((2, 3)))


def build(name: str) -> tuple[nn.Module, object]:
    """A network and its input."""
    torch.manual_seed(0)
    if name == "lecture":
        net = nn.Sequential(nn.Linear(1, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 1))
        return net, (20, 1)
    if name == "mlp":
        return nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(32, 32), nn.SiLU())), nn.Linear(32, 10)), (8, 32)
    return (CNN(), (4, 3, 8, 8)) if name == "cnn" else (GPT(), torch.as_tensor(IDS))


@pytest.mark.parametrize("name", NAMES)
def test_the_saved_graph_is_the_one_recorded(name):
    assert dump(open_model(*build(name)).record()) == saved(name)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in NAMES:
        (FOLDER / f"{each}.txt").write_text(dump(open_model(*build(each)).record()))

"""Levels of mirrored residual networks are predicted: measured means over draws agree, nothing corrected."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn

import anyinit


class Stream(nn.Module):
    """Blocks whose sum passes the activation, and a projection where the width changes."""

    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor], blocks: int = 4, width: int = 64) -> None:
        super().__init__()
        self.act, self.stem = act, nn.Linear(32, width)
        sizes = [width if k < 2 else 2 * width for k in range(blocks + 1)]
        self.a = nn.ModuleList(nn.Linear(m, n) for m, n in pairwise(sizes))
        self.b = nn.ModuleList(nn.Linear(n, n) for n in sizes[1:])
        self.short = nn.ModuleList(nn.Identity() if m == n else nn.Linear(m, n) for m, n in pairwise(sizes))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.stem(x))
        for a, b, short in zip(self.a, self.b, self.short, strict=True):
            x = self.act(short(x) + b(self.act(a(x))))
        return self.head(x)


@pytest.mark.parametrize("act", [torch.relu, nn.functional.gelu], ids=["relu", "gelu"])
def test_measured_levels_agree_with_theory(act: Callable[[torch.Tensor], torch.Tensor]):
    x = torch.randn(256, 32, generator=torch.Generator().manual_seed(0))
    model = Stream(act)
    seen: dict[str, list[float]] = {}
    for seed in range(5):
        report = anyinit.initialize(model, x, seed=seed, correct="never")
        for w in report.plan.weights:
            for p in w.parts:
                if p.measured is not None and p.predicted is not None:
                    seen.setdefault(w.name, []).append(p.measured / p.predicted)
    assert len(seen) == 11
    assert "mirrored" in report.explain("a.0.weight")
    for name, ratios in seen.items():
        assert statistics.fmean(ratios) == pytest.approx(1.0, abs=0.12), name

"""Gated updates: a state interpolated with a difference is the same network as one with two weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import anyinit
from anyinit._frameworks.torch.runtime import open_model
from anyinit._graph.ops import Pointwise
from anyinit._graph.rewrite import canonical


class Gated(nn.Module):
    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.new, self.gate = (nn.ModuleList(nn.Linear(64, 64) for _ in range(2)) for _ in range(2))
        self.out = nn.Linear(64, 32)
        self.spelling = spelling

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for make, weigh in zip(self.new, self.gate, strict=True):
            new, gate = torch.tanh(make(x)), torch.sigmoid(weigh(x))
            if self.spelling == "difference":
                x = new + gate * (x - new)
            elif self.spelling == "taken away":
                x = new - (new - x) * gate
            elif self.spelling == "lerp":
                x = torch.lerp(new, x, gate)
            else:
                x = (1 - gate) * new + gate * x
        return self.out(x)


SPELLINGS = ["difference", "taken away", "lerp", "weights"]


def levels(spelling: str) -> list[float]:
    torch.manual_seed(0)
    planned = anyinit.plan(Gated(spelling), torch.randn(256, 64), seed=0)
    return [p.predicted_output for w in planned.weights for p in w.parts if p.predicted_output is not None]


@pytest.mark.parametrize("spelling", SPELLINGS[:3])
def test_every_spelling_of_an_interpolation_has_the_same_plan(spelling: str):
    assert levels(spelling) == pytest.approx(levels("weights"), rel=1e-9)


def test_no_difference_is_left_in_the_graph():
    graph = canonical(open_model(Gated("difference"), (4, 64)).record())
    assert not [n for n in graph.nodes if n.op == Pointwise("sub", (None, None))]


def test_the_level_behind_a_gated_update_is_the_measured_one():
    torch.manual_seed(0)
    model, x = Gated("difference"), torch.randn(256, 64)
    (predicted,) = [
        w.parts[0].predicted_output for w in anyinit.plan(model, x, seed=0).weights if w.name == "out.weight"
    ]
    seen = []
    for seed in range(12):
        anyinit.initialize(model, x, seed=seed, correct="never")
        with torch.no_grad():
            seen.append(model(x).square().mean().item())
    assert predicted is not None
    assert abs(math.log2(predicted / (sum(seen) / len(seen)))) < 0.15

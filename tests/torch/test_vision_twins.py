"""Small twins of shapes found in vision models, predicted and drawn side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import anyinit
import measure


class Chain(nn.Module):
    """Depthwise convolutions, each followed by a norm of single channels."""

    def __init__(self, width: int = 48, depth: int = 6) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for _ in range(depth):
            steps += [nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False), nn.BatchNorm2d(width)]
            steps += [nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.stem, self.steps = nn.Conv2d(3, width, 3, padding=1), nn.Sequential(*steps)

    def forward(self, x: Tensor) -> Tensor:
        return self.steps(self.stem(x))


class Masked(nn.Module):
    """Attention of windows whose mask is a finite number and is added before the windows are merged again."""

    def __init__(self, hidden: float, width: int = 64, heads: int = 4, tokens: int = 16) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        apart = torch.arange(tokens)[:, None] // 4 != torch.arange(tokens)[None] // 4
        self.register_buffer("mask", torch.stack([torch.zeros(tokens, tokens), apart * hidden]))

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        logits = q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5
        logits = logits.view(b // 2, 2, self.heads, t, t) + self.mask[None, :, None]
        weights = logits.view(b, self.heads, t, t).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


def distances(model: nn.Module, batch: Tensor, draws: int) -> tuple[dict[str, float], dict[str, float]]:
    """Bits beyond two standard errors between prediction and mean of draws: levels, gradients."""
    report = anyinit.Report(anyinit.plan(model, batch, seed=0))
    drawn = measure.draw(model, batch, draws, draws)
    found: list[dict[str, float]] = []
    for seen, of in ((drawn.levels, "predicted_output"), (drawn.gradients, "predicted_grad")):
        known = {r.name: getattr(r, of) for r in report.layers if r.name in seen}
        found.append({
            n: max(measure.bits(p, measure.mean(seen[n])) - 2 * measure.error_in_bits(seen[n]), 0.0)
            for n, p in known.items()
        })  # fmt: skip
    return found[0], found[1]


def test_a_norm_of_single_channels_takes_back_what_their_few_weights_do_to_gradients():
    torch.manual_seed(0)
    levels, gradients = distances(Chain(), torch.randn(4, 3, 16, 16), 12)
    assert max(levels.values()) < 0.25
    assert max(gradients.values()) < 0.35


@pytest.mark.parametrize("hidden", [-100.0, -1e4])
def test_a_finite_mask_hides_what_it_masks(hidden: float):
    torch.manual_seed(0)
    levels, gradients = distances(Masked(hidden), torch.randn(8, 16, 64), 12)
    assert max(levels.values()) < 0.3
    assert max(gradients.values()) < 0.3


def test_biases_that_fall_with_distance_are_no_mask():
    from anyinit._rules.masks import _visible

    slope = -torch.arange(400.0).numpy()
    assert _visible(slope) is None
    assert _visible(-100.0 * (slope < -9)).sum() == 10


def test_a_lookup_of_nothing_is_nothing():
    from anyinit._core.field import constant
    from anyinit._core.tables import separate
    from anyinit._graph.ops import Lookup
    from anyinit._rules import FORWARD
    from anyinit._rules.base import Site

    table, ids = constant(separate((150, 5)), 1.0), constant(separate((0,)), 0.0)
    found = FORWARD[Lookup](Lookup(), (table, ids), Site(9, (0, 5)))
    assert (found.m2, found.keys) == (0, ())

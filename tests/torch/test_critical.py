"""On the edge of chaos, gradients and small distances keep their size over any depth; elsewhere they do not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import anyinit


def deep(depth: int = 60, width: int = 128) -> nn.Sequential:
    layers = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def spread(model: nn.Sequential, x: torch.Tensor) -> tuple[float, float]:
    """Gradient before the first activation over that before the last (squares); growth of a small distance."""
    model.zero_grad()
    model(x).square().sum().backward()
    first, last = (float(model[k].bias.grad.square().mean()) for k in (0, len(model) - 3))
    near = x + 1e-3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        inner = model[2:-1]
        a, b = model[:2](x), model[:2](near)
        growth = (inner(a) - inner(b)).double().square().mean() / (a - b).double().square().mean()
    return first / last, float(growth)


def test_gradients_and_distances_keep_their_size_over_sixty_layers():
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    held, loose = deep(), deep()
    anyinit.initialize(held, x, target="critical", seed=0)
    anyinit.initialize(loose, x, target="unit", seed=0)
    ratio, growth = spread(held, x)
    assert 0.5 < ratio < 2
    assert 0.5 < growth < 2
    assert abs(math.log(spread(loose, x)[0])) > math.log(10)


def test_a_refusal_leaves_the_model_as_it_was():
    model = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(16, 16), nn.Softplus())), nn.Linear(16, 2))
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(anyinit.ConfigError, match="no critical point"):
        anyinit.initialize(model, (8, 16), target="critical")
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

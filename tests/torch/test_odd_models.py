"""Models that do unusual things: predicted levels and gradients against the mean of real draws."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import anyinit
import measure


def distances(model: nn.Module, batch: Any, draws: int = 40) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Bits between prediction and mean beyond two standard errors: levels and gradients, by weight."""
    report = anyinit.Report(anyinit.plan(model, batch, seed=0))
    seen = measure.draw(model, batch, draws, draws)

    def beyond(measured: Mapping[str, list[float]], what: str) -> dict[str, float]:
        out: dict[str, float] = {}
        for record in report.layers:
            values = measured.get(record.name)
            if values:
                far = measure.bits(getattr(record, what), measure.mean(values))
                out[record.name] = max(far - 2 * measure.error_in_bits(values), 0.0)
        return out

    return beyond(seen.levels, "predicted_output"), beyond(seen.gradients, "predicted_grad")


class Bags(nn.Module):
    """Rows of a table averaged over bags, which repeat some of them, and their products."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.rows, self.product = nn.EmbeddingBag(40, 64, mode=mode), nn.Bilinear(64, 64, 24)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y = self.rows(ids)
        return self.product(y, y)


@pytest.mark.parametrize("mode", ["mean", "sum"])
def test_bags_of_rows_and_their_products_have_the_level_of_the_call_that_makes_them(mode):
    torch.manual_seed(0)
    levels, grads = distances(Bags(mode), torch.randint(0, 40, (6, 5)))
    assert set(levels) == {"rows.weight", "product.weight"}
    assert max(levels.values()) < 0.1 and max(grads.values()) < 0.2, (levels, grads)


def test_a_model_without_memory_is_planned_from_an_input_without_memory_and_drawn_once_it_has_some():
    with torch.device("meta"):
        model, batch = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8)), torch.randn(4, 16)
    plan = anyinit.plan(model, batch, seed=0)
    with pytest.raises(anyinit.ConfigError, match="meta device"):
        anyinit.initialize(model, batch, seed=0)
    anyinit.apply(plan, model.to_empty(device="cpu"))
    same = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
    anyinit.initialize(same, (4, 16), seed=0, correct="never")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))


def test_a_weight_that_its_parametrization_decides_is_listed_with_that_reason_and_is_no_finding():
    parametrizations = nn.utils.parametrizations
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(32, 32)), nn.ReLU(), parametrizations.orthogonal(nn.Linear(32, 32))
    )
    report = anyinit.initialize(model, (64, 32), seed=0)
    reasons = {u.name: u.reason for u in report.unscaled}
    assert "SpectralNorm" in reasons["0.weight"] and "Orthogonal" in reasons["2.weight"]
    assert not report.findings


class Offset(nn.Module):
    """A norm whose gain is one plus its parameter, and a decay that is minus the exponential of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.decay = nn.Parameter(torch.rand(32)), nn.Parameter(torch.arange(1.0, 33.0).log())
        self.into, self.out = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.rms_norm(self.into(x), (32,)) * (1 + self.gain)
        return self.out(y * torch.exp(-torch.exp(self.decay) * 0.1))


def test_a_gain_behind_a_function_starts_where_it_multiplies_by_one_and_a_decay_keeps_its_values():
    model = Offset()
    decay = model.decay.detach().clone()
    anyinit.initialize(model, (16, 32), seed=0)
    assert torch.equal(model.gain, torch.zeros(32)) and torch.equal(model.decay, decay)

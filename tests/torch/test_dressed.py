"""Parameters that meet other parameters before any data: norms of tables, scales of rows, masks of constants."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import anyinit


class Relative(nn.Module):
    """A normalized table projected and compared with the data: norm and bias touch parameters only."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.norm = nn.Embedding(16, 64), nn.LayerNorm(64)
        self.query, self.place = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.query(x) @ self.place(self.norm(self.places.weight)).T / 8


class RowScales(nn.Module):
    """A weight with a gain for each of its rows, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.gain = nn.Parameter(torch.randn(48, 64)), nn.Parameter(torch.randn(48, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.gain * self.weight)


class MaskedPlaces(nn.Module):
    """A learned vector in the masked places of a sequence, written with a boolean index."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.token = nn.Parameter(torch.rand(64))
        self.register_buffer("mask", torch.arange(12) % 3 == 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y[self.mask.expand(x.shape[0], -1)] = self.token
        return self.second(y)


class BiasedAttention(nn.Module):
    """Causal attention whose mask is laid over a learned bias before the logits see either."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(64, 64) for _ in range(4))
        self.bias = nn.Embedding(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        places = torch.arange(n)
        bias = self.bias((places[:, None] - places[None]).clamp(0, 7)).squeeze(-1)
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        bias = torch.where(causal, bias, torch.finfo(x.dtype).min)
        weights = (self.query(x) @ self.key(x).transpose(1, 2) / 8 + bias).softmax(-1)
        return self.out(weights @ self.value(x))


def measured(model: nn.Module, x: torch.Tensor, name: str, draws: int = 8) -> float:
    """Distance in bits of a predicted level from the mean over draws."""
    predicted = next(r for r in anyinit.Report(anyinit.plan(model, x, seed=0)).layers if r.name == name)
    seen: list[float] = []
    owner = model.get_submodule(name.rpartition(".")[0])
    owner.register_forward_hook(lambda _m, _i, out: seen.append(out.square().mean().item()))
    for seed in range(draws):
        anyinit.initialize(model, x, seed=seed, correct="never")
        with torch.no_grad():
            model(x)
    seen = seen[-draws:] if len(seen) == draws else seen[1::2]
    assert predicted.predicted_output is not None
    return abs(math.log2(predicted.predicted_output / (sum(seen) / len(seen))))


def test_norms_and_biases_of_a_table_are_gains_and_biases():
    torch.manual_seed(0)
    report = anyinit.Report(anyinit.plan(Relative(), torch.randn(32, 64), seed=0))
    roles = {r.name: r.role for r in report.parameters}
    assert (roles["norm.weight"], roles["norm.bias"], roles["place.bias"]) == ("gain", "bias", "bias")
    assert {n: r.value for n, r in zip(roles, report.parameters, strict=True)}["norm.weight"] == 1.0
    assert roles["place.weight"] == "weight"


def test_the_gain_of_a_row_starts_at_one_and_its_weight_is_solved():
    torch.manual_seed(0)
    model, x = RowScales(), torch.randn(512, 64)
    report = anyinit.initialize(model, x, seed=0)
    assert {r.name: r.role for r in report.parameters} == {"weight": "weight", "gain": "gain"}
    assert torch.equal(model.gain.detach(), torch.ones(48, 1))
    assert 0.7 < model(x).square().mean().item() < 1.4


def test_a_vector_in_masked_places_has_the_level_of_what_it_replaces():
    torch.manual_seed(0)
    model, x = MaskedPlaces(), torch.randn(8, 12, 64)
    report = anyinit.Report(anyinit.plan(model, x, seed=0))
    by_name = {r.name: r for r in report.parameters}
    assert by_name["token"].role == "token"
    assert by_name["token"].scale == pytest.approx(1.0, rel=0.02)
    assert by_name["first.weight"].predicted_output == pytest.approx(1.0, rel=1e-6)
    assert measured(model, x, "second.weight") < 0.15


def test_a_mask_laid_over_a_bias_hides_what_it_hides():
    torch.manual_seed(0)
    model, x = BiasedAttention(), torch.randn(8, 12, 64)
    assert measured(model, x, "out.weight") < 0.25

"""Eight shapes of model that nothing was prepared for: placed, accounted for, predicted over real draws."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import anyinit
import measure

MEDIAN, WORST, DRAWS = 0.10, 0.70, 16


class Hourglass(nn.Module):
    """Convolutions down and up again, joined across."""

    def __init__(self, c: int = 24) -> None:
        super().__init__()
        self.down, self.below = self._block(3, c), self._block(c, 2 * c)
        self.up, self.across, self.out = nn.ConvTranspose2d(2 * c, c, 2, 2), self._block(2 * c, c), nn.Conv2d(c, 8, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        high = self.down(x)
        low = self.up(self.below(F.avg_pool2d(high, 2)))
        return self.out(self.across(torch.cat([low, high], 1)))


class Waves(nn.Module):
    """Dilated gated convolutions with residual and skip sums."""

    def __init__(self, c: int = 48, layers: int = 4) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(8, c, 1), nn.Conv1d(c, 16, 1)
        self.gated = nn.ModuleList(nn.Conv1d(c, 2 * c, 2, dilation=2**k) for k in range(layers))
        self.back = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for k, (gated, back) in enumerate(zip(self.gated, self.back, strict=True)):
            a, b = gated(F.pad(h, (2**k, 0))).chunk(2, 1)
            h = h + back(torch.tanh(a) * torch.sigmoid(b))
        return self.last(h)


class Highway(nn.Module):
    """Layers that decide how much of themselves to let through."""

    def __init__(self, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.make = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.gate = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 16)

    def forward(self, x: Tensor) -> Tensor:
        for make, gate in zip(self.make, self.gate, strict=True):
            x = torch.lerp(x, F.relu(make(x)), torch.sigmoid(gate(x) - 1))
        return self.out(x)


class Weaver(nn.Module):
    """A network that makes the weights of a layer of another."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32 * 32))
        self.into, self.out = nn.Linear(24, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        made = self.maker(z).view(-1, 32, 32)
        return self.out(F.relu(torch.bmm(made, torch.tanh(self.into(x))[..., None]).squeeze(-1)))


class Places(nn.Module):
    """Logits against a normalized table of relative places."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(24, 64), nn.LayerNorm(64)
        self.query, self.place, self.value = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(24, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.value((self.query(x) @ self.place(self.norm(self.table.weight)).T / 8).relu())


class Causal(nn.Module):
    """One block of attention and a gated unit over tokens, all weights bare parameters."""

    def __init__(self, d: int = 64) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(200, d), nn.Linear(d, 200)
        self.qkv, self.merge = nn.Parameter(torch.empty(d, 3, 4, d // 4)), nn.Parameter(torch.empty(4, d // 4, d))
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in ((d, 2 * d), (d, 2 * d), (2 * d, d)))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        q, k, v = torch.einsum("bti,ijhd->jbhtd", self._norm(x), self.qkv)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + torch.einsum("bhtd,hdo->bto", mixed, self.merge)
        y = self._norm(x)
        return self.out(self._norm(x + self.down(F.silu(self.gate(y)) * self.up(y))))

    @staticmethod
    def _norm(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Triplets(nn.Module):
    """One encoder for three inputs that are compared."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, a: Tensor, p: Tensor, n: Tensor) -> Tensor:
        a, p, n = (F.normalize(self.encoder(v), dim=-1) for v in (a, p, n))
        return (a - p).square().sum(-1) - (a - n).square().sum(-1)


class Filled(nn.Module):
    """A learned vector in the masked places of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(48, 64), nn.Linear(64, 32)
        self.token = nn.Parameter(torch.empty(64))
        self.register_buffer("mask", torch.arange(12) % 3 == 0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y[self.mask.expand(x.shape[0], -1)] = self.token
        return self.second(F.gelu(y))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


MODELS = {
    "hourglass": (Hourglass, normal(4, 3, 16, 16)),
    "waves": (Waves, normal(4, 8, 64)),
    "highway": (Highway, normal(128, 128)),
    "weaver": (Weaver, (normal(64, 24), normal(64, 32).flip(1))),
    "places": (Places, normal(64, 64)),
    "causal": (Causal, torch.randint(0, 200, (8, 16), generator=torch.Generator().manual_seed(0))),
    "triplets": (Triplets, (normal(64, 32), normal(64, 32).flip(0), normal(64, 32).flip(1))),
    "filled": (Filled, normal(16, 12, 48)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_nobody_prepared_is_placed_and_predicted(name: str, monkeypatch: pytest.MonkeyPatch):
    build, batch = MODELS[name]
    torch.manual_seed(0)
    model = build()
    report = anyinit.Report(anyinit.plan(model, batch, seed=0))
    assert report.opaque == ()
    assert report.unscaled == ()
    assert {r.name for r in report.parameters} == {n for n, _ in model.named_parameters()}
    assert report.counts["scalars"]["total"] == sum(p.numel() for p in model.parameters())
    monkeypatch.setattr(measure, "STANDARD_ERROR", 0.05)  # bits; most models are known to it after four draws
    ensemble = measure.draw(model, batch, most=DRAWS)
    predicted = {r.name: r.predicted_output for r in report.layers}
    distances = {n: measure.bits(predicted[n], measure.mean(v)) for n, v in ensemble.levels.items() if n in predicted}
    assert len(distances) >= 2
    assert statistics.median(distances.values()) <= MEDIAN, distances
    assert max(distances.values()) <= WORST, distances

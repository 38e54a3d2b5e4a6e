"""Models that do unusual things: predicted levels and gradients against the mean of real draws."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    plan = anyinit.plan(model, batch, seed=0)
    report, seen = anyinit.Report(plan), measure.Ensemble()
    for seed in range(draws):
        anyinit.apply(replace(plan, seed=seed), model, batch)
        for name, level in measure.levels(model, batch).items():
            seen.levels[name].append(level)
        for name, gradient in measure.gradients(model, batch, seed).items():
            seen.gradients[name].append(gradient)

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


class Scan(nn.Module):
    """Steps of a recurrence whose inputs are the states of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.lower, self.upper, self.out = nn.GRUCell(16, 24), nn.GRUCell(24, 24), nn.Linear(24, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = high = x.new_zeros(x.shape[0], 24)
        for t in range(x.shape[1]):
            low = self.lower(x[:, t], low)
            high = self.upper(low, high)
        return self.out(high)


class Selective(nn.Module):
    """A state-space scan: decay, input and output of every step are made of the step itself."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.step = nn.Linear(16, 32), nn.Linear(32, 32)
        self.write, self.read, self.out = nn.Linear(32, 4), nn.Linear(32, 4), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = nn.functional.silu(self.into(x))
        dt, b, c = nn.functional.softplus(self.step(u)), self.write(u), self.read(u)
        h, ys = u.new_zeros(x.shape[0], 32, 4), []
        for t in range(x.shape[1]):
            h = torch.exp(-dt[:, t])[..., None] * h + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
            ys.append((h * c[:, t, None]).sum(-1))
        return self.out(torch.stack(ys, 1))


@pytest.mark.parametrize("build", [Scan, Selective])
def test_states_that_theory_takes_as_independent_are_simulated_and_the_plan_says_so(build):
    torch.manual_seed(0)
    model, batch = build(), torch.randn(8, 6, 16)
    plan = anyinit.plan(model, batch, seed=0)
    assert any("simulated draws" in text for text in plan.assumptions)
    levels, grads = distances(model, batch)
    assert max(levels.values()) < 0.15 and sorted(grads.values())[len(grads) // 2] < 0.1, (levels, grads)


def test_a_plan_with_simulated_levels_is_the_same_for_another_seed_but_for_its_draws():
    torch.manual_seed(0)
    model, batch = Scan(), torch.randn(4, 3, 16)
    one, two = (anyinit.plan(model, batch, seed=k) for k in (0, 1))
    assert [w.parts for w in one.weights] == [w.parts for w in two.weights]


def test_a_plain_network_is_not_simulated():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    assert not any("simulated" in text for text in anyinit.plan(model, (8, 16), seed=0).assumptions)


class Memory(nn.Module):
    """Rows that are looked at by direction and read; what is read steps through one layer three times."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.key, self.step = nn.Parameter(torch.randn(12, 32)), nn.Linear(16, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = nn.functional.cosine_similarity(self.key(x)[:, None], self.rows.expand(x.shape[0], -1, -1), -1)
        y = torch.softmax(4 * near, -1) @ self.rows
        for _ in range(3):
            y = y + torch.tanh(self.step(y))
        return y


def test_directions_of_a_memory_keep_their_values_and_are_no_gains():
    torch.manual_seed(0)
    model = Memory()
    anyinit.initialize(model, torch.randn(8, 16), seed=0)
    assert float(model.rows.detach().std(0).min()) > 0.1


def test_a_level_of_a_weight_that_is_applied_again_is_the_mean_over_its_applications():
    torch.manual_seed(0)
    model, batch = Memory(), torch.randn(32, 16)
    levels, _ = distances(model, batch)
    assert levels["step.weight"] < 0.1
    report = anyinit.initialize(model, batch, seed=3, correct="never")
    record = next(r for r in report.layers if r.name == "step.weight")
    assert record.measured_output == pytest.approx(measure.levels(model, batch)["step.weight"], rel=1e-4)


class Experts(nn.Module):
    """Every expert sees everything; a mask of the best choice decides who is heard."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.out = nn.Linear(32, 4), nn.Linear(32, 16)
        self.experts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share, chosen = torch.softmax(self.gate(x), -1).topk(1, -1)
        heard = [e(x) * (share * (chosen == k)).sum(-1, keepdim=True) for k, e in enumerate(self.experts)]
        return self.out(torch.stack(heard).sum(0))


def test_experts_chosen_by_masks_of_indices_have_levels_and_gradients():
    torch.manual_seed(0)
    levels, grads = distances(Experts(), torch.randn(64, 32))
    assert max(levels.values()) < 0.3, levels
    assert max(far for name, far in grads.items() if name != "gate.weight") < 0.3, grads
    assert grads["gate.weight"] < 1.2  # the gate's own gradient is found only roughly


def test_gradients_of_a_single_number_are_simulated():
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return (self.net(a) - self.net(b)).pow(2).mean()

    torch.manual_seed(0)
    levels, grads = distances(Loss(), (torch.randn(16, 16), torch.randn(16, 16)))
    assert max(levels.values()) < 0.1 and max(grads.values()) < 0.2, (levels, grads)


@dataclass
class Record:
    """A batch with names."""

    image: torch.Tensor
    more: list[dict[str, torch.Tensor]]
    scale: float = 2.0


class Recorded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, batch: Record) -> Record:
        return Record(self.one(batch.image) * batch.scale, [{"z": self.two(batch.more[0]["y"])}])


def test_data_classes_go_in_and_out():
    batch = Record(torch.randn(8, 16), [{"y": torch.randn(8, 16)}])
    report = anyinit.initialize(Recorded(), batch, seed=0)
    assert report.counts["tensors"]["drawn"] == 2 and not report.unscaled
    assert all(r.measured_output is not None and r.predicted_grad for r in report.layers)


def test_a_lazy_model_whose_run_fails_stays_lazy():
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LazyLinear(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError(f"no such thing as {self.layer(x).shape}")

    model = Broken()
    with pytest.raises(anyinit.TraceError, match="no such thing"):
        anyinit.initialize(model, torch.randn(2, 3))
    assert isinstance(model.layer, nn.LazyLinear)
    assert isinstance(model.layer.weight, nn.parameter.UninitializedParameter)


def test_a_distribution_may_be_chosen_by_role():
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 4))
    chosen = {"table": "uniform", "weight": "orthogonal"}
    report = anyinit.initialize(model, torch.randint(0, 50, (4, 5)), seed=0, distribution=chosen)
    kinds = {w.name: w.parts[0].draw.distribution for w in report.plan.weights}
    assert kinds["0.weight"] == "uniform" and kinds["1.weight"] == "orthogonal"
    assert float(model[0].weight.detach().abs().max()) <= 3**0.5 + 1e-6
    with pytest.raises(anyinit.ConfigError, match="role"):
        anyinit.plan(model, torch.randint(0, 50, (4, 5)), distribution={"tables": "uniform"})

"""Diagnosis: every planted fault is found where it was planted, sound models have none, and nothing is changed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.faults import DEPTH, FAULTS, Fault, batch, sound
from torch import nn

import anyinit
from anyinit.errors import ConfigError, UnhealthyError

ACTIVATION = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


class Stack(nn.Module):
    def __init__(self, arrays: dict[str, np.ndarray], activation: str) -> None:
        super().__init__()
        for name, array in arrays.items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(array.copy())))
        self.activation = ACTIVATION[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k in range(DEPTH):
            x = nn.functional.linear(x, getattr(self, f"w{k}"), getattr(self, f"b{k}"))
            x = self.activation(x) if k < DEPTH - 1 else x
        return x


def diagnosed(fault: Fault, *, planted: bool) -> anyinit.Diagnosis:
    rng = np.random.default_rng(0)
    arrays = sound(rng)
    x, y = map(torch.from_numpy, batch(rng))
    if planted:
        fault.plant(arrays)
    loss = (lambda m, b: nn.functional.cross_entropy(m(b), y)) if fault.loss else None
    optimizer = fault.optimizer if planted else ("adam", 1e-3)
    return anyinit.diagnose(Stack(arrays, fault.activation), x, loss, optimizer=optimizer)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_planted_fault_is_found_where_it_was_planted(fault: Fault):
    found = diagnosed(fault, planted=True)
    assert [t for t in found.findings if t.kind == fault.kind and fault.where in t.where], str(found)


@pytest.mark.parametrize("activation", ACTIVATION)
def test_the_same_network_without_a_fault_has_no_finding(activation: str):
    fault = next(f for f in FAULTS if f.activation == activation and f.loss)
    assert diagnosed(fault, planted=False).findings == ()


def test_at_least_25_faults_are_planted_as_many_as_the_page_says_and_every_one_names_a_remedy():
    page = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
    assert len(FAULTS) >= 25
    assert f"plants {len(FAULTS)} faults" in page
    for t in diagnosed(FAULTS[0], planted=True).findings:
        assert t.why.endswith(".")
        assert t.remedy.endswith(".")


def test_towers_and_unused_layers_are_found_by_name():
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.spare = (
                nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)) for _ in range(3)
            )
            self.b.load_state_dict(self.a.state_dict())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) + self.b(x)

    found = anyinit.diagnose(Towers(), torch.randn(16, 8))
    assert ("a.0.weight", "b.0.weight") in [t.where for t in found.findings if t.kind == "clones"]
    assert set(found.facts.unused) == {f"spare.{i}.{n}" for i in (0, 2) for n in ("weight", "bias")}


class Attention(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
        anyinit.initialize(self, (8, 12, 32), forward=lambda m, x: m(x), seed=0)
        with torch.no_grad():
            self.q.weight *= scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) / 32**0.5, -1) @ self.v(x)


def test_saturated_attention_is_found_and_sound_attention_is_not():
    x = torch.randn(8, 12, 32, generator=torch.Generator().manual_seed(1))
    assert anyinit.diagnose(Attention(1), x).healthy
    assert "attention saturated" in [t.kind for t in anyinit.diagnose(Attention(300), x).findings]


class Averaged(nn.Module):
    """Attention whose queries are all zero sees every token alike, and no path leads around it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(0)
        self.out = nn.Linear(32, 32)
        nn.init.zeros_(self.attention.q.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.attention(x))


def test_tokens_that_attention_averages_away_are_found():
    x = torch.randn(8, 12, 32, generator=torch.Generator().manual_seed(1))
    found = {t.kind: t.where for t in anyinit.diagnose(Averaged(), x).findings}
    assert found["tokens alike"] == ("out.weight",)


class Causal(Attention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.q(x) @ self.k(x).transpose(1, 2) / 32**0.5
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return torch.softmax(logits.masked_fill(hidden, -torch.inf), -1) @ self.v(x)


def test_a_query_that_may_see_one_key_only_says_nothing_and_one_whose_others_underflow_does():
    x = torch.randn(8, 12, 32, generator=torch.Generator().manual_seed(1))
    (_, sound), (_, hot) = (anyinit.diagnose(Causal(s), x).facts.attention[0] for s in (1, 1e5))
    assert sound > 0.7
    assert hot < 1e-3


def test_a_root_at_zero_is_found_in_the_gradient():
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc = nn.Linear(8, 8, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sqrt(self.fc(x).square())

    x = torch.randn(16, 8)
    x[3] = 0
    found = anyinit.diagnose(Root(), x)
    assert [t.kind for t in found.findings] == ["gradient not finite"]


@pytest.mark.parametrize(
    ("activation", "gated"),
    [(nn.ReLU(), True), (lambda x: torch.clamp(x, min=0), True), (nn.GELU(), False), (nn.Tanh(), False)],
)
def test_whether_units_can_switch_off_is_read_from_the_function_and_not_from_its_name(activation: Any, gated: bool):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 4)
            nn.init.constant_(self.a.bias, 20.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(activation(self.a(x)))

    found = anyinit.diagnose(Net(), torch.randn(16, 8))
    assert ("always on" in [t.kind for t in found.findings]) == gated
    assert (found.facts.layers[0].always_on is not None) == gated


@pytest.mark.parametrize("activation", [torch.sin, torch.cos, nn.SiLU(), nn.GELU()])
def test_only_a_function_that_levels_off_on_both_sides_saturates(activation: Any):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(activation(self.a(x)))

    assert anyinit.diagnose(Net(), torch.randn(16, 8)).facts.layers[0].saturated is None


class Gated(nn.Module):
    """A squeeze-and-excite gate is nearly the same for all samples; what it multiplies is not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.gate, self.out = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 8)
        with torch.no_grad():
            self.gate.weight *= 1e-3
            self.gate.bias.fill_(2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.fc(x))
        return self.out(h * torch.sigmoid(self.gate(h)))


def test_a_gate_that_is_the_same_for_all_samples_is_no_fault():
    found = anyinit.diagnose(Gated(), torch.randn(16, 64))
    assert found.facts.layers[1].spread is not None
    assert found.facts.layers[1].spread < 1e-4
    assert found.healthy


@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_a_branch_that_chance_switched_off_in_this_run_is_not_called_without_gradient(kept: float):
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.branch, self.out = nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            noise = torch.empty(1, 1).bernoulli_(kept) / 0.8
            return self.out(x + self.branch(x) * noise)

    found = anyinit.diagnose(Dropped(), torch.randn(16, 16))
    assert found.facts.weights[0].gradient_zeros == 1 - kept
    assert found.healthy


def test_a_head_that_starts_at_zero_forgets_nothing():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    nn.init.zeros_(net[2].weight)
    nn.init.zeros_(net[2].bias)
    assert anyinit.diagnose(net, torch.randn(16, 8)).healthy


def test_a_model_without_memory_is_refused_with_the_next_step():
    with torch.device("meta"):
        net = nn.Linear(4, 4)
    with pytest.raises(ConfigError, match="to_empty"):
        anyinit.diagnose(net, (8, 4))


def test_a_shape_stands_for_synthetic_samples():
    assert anyinit.diagnose(nn.Linear(8, 4), (16, 8)).facts.samples == 16


def test_the_healthy_values_beside_the_lines_on_the_page_are_those_of_unit_gaussians():
    rng = np.random.default_rng(0)
    page = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
    logits = rng.standard_normal((20000, 16))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert 0.845 < -np.mean(np.sum(p * np.log(p), axis=1)) / np.log(16) < 0.855
    assert "unit logits over 16 keys have 85 %" in page
    edge = np.arctanh(np.sqrt(1 - 0.05))
    assert round(100 * math.erfc(edge / math.sqrt(2))) == 3
    assert "a unit Gaussian into tanh has 3 %" in page
    cost = [np.mean(np.log(np.mean(np.exp(s * rng.standard_normal((2000, 1000))), axis=1))) for s in (1, 2)]
    assert cost == pytest.approx([0.5, 2.0], abs=0.1)
    assert "unit logits cost 0.5, a level of 4 costs 2" in page


def test_a_deep_stock_tanh_net_vanishes_and_the_default_call_keeps_it_sound():
    torch.manual_seed(0)
    net = nn.Sequential(*[m for _ in range(60) for m in (nn.Linear(64, 64), nn.Tanh())])
    x = torch.randn(64, 64)
    assert {t.kind for t in anyinit.diagnose(net, x).findings} & {"inputs forgotten", "vanishing gradient"}
    anyinit.initialize(net, x, seed=0)
    assert anyinit.diagnose(net, x).healthy


def test_a_branch_that_starts_at_zero_on_purpose_is_no_fault():
    class LowRank(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.base, self.down, self.up = (
                nn.Linear(32, 32),
                nn.Linear(32, 4, bias=False),
                nn.Linear(4, 32, bias=False),
            )
            nn.init.zeros_(self.up.weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.up(self.down(x))

    assert anyinit.diagnose(LowRank(), torch.randn(16, 32)).findings == ()


def test_the_model_its_buffers_and_the_random_state_are_unchanged():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.LazyLinear(5))
    net(torch.randn(4, 3, 8, 8))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state, x = torch.random.get_rng_state(), torch.ones(4, 3, 8, 8).normal_(generator=torch.Generator().manual_seed(0))
    anyinit.diagnose(net, x, lambda m, b: m(b).square().mean())
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(p.grad is None for p in net.parameters())
    assert net.training


def test_the_first_step_of_sgd_is_the_gradient_times_the_rate():
    torch.manual_seed(0)
    net, x = nn.Linear(6, 3), torch.randn(10, 6)
    found = anyinit.diagnose(net, x, lambda m, b: m(b).square().mean(), optimizer=("sgd", 0.1))
    net(x).square().mean().backward()
    (weight,) = [w for w in found.facts.weights if w.name == "weight"]
    expected = 0.1 * float(net.weight.grad.square().mean().sqrt() / net.weight.detach().square().mean().sqrt())
    assert weight.update == pytest.approx(expected, rel=1e-5)
    assert weight.gradient == pytest.approx(float(net.weight.grad.square().mean()), rel=1e-5)
    assert sum(weight.counts) == 18


def test_a_diagnosis_is_text_html_data_and_a_picture():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict({"<b>": nn.Linear(4, 4)})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers["<b>"](x)

    found = anyinit.diagnose(Odd(), torch.randn(8, 4))
    assert "layers.&lt;b&gt;" in found._repr_html_()
    assert "<b>.weight" in str(found)
    assert found.to_dict()["findings"] == []
    figure, axes = found.plot()
    assert [a.get_xlabel() for a in axes] == ["gradient / rms"] * 2
    assert set(found.histograms()["counts"]) == {"layers.<b>.weight", "layers.<b>.bias"}
    found.assert_healthy()
    with pytest.raises(UnhealthyError, match="zero weights"):
        diagnosed(FAULTS[0], planted=True).assert_healthy()
    assert figure.axes


def test_bad_arguments_are_refused_by_name():
    net, x = nn.Linear(4, 4), torch.randn(8, 4)
    with pytest.raises(ConfigError, match="optimizer"):
        anyinit.diagnose(net, x, optimizer="adam")
    with pytest.raises(ConfigError, match="loss is not callable"):
        anyinit.diagnose(net, x, loss=3)
    with pytest.raises(ConfigError, match="one number"):
        anyinit.diagnose(net, x, lambda m, b: m(b))

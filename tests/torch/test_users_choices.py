"""What the caller decides wins: biases, constants, scales, parameters left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import anyinit
from anyinit._solve.plan import BY_REQUEST


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 8))


def run(model: nn.Module, shape: Any = (32, 64), **options: Any) -> tuple[set[str], anyinit.Report]:
    """Names of the parameters that changed, and the report."""
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    report = anyinit.initialize(model, shape, seed=0, **options)
    return {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}, report


WEIGHTS = {"0.weight", "2.weight", "4.weight"}
BIASES = {"0.bias", "2.bias", "4.bias"}


def test_biases_are_kept_on_request_and_enter_the_prediction():
    model = net()
    with torch.no_grad():
        model[0].bias.fill_(0.75)
    changed, report = run(model, bias="keep")
    assert changed == WEIGHTS
    assert {n for n, reason in report.plan.unscaled if reason.startswith(BY_REQUEST)} == BIASES
    first = next(w for w in report.plan.weights if w.name == "0.weight").parts[0]
    assert first.predicted == pytest.approx(1.0, rel=1e-6)
    x = torch.randn(2000, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert model[1](model[0](x)).square().mean().item() == pytest.approx(1.0, rel=0.15)
    report.assert_healthy()


def test_no_bias_is_drawn_where_zeros_are_asked_for():
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    run(model, (32, 2))
    assert model[0].bias.abs().min().item() > 0
    run(model, (32, 2), bias="zero")
    assert not any(layer.bias.any() for layer in model if isinstance(layer, nn.Linear))


def test_constants_and_scales_of_any_parameter_can_be_given():
    model = net()
    chosen = {"0.bias": {"value": 0.25}, "2.bias": {"std": 0.1}, "2.weight": {"std": 0.01}, "4.weight": {"value": 0}}
    _, report = run(model, overrides=chosen)
    assert torch.equal(model[0].bias, torch.full((96,), 0.25))
    assert model[2].bias.std().item() == pytest.approx(0.1, rel=0.2)
    assert model[2].weight.std().item() == pytest.approx(0.01, rel=0.03)
    assert not model[4].weight.any()
    assert report.plan.unscaled == ()
    draws = {w.name: w.parts[0].draw for w in report.plan.weights}
    assert (draws["0.bias"].distribution, draws["0.bias"].value) == ("constant", 0.25)
    again = net()
    anyinit.apply(anyinit.Plan.from_json(report.plan.to_json()), again)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


def test_a_mean_and_a_deviation_make_a_draw_about_the_mean():
    model = net()
    run(model, overrides={"4.weight": {"std": 0.1, "value": 0.5, "distribution": "uniform"}})
    weight = model[4].weight.detach()
    assert weight.mean().item() == pytest.approx(0.5, abs=0.02)
    assert weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert (weight - 0.5).abs().max().item() <= 0.1 * 3**0.5 * 1.0001


def test_a_table_takes_its_scale_distribution_and_gain():
    def table(**options: Any) -> torch.Tensor:
        model = nn.Sequential(nn.Embedding(200, 32), nn.Linear(32, 4))
        run(model, torch.arange(8), **options)
        return model[0].weight.detach()

    assert table().std().item() == pytest.approx(1.0, rel=0.05)
    assert table(gains={"0": 3.0}).std().item() == pytest.approx(3.0, rel=0.05)
    assert table(overrides={"0.weight": {"std": 0.02}}).std().item() == pytest.approx(0.02, rel=0.05)
    even = table(overrides={"0.weight": {"distribution": "uniform"}})
    assert even.abs().max().item() <= 3**0.5 * 1.0001 and even.std().item() == pytest.approx(1.0, rel=0.05)


def test_a_gain_multiplies_the_solved_scale():
    plain, doubled = net(), net()
    run(plain, target="unit", correct=False)
    run(doubled, target="unit", correct=False, gains={"4": 2.0})
    torch.testing.assert_close(doubled[4].weight, 2 * plain[4].weight)
    assert torch.equal(doubled[0].weight, plain[0].weight)


LEFT: dict[str, tuple[Callable[[nn.Sequential], dict[str, Any]], set[str]]] = {
    "a name": (lambda m: {"skip": "2.weight"}, {"2.weight"}),
    "a pattern": (lambda m: {"skip": "*.bias"}, BIASES),
    "a path": (lambda m: {"only": "0"}, {"2.weight", "2.bias", "4.weight", "4.bias"}),
    "a module": (lambda m: {"skip": m[2]}, {"2.weight", "2.bias"}),
    "modules in a list": (lambda m: {"only": [m[2], m[4]]}, {"0.weight", "0.bias"}),
    "a predicate": (lambda m: {"only": lambda name: name.endswith("weight")}, BIASES),
    "a module and a predicate": (lambda m: {"skip": [m[0], lambda n: n == "4.bias"]}, {"0.weight", "0.bias", "4.bias"}),
    "the whole model": (lambda m: {"only": m}, set()),
    "an override": (lambda m: {"overrides": {"2.*": {"distribution": "keep"}}}, {"2.weight", "2.bias"}),
}


@pytest.mark.parametrize("case", LEFT)
def test_parameters_are_left_alone_by(case: str):
    options, expected = LEFT[case]
    model = net()
    changed, report = run(model, **options(model))
    assert changed == (WEIGHTS | BIASES) - expected
    assert {name for name, _ in report.plan.unscaled} == expected
    assert all(reason.startswith(BY_REQUEST) for _, reason in report.plan.unscaled)
    report.assert_healthy()


class Scaled(nn.Module):
    """A residual branch behind a scalar that starts at zero, and logits times a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.rezero = nn.Linear(48, 48), nn.Parameter(torch.zeros(()))
        self.head, self.logit_scale = nn.Linear(48, 10), nn.Parameter(torch.tensor(2.6592))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.rezero * torch.relu(self.inner(x))
        return self.logit_scale.exp() * self.head(x)


def test_scalar_multipliers_keep_their_value_and_are_no_failure():
    model = Scaled()
    changed, report = run(model, (16, 48))
    assert model.rezero.item() == 0.0 and model.logit_scale.item() == pytest.approx(2.6592)
    assert "inner.weight" in changed and "head.weight" in changed
    assert report.plan.unscaled == ()
    kept = {w.name: w.parts[0] for w in report.plan.weights if w.parts[0].draw.distribution == "keep"}
    assert {n: p.why for n, p in kept.items()} == dict.fromkeys(kept, "a scalar multiplier keeps its value")
    assert set(kept) == {"rezero", "logit_scale"}
    assert report.counts["tensors"]["kept"] == 2 and report.counts["tensors"]["not set"] == 0


def test_a_parameter_that_never_meets_data_is_a_finding():
    model = net()
    model.register_parameter("spare", nn.Parameter(torch.ones(3)))
    _, report = run(model)
    assert [name for name, _ in report.plan.unscaled] == ["spare"]
    with pytest.raises(anyinit.UnhealthyError, match="spare"):
        report.assert_healthy()


def test_a_scale_given_by_the_caller_is_never_corrected():
    model = net()
    _, report = run(model, torch.randn(32, 64), correct="always", overrides={"2.weight": {"std": 0.02}})
    parts = {w.name: w.parts[0] for w in report.plan.weights}
    assert parts["2.weight"].draw.std * parts["2.weight"].draw.factor == 0.02
    assert parts["0.weight"].draw.factor != 1.0

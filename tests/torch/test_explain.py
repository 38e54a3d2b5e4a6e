"""Why this number: the factors shown multiply to the planned one, and each is what it says it is."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from torch import nn

import anyinit
from anyinit._solve.plan import Part, Plan
from anyinit.report import Explanation, Report

BENCHMARKED = ("plain_cnn", "gpt2", "vit", "bert", "lstm", "experts", "inline", "tied", "mlp_relu_20", "mlp_tanh_20")


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(30 * x)


class Squared(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) ** 2


class Residual(nn.Module):
    """A norm-free residual net whose branches end in relu: their means add coherently."""

    def __init__(self, blocks: int = 5) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2)) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def plain(act: Callable[[], nn.Module], depth: int = 6, inputs: int = 2) -> nn.Sequential:
    widths = [inputs] + [64] * depth
    hidden = [m for n, k in itertools.pairwise(widths) for m in (nn.Linear(n, k), act())]
    return nn.Sequential(*hidden, nn.Linear(64, 1))


def planned(name: str) -> Plan:
    points = torch.rand(256, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    chains = {"siren": Sine, "gelu": nn.GELU, "tanh": nn.Tanh, "steep": Squared, "relu": nn.ReLU}
    if name in chains:
        return anyinit.plan(plain(chains[name]), points, seed=0)
    if name == "residual":
        return anyinit.plan(Residual(), (64, 16), seed=0)
    model, batch = getattr(import_module("models"), name)()
    return anyinit.plan(model, batch, seed=0)


def drawn(plan: Plan) -> list[tuple[str, Part]]:
    return [(w.name, p) for w in plan.weights for p in w.parts if p.draw.std]


def worked_out(told: Explanation) -> float:
    """The shown formula with the shown values in it."""
    formula, names = told.formula, dict[str, float]()
    for k, term in enumerate(sorted(told.terms, key=lambda t: -len(t.symbol))):
        if not re.fullmatch(r"\d+", term.symbol):
            names[f"v{k}"] = term.value
            formula = re.sub(rf"(?<![\w.]){re.escape(term.symbol)}(?![\w.])", f"v{k}", formula)
    return float(eval(formula, {"__builtins__": {}, "sqrt": math.sqrt, **names}))


@pytest.mark.parametrize("name", ["siren", "gelu", "tanh", "steep", "relu", "residual", *BENCHMARKED])
def test_the_factors_and_the_formula_give_the_planned_deviation_of_every_drawn_part(name: str):
    plan = planned(name)
    report = Report(plan)
    assert drawn(plan)
    for weight in plan.weights:
        told = report.explain(weight.name)
        entries = told.parts or (told,)
        assert len(entries) == len(weight.parts)
        for part, entry in zip(weight.parts, entries, strict=True):
            if part.draw.std:
                assert entry.product == pytest.approx(part.draw.std, rel=1e-6), weight.name
                assert worked_out(entry) == pytest.approx(part.draw.std, rel=1e-6), weight.name
                assert entry.source
            else:
                assert part.why


@pytest.mark.parametrize(
    "scheme", ["xavier_uniform", "he_normal", "lecun_normal", "orthogonal", "gpt2", "normal", "lsuv"]
)
def test_the_factors_of_a_textbook_scheme_are_its_formula(scheme: str):
    plan = anyinit.plan(plain(nn.ReLU), torch.randn(64, 2), seed=0, scheme=scheme)
    for name, part in drawn(plan):
        told = Report(plan).explain(name)
        assert told.product == pytest.approx(part.draw.std, rel=5e-9)
    second = Report(plan).explain("2.weight")
    if scheme == "xavier_uniform":
        assert [t.value for t in second.terms] == [2, 128]
        assert "Glorot & Bengio 2010" in second.source


def test_every_factor_of_a_plain_chain_is_what_it_says_it_is():
    model = plain(nn.GELU, inputs=32)
    plan = anyinit.plan(model, (512, 32), seed=0, mirror=False)
    report, before = Report(plan), 1.0
    for layer in report.layers[:-1]:
        values = {t.symbol: t.value for t in report.explain(layer.name).terms}
        assert values["fan_in"] == layer.shape[1]
        assert values["E[x^2]"] == pytest.approx(before, rel=0.02)
        q = layer.predicted_output
        assert q is not None
        level = anyinit.activation_profile("gelu").moments(0.0, q).m2
        assert values["gain"] == pytest.approx(math.sqrt(q / level), rel=2e-3)
        before = level


def test_a_branch_shows_its_stream_how_many_share_it_and_what_lies_on_the_way():
    report = Report(planned("residual"))
    told = report.explain("blocks.2.0.weight")
    values = {t.symbol: t.value for t in told.terms}
    lean = 0.8 / math.pi  # (E relu)^2 / E relu^2, behind dropout
    assert values["N"] == pytest.approx(5 * (1 - lean) + 25 * lean, rel=0.02)
    assert values["E[x^2]"] > values["stream"]
    assert values["stream"] == pytest.approx(report.layers[0].predicted_output, rel=1e-6)
    assert "5 branches share it" in told


def test_queries_and_keys_name_the_logits_and_norms_and_biases_say_why_they_are_one_and_zero():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.q, self.k = nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.norm(x)
            return torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) / 32**0.5, -1) @ x

    report = Report(anyinit.plan(Attention(), (4, 8, 32), seed=0))
    assert "Vaswani" in report.explain("q.weight").source
    assert "set to 1" in report.explain("norm.weight")
    assert "set to 0" in report.explain("q.bias")


def test_kept_frozen_and_unused_parameters_say_so():
    model = plain(nn.Tanh)
    model[0].weight.requires_grad_(False)
    model.spare = nn.Parameter(torch.zeros(3))
    report = anyinit.initialize(model, (16, 2), seed=0, skip="2.*")
    assert "requires no gradient" in report.explain("0.weight")
    assert "left as it is" in report.explain("2.weight")
    assert "spare" in report.explain("spare")
    assert not report.explain("2.weight").terms


def test_the_callers_own_factor_is_one_of_the_factors_and_the_measured_correction_is_named():
    report = anyinit.initialize(plain(nn.GELU, 12), torch.randn(256, 2), seed=0, gains={"4.weight": 3.0})
    told = report.explain("4.weight")
    assert {t.symbol: t.value for t in told.terms}["gains"] == 3.0
    draw = report.parameters[2 * 2].parts[0].draw
    assert told.value == draw.std
    assert "measured correction" in told


def test_a_plan_explains_itself_also_after_a_round_trip_through_json():
    plan = planned("gelu")
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.explain("4") == Report(plan).explain("4")


def test_the_views_of_an_explanation_escape_names_and_hold_the_same_numbers():
    model = nn.Sequential()
    model.add_module("<b>", nn.Linear(4, 4))
    told = Report(anyinit.plan(model, (8, 4), seed=0, target="unit")).explain("<b>.weight")
    assert "&lt;b&gt;.weight" in told._repr_html_() and "<b>.weight" not in told._repr_html_()
    assert r"\<b\>" in told.to_markdown()
    for view in (str(told), told.to_markdown(), told._repr_html_()):
        assert "0.5" in view and "fan_in" in view
    assert told.to_dict()["terms"][0]["symbol"] == "target"

"""Textbook schemes by name: closed forms, fans from the graph, and what they do to a report."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import anyinit
from anyinit.errors import ConfigError

STD = {
    "normal": 0.01,
    "xavier_uniform": math.sqrt(2 / (96 + 160)),
    "xavier_normal": math.sqrt(2 / (96 + 160)),
    "he_uniform": math.sqrt(2 / 96),
    "he_normal": math.sqrt(2 / 96),
    "lecun_normal": math.sqrt(1 / 96),
    "orthogonal": math.sqrt(1 / 160),
    "gpt2": 0.02,
}


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(96, 160), nn.ReLU(), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, 10))


def std(report: anyinit.Report, name: str) -> float:
    (weight,) = [w for w in report.plan.weights if w.name == name]
    return weight.parts[0].draw.std


@pytest.mark.parametrize("scheme", STD)
def test_a_scheme_draws_the_deviation_of_its_formula(scheme: str):
    net = mlp()
    report = anyinit.initialize(net, (8, 96), scheme=scheme, seed=0)
    weight = net[0].weight.detach().double()
    assert std(report, "0.weight") == pytest.approx(STD[scheme], rel=5e-9)
    assert float(weight.square().mean().sqrt()) == pytest.approx(STD[scheme], rel=0.02)
    assert all(not p.any() for n, p in net.named_parameters() if n.endswith("bias"))
    if scheme.endswith("uniform"):
        bound = math.sqrt(3) * STD[scheme]
        assert 0.99 * bound < float(weight.abs().max()) <= bound
    if scheme == "orthogonal":
        torch.testing.assert_close(weight.T @ weight, torch.eye(96).double(), atol=1e-5, rtol=0)


def test_zeros_and_constant_fill_every_weight_and_the_report_says_what_is_wrong():
    net = mlp()
    report = anyinit.initialize(net, (8, 96), scheme="zeros", seed=0)
    assert all(not p.any() for p in net.parameters())
    assert [f.kind for f in report.findings] == ["alike"]
    assert "no gradient" in str(report)
    report = anyinit.initialize(net, (8, 96), scheme="constant", bias=0.3, seed=0)
    assert {float(v) for p in net.parameters() for v in p.detach().unique()} == {np.float32(0.1), np.float32(0.3)}
    assert "copies of each other" in str(report)
    anyinit.initialize(net, (8, 96), scheme=("constant", -0.5), seed=0)
    assert float(net[2].weight[0, 0]) == -0.5


def test_drawn_weights_are_never_said_to_be_alike():
    report = anyinit.initialize(mlp(), (8, 96), overrides={"0.weight": "zeros"}, seed=0)
    assert not [f for f in report.findings if f.kind == "alike"]


def test_fans_come_from_the_graph_for_grouped_strided_and_transposed_convolutions():
    net = nn.Sequential(
        nn.Conv2d(8, 32, 3, groups=4, padding=1), nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
    )
    report = anyinit.initialize(net, (2, 8, 8, 8), scheme="he_normal", seed=0)
    assert std(report, "0.weight") == pytest.approx(math.sqrt(2 / (2 * 9)))
    assert std(report, "2.weight") == pytest.approx(math.sqrt(2 / (32 * 16 / 4)))
    report = anyinit.initialize(net, (2, 8, 8, 8), scheme="xavier_normal", seed=0)
    assert std(report, "0.weight") == pytest.approx(math.sqrt(2 / (2 * 9 + 8 * 9)))


def test_packed_attention_counts_one_projection_and_not_three():
    net = nn.MultiheadAttention(64, 4, batch_first=True)
    report = anyinit.initialize(
        net, torch.randn(2, 5, 64), forward=lambda m, x: m(x, x, x)[0], scheme="xavier_normal", seed=0
    )
    (packed,) = [w for w in report.plan.weights if w.name == "in_proj_weight"]
    assert len(packed.parts) == 3
    assert {p.draw.std for p in packed.parts} == {math.sqrt(2 / 128)}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def test_gpt2_shrinks_what_writes_to_the_stream_by_the_branches_found_in_it():
    net = nn.Sequential(nn.Linear(16, 32), *(Block() for _ in range(5)))
    report = anyinit.initialize(net, (4, 16), scheme="gpt2", seed=0)
    assert [std(report, f"{i}.down.weight") for i in range(1, 6)] == pytest.approx([0.02 / math.sqrt(5)] * 5, rel=5e-9)
    assert {std(report, f"{i}.up.weight") for i in range(1, 6)} == {0.02}


def test_lsuv_leaves_every_layer_at_unit_level_on_the_batch():
    net, x = mlp(), torch.randn(256, 96) * 7 + 1
    report = anyinit.initialize(net, x, scheme="lsuv", seed=0)
    seen: list[float] = []
    for layer in (net[0], net[2], net[4]):
        layer.register_forward_hook(lambda m, i, o: seen.append(float(o.square().mean())))
    net(x)
    assert seen == pytest.approx([1, 1, 1], rel=1e-3)
    weight = net[2].weight.detach().double()
    gram = weight @ weight.T
    torch.testing.assert_close(gram / gram[0, 0], torch.eye(160).double(), atol=1e-5, rtol=0)
    assert report.healthy


def test_lsuv_asks_for_a_batch():
    with pytest.raises(ConfigError, match="batch"):
        anyinit.initialize(mlp(), (8, 96), scheme="lsuv")


def test_framework_draws_as_the_modules_themselves_do_and_predicts_from_the_values():
    net = mlp()
    anyinit.initialize(net, (8, 96), scheme="zeros", seed=0)
    report = anyinit.initialize(net, torch.randn(64, 96), scheme="framework", seed=3)
    bound = 1 / math.sqrt(96)
    assert 0.99 * bound < float(net[0].weight.abs().max()) <= bound
    assert net[0].bias.any()
    again = mlp()
    anyinit.initialize(again, (8, 96), scheme="framework", seed=3)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), again.parameters(), strict=True))
    assert report.healthy
    assert "framework's own code" in str(report)


def test_framework_leaves_the_random_state_and_kept_weights_alone():
    net = mlp()
    net[2].weight.requires_grad_(False).fill_(5.0)
    before = torch.random.get_rng_state()
    anyinit.initialize(net, (8, 96), scheme="framework", seed=3)
    assert torch.equal(before, torch.random.get_rng_state())
    assert bool((net[2].weight == 5).all())


def test_an_override_names_another_scheme_for_a_module():
    net = mlp()
    report = anyinit.initialize(
        net, (8, 96), scheme="he_normal", bias=0.1, overrides={"4": "xavier_uniform", "2.weight": {"std": 0.5}}, seed=0
    )
    assert std(report, "0.weight") == pytest.approx(math.sqrt(2 / 96))
    assert std(report, "4.weight") == pytest.approx(math.sqrt(2 / 170))
    assert std(report, "2.weight") == 0.5
    assert "Glorot & Bengio" in report.explain("4.weight")
    with pytest.raises(ConfigError, match="matches no parameter"):
        anyinit.initialize(net, (8, 96), scheme="he_normal", overrides={"5": "zeros"})


def test_levels_under_a_scheme_are_predicted_and_measured():
    torch.manual_seed(1)
    report = anyinit.initialize(mlp(), torch.randn(512, 96), scheme="he_normal", seed=0)
    last = report.layers[-1]
    assert last.predicted_output == pytest.approx(2.0, rel=0.02)
    assert report.healthy


def test_a_plan_under_a_scheme_replays():
    net, other = mlp(), mlp()
    report = anyinit.initialize(net, (8, 96), scheme="he_uniform", bias=0.1, seed=5)
    anyinit.apply(type(report.plan).from_json(report.plan.to_json()), other)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scheme": "he"}, "Choose one of"),
        ({"scheme": ("he_normal", 2.0)}, "goes with"),
        ({"scheme": ("normal", -1)}, "non-negative"),
        ({"scheme": "he_normal", "mode": "empirical"}, "Nothing is left to measure"),
        ({"overrides": {"0": "lsuv"}}, "whole model"),
        ({"bias": "some"}, "bias"),
    ],
)
def test_bad_schemes_are_refused_before_the_model_is_touched(options: dict[str, object], words: str):
    net = mlp()
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(ConfigError, match=words):
        anyinit.initialize(net, torch.randn(8, 96), **options)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))

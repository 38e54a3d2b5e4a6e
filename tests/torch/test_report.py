"""The report of real models."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import anyinit


class Block(nn.Module):
    """A pre-norm residual block with packed attention weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.MultiheadAttention(width, 4, batch_first=True)
        self.wide = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU())
        self.back = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.mix(y, y, y, need_weights=False)[0]
        return x + self.back(self.wide(x))


class Language(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, blocks: int = 8, width: int = 32) -> None:
        super().__init__()
        self.table = nn.Embedding(50, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 50, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@pytest.fixture(scope="module")
def language() -> tuple[Language, anyinit.Report]:
    torch.manual_seed(0)
    model = Language()
    return model, anyinit.initialize(model, torch.randint(0, 50, (8, 12)), seed=3)


def test_counts_add_up_to_the_parameters_of_the_model(language: tuple[Language, anyinit.Report]):
    model, report = language
    counts = report.counts
    assert counts["tensors"]["total"] == len(list(model.parameters()))
    assert counts["scalars"]["total"] == sum(p.numel() for p in model.parameters())
    for kind in counts.values():
        assert sum(n for name, n in kind.items() if name != "total") == kind["total"]


def test_layers_are_the_weights_and_tables_and_carry_their_predictions(language: tuple[Language, anyinit.Report]):
    model, report = language
    expected = {n for n, p in model.named_parameters() if p.dim() > 1}
    assert {r.name for r in report.layers} == expected
    for record in report.layers:
        assert record.predicted_output is not None
        assert record.predicted_grad is not None
        assert record.scale > 0


def test_the_scale_of_a_record_is_the_deviation_of_what_was_written(language: tuple[Language, anyinit.Report]):
    model, report = language
    written = dict(model.named_parameters())
    for record in report.layers:
        assert written[record.name].square().mean().sqrt().item() == pytest.approx(record.scale, rel=0.1)


def test_repeated_blocks_share_rows_in_the_text(language: tuple[Language, anyinit.Report]):
    _, report = language
    told = str(report)
    assert "blocks.{0-7}.back.weight (8)" in told
    assert len(told.splitlines()) < 40


def test_the_report_survives_json_without_its_model(language: tuple[Language, anyinit.Report]):
    model, report = language
    assert report.model is model
    read = anyinit.Report.from_json(report.to_json())
    assert read == report
    assert str(read) == str(report)
    assert read.model is None


def test_every_parameter_can_be_explained(language: tuple[Language, anyinit.Report]):
    model, report = language
    for name, _ in model.named_parameters():
        assert str(report.explain(name)).startswith(name)


def test_a_seed_from_entropy_is_reported_and_replays():
    torch.manual_seed(0)
    x = torch.randn(16, 8)
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    report = anyinit.initialize(first, x)
    anyinit.initialize(second, x, seed=report.seed)
    assert torch.equal(first.weight, second.weight)
    assert str(report.seed) in str(report)


def test_a_parameter_left_alone_on_request_is_listed_and_no_finding():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    kept = model[2].weight.clone()
    report = anyinit.initialize(model, torch.randn(64, 8), seed=0, skip="2")
    assert torch.equal(model[2].weight, kept)
    assert {u.name for u in report.unscaled} == {"2.weight", "2.bias"}
    assert not [f for f in report.findings if f.kind == "not set"]


def test_a_parameter_that_never_meets_data_is_a_finding():
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    report = anyinit.initialize(Idle(), torch.randn(64, 8), seed=0)
    with pytest.raises(anyinit.UnhealthyError, match=r"idle\.weight"):
        report.assert_healthy()


def test_a_plain_relu_network_on_its_own_batch_is_healthy_over_seeds():
    torch.manual_seed(0)
    x = torch.randn(256, 64)
    for seed in range(8):
        model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(64, 64), nn.ReLU())], nn.Linear(64, 2))
        anyinit.initialize(model, x, seed=seed).assert_healthy()


def test_options_are_refused_before_the_model_is_touched():
    model = nn.Linear(8, 8)
    before = model.weight.clone()
    for wrong in ({"seed": True}, {"seed": -1}, {"target": "units"}, {"gains": {"weight": 0}}, {"only": 3}):
        with pytest.raises(anyinit.ConfigError):
            anyinit.initialize(model, torch.randn(4, 8), **wrong)
    assert torch.equal(model.weight, before)

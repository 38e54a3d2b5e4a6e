"""Unmodified models of torchvision and timm: every weight placed, nothing opaque, predictions that hold."""

from __future__ import annotations

import statistics

import pytest
import timm
import torch
import torchvision
from torch import nn

import anyinit
import measure

MODELS = [
    ("resnet18", 64),
    ("mobilenet_v3_small", 64),
    ("efficientnet_b0", 64),
    ("convnext_tiny", 64),
    ("vit_b_16", 224),
    ("densenet121", 64),
    ("regnet_y_400mf", 64),
]


def check(model: nn.Module, size: int) -> None:
    """Everything that can be said without drawing a weight."""
    report = anyinit.Report(anyinit.plan(model, torch.randn(4, 3, size, size), seed=0))
    assert report.counts["scalars"]["total"] == sum(p.numel() for p in model.parameters())
    assert report.unscaled == ()
    assert report.opaque == ()
    weights = {n for n, p in model.named_parameters() if p.dim() == 4 and sum(k > 1 for k in p.shape) > 1}
    assert weights <= {r.name for r in report.layers}


@pytest.mark.parametrize(("name", "size"), MODELS)
def test_every_parameter_of_a_torchvision_model_is_placed(name: str, size: int):
    check(getattr(torchvision.models, name)(weights=None), size)


@pytest.mark.parametrize(
    ("name", "size"), [("mixer_s32_224", 224), ("vit_tiny_patch16_224", 224), ("eca_nfnet_l0", 64)]
)
def test_every_parameter_of_a_timm_model_is_placed(name: str, size: int):
    check(timm.create_model(name, pretrained=False), size)


def test_the_levels_of_resnet50_are_predicted_before_anything_is_drawn():
    torch.manual_seed(0)
    model, batch = torchvision.models.resnet50(weights=None), torch.randn(8, 3, 96, 96)
    report = anyinit.Report(anyinit.plan(model, batch, seed=0))
    ensemble = measure.draw(model, batch, most=8)
    predicted = {r.name: r.predicted_output for r in report.layers}
    distances = [measure.bits(predicted[n], measure.mean(ensemble.levels[n])) for n in predicted]
    assert len(distances) == 54
    assert statistics.median(distances) <= 0.05
    assert max(distances) <= 0.5

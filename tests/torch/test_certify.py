"""Certificates are what they say: closed forms on linear models, collapse and explosion seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import anyinit
from anyinit.errors import ConfigError
from anyinit.report import Report


def certificates(model: nn.Module, x: torch.Tensor, **options: object) -> dict[str, float]:
    report = anyinit.initialize(model, x, seed=0, certify=True, **options)
    return {c.name: c.value for c in report.certificates}


def test_the_kernel_of_one_linear_layer_is_the_gram_matrix_of_its_inputs():
    x = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    found = certificates(nn.Linear(20, 1, bias=False), x)
    c = torch.randn(6, 1, generator=torch.Generator().manual_seed(0)).double()
    spectrum = np.linalg.eigvalsh(((x.double() * c) @ (x.double() * c).T).numpy())
    assert found["kernel condition"] == pytest.approx(math.log10(spectrum[-1] / spectrum[0]), rel=1e-4)


def test_rank_and_angle_of_features_that_are_orthogonal_or_alike():
    orthogonal = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 4))
    apart = certificates(orthogonal, torch.eye(8), overrides={"0.weight": {"distribution": "orthogonal"}})
    assert apart["feature rank"] == pytest.approx(8.0, rel=1e-5)
    assert apart["angle"] == pytest.approx(0.0, abs=1e-6)
    alike = certificates(nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 4)), torch.ones(8, 8))
    assert alike["feature rank"] == pytest.approx(1.0, rel=1e-4)
    assert alike["angle"] == pytest.approx(1.0, rel=1e-5)


def test_exploding_gradients_fail_and_the_default_passes():
    def deep() -> nn.Sequential:
        return nn.Sequential(*(m for _ in range(40) for m in (nn.Linear(48, 48), nn.Tanh())), nn.Linear(48, 1))

    x = torch.randn(32, 48, generator=torch.Generator().manual_seed(0))
    loud = anyinit.initialize(deep(), x, seed=0, certify=True, overrides={"*weight": {"std": 2.5 / 48**0.5}})
    calm = anyinit.initialize(deep(), x, seed=0, certify=True)
    assert not next(c for c in loud.certificates if c.name == "gradient ratio").passed
    assert all(c.passed for c in calm.certificates if c.name in {"gradient ratio", "forward spread"})
    assert "Certificates:" in str(calm) and "FAILS" in str(loud)


def test_the_model_is_as_drawn_and_certificates_survive_json():
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    one, two = (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)) for _ in range(2))
    report = anyinit.initialize(one, x, seed=0, certify=True)
    assert anyinit.initialize(two, x, seed=0).certificates == ()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert Report.from_json(report.to_json()).certificates == report.certificates


def test_certify_is_yes_or_no():
    with pytest.raises(ConfigError, match="certify"):
        anyinit.initialize(nn.Linear(2, 2), (4, 2), certify="yes")

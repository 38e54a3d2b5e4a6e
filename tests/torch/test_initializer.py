"""``init_`` for modules that write their own ``reset_parameters``."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import anyinit
from anyinit.errors import ConfigError


class Mine(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(512, 256))
        anyinit.init_(self.weight, "hidden", activation, generator=torch.Generator().manual_seed(0))

    def forward(self, x):
        return x @ self.weight.T


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
def test_a_hidden_weight_gives_unit_level_behind_its_activation(activation):
    x = torch.randn(512, 256, generator=torch.Generator().manual_seed(1))
    out = getattr(F, activation)(Mine(activation)(x)).detach()
    assert out.square().mean().item() == pytest.approx(1.0, rel=0.08)


def test_the_fan_given_wins_over_the_fan_of_the_shape():
    stored = torch.empty(256, 512)  # inputs first
    returned = anyinit.init_(stored, "output", fan=256, generator=torch.Generator().manual_seed(0))
    assert returned is stored
    assert stored.std().item() == pytest.approx(256**-0.5, rel=0.02)


def test_a_convolution_counts_the_inputs_of_a_group_and_its_taps():
    weight = nn.Conv2d(64, 256, 3, groups=4).weight
    anyinit.init_(weight, "output", generator=torch.Generator().manual_seed(0))
    assert weight.std().item() == pytest.approx((16 * 9) ** -0.5, rel=0.02)


def test_a_residual_weight_is_zero():
    assert not anyinit.init_(torch.ones(3, 4), "residual").any()


@pytest.mark.parametrize(
    ("tensor", "options"),
    [(torch.ones(3), {}), (torch.ones(3, 4, dtype=torch.int64), {}), (torch.ones(3, 4), {"role": "hiden"})],
)
def test_what_cannot_be_filled_is_refused_and_unchanged(tensor, options):
    with pytest.raises(ConfigError):
        anyinit.init_(tensor, **options)
    assert (tensor == 1).all()

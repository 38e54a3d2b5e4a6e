"""Norms and angles of a PyTorch model as it stands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import anyinit
from anyinit.errors import ConfigError


def test_norms_and_cosines_of_a_model_are_those_of_its_layers_and_the_model_is_unchanged():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.GELU(), nn.Linear(256, 256), nn.Tanh())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    batch = torch.randn(32, 64)
    random = torch.get_rng_state()
    found = anyinit.propagate(model, batch).curves[0]
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training and all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    first = model[0](batch).detach().double()
    assert np.allclose(found.norm[0], first.norm(dim=1).reshape(-1, 2).mean(1), rtol=1e-5)
    assert np.allclose(found.cosine[0], torch.cosine_similarity(first[::2], first[1::2]), atol=1e-5)
    assert found.layers == ["0.weight", "3.weight"]
    assert np.allclose(found.norm.mean(axis=1), found.predicted_norm[:, 0], rtol=0.1)


def test_a_single_sample_has_no_pair():
    with pytest.raises(ConfigError, match="pair"):
        anyinit.propagate(nn.Linear(3, 3), torch.randn(1, 3))

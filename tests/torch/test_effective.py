"""Weights that are computed from other parameters: set through them, recorded, or kept."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from anyinit._frameworks.torch.runtime import open_model
from anyinit._graph import ops
from anyinit.errors import PlanError


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T


def old_weight_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(layer)


def old_spectral_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.spectral_norm(layer)


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, old_weight_norm])
def test_a_normalized_weight_is_set_through_its_direction_and_norm(wrap):
    model = nn.Sequential(wrap(nn.Linear(4, 3)), nn.ReLU())
    objects = dict(model.named_parameters())
    runtime, value = open_model(model, torch.randn(5, 4)), np.random.default_rng(0).normal(size=(3, 4))
    assert [(p[0], p[4]) for p in runtime.parameters()] == [("0.bias", True), ("0.weight", True)]
    assert [type(n.op).__name__ for n in runtime.record().nodes] == ["Contract", "Pointwise", "Pointwise"]
    assert runtime.record().unused == () and runtime.record().notes == ()
    runtime.write({"0.weight": value})
    with torch.no_grad():
        model(torch.zeros(1, 4))  # the older hook refreshes the attribute when it is called
    np.testing.assert_allclose(model[0].weight.detach(), value, atol=1e-6)
    np.testing.assert_allclose(runtime.read(["0.weight"])["0.weight"], value, atol=1e-6)
    assert all(p is objects[n] for n, p in model.named_parameters())


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, old_weight_norm])
def test_a_run_and_its_gradients_use_the_given_computed_weight(wrap):
    model, x = nn.Sequential(wrap(nn.Linear(4, 3, bias=False))), torch.randn(5, 4)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    runtime, value, seen = open_model(model, x), np.ones((3, 4)), []
    runtime.run({"0.weight": value}, runtime.record().outputs, lambda i, a: seen.append(a))
    np.testing.assert_allclose(seen[0], x.numpy() @ value.T, atol=1e-5)
    c = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)).numpy()
    np.testing.assert_allclose(runtime.gradients({"0.weight": value}, 1)["0.weight"], c.T @ x.numpy(), atol=1e-5)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    hooks = len(model[0]._forward_pre_hooks) + parametrize.is_parametrized(model[0])
    assert hooks == 1


@pytest.mark.parametrize("wrap", [parametrizations.spectral_norm, parametrizations.orthogonal, old_spectral_norm])
def test_a_weight_whose_numbers_the_parametrization_decides_is_kept_and_said_so(wrap):
    model = nn.Sequential(wrap(nn.Linear(4, 4, bias=False)))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    runtime = open_model(model, (5, 4))
    graph = runtime.record()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [(p[0], p[4]) for p in runtime.parameters()] == [("0.weight", False)]
    assert "0.weight is kept" in graph.notes[0]
    if wrap is not old_spectral_norm:  # the older one needs several calls to find the norm
        assert np.linalg.norm(runtime.read(["0.weight"])["0.weight"], 2) == pytest.approx(1, abs=0.05)
    with pytest.raises(PlanError, match="decided by its parametrization"):
        runtime.write({"0.weight": np.eye(4)})


def test_a_form_that_scales_with_its_original_is_recorded():
    layer = nn.Linear(4, 4, bias=False)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    runtime = open_model(nn.Sequential(layer), (5, 4))
    assert [p[0] for p in runtime.parameters()] == ["0.parametrizations.weight.original"]
    assert sum(isinstance(n.op, ops.Triangle) for n in runtime.record().nodes) == 2

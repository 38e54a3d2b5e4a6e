"""Activations written for PyTorch: registered, profiled, refused, with the process left as it was."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from torch import nn

from anyinit._core.profile import activation_profile
from anyinit._core.registry import register_activation, unregister_activation
from anyinit.errors import ActivationError, ConfigError


class ReLUCubed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) ** 3


@pytest.fixture
def relu_cubed():
    yield register_activation(ReLUCubed)
    unregister_activation("relucubed")


def test_a_registered_module_class_has_the_profile_of_its_closed_form(relu_cubed: type[nn.Module]):
    assert relu_cubed is ReLUCubed
    profile = activation_profile("relucubed")
    state = profile.moments(0.0, 1.0)
    assert state.mean == pytest.approx(math.sqrt(2 / math.pi), rel=1e-12)
    assert state.m2 == pytest.approx(7.5, rel=1e-12)
    assert profile.homogeneous_degree == 3.0
    assert profile.chi == pytest.approx(3.0, rel=1e-12)
    assert profile.diagnostics.sigma_star == pytest.approx(7.5 ** (-1 / 6), rel=1e-12)


SAME = [
    (torch.tanh, "tanh", {}), (nn.GELU, "gelu", {}), (nn.GELU("tanh"), "gelu_tanh", {}),
    (nn.functional.silu, "silu", {}),
    (nn.ReLU(inplace=True), "relu", {}), (nn.PReLU, "prelu", {}), (nn.Hardswish(), "hardswish", {}),
    (nn.SELU, "selu", {}),
    (functools.partial(nn.functional.leaky_relu, negative_slope=0.2), "leaky_relu", {"negative_slope": 0.2}),
    (lambda x: x.clamp(min=0), "relu", {}), (nn.Softplus(), "softplus", {}), (nn.Mish(), "mish", {}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "name", "params"), SAME, ids=[n for _, n, _ in SAME])
def test_a_torch_activation_is_the_named_one(target: object, name: str, params: dict[str, float]):
    mine, named = activation_profile(target).moments(0.2, 1.3), activation_profile(name, **params).moments(0.2, 1.3)
    assert mine.mean == pytest.approx(named.mean, rel=1e-8)
    assert mine.m2 == pytest.approx(named.m2, rel=1e-8)


def test_parameters_reach_the_constructor_of_a_class():
    slope = activation_profile(nn.LeakyReLU, negative_slope=0.2)
    assert slope.label == "leakyrelu(negative_slope=0.2)"
    assert slope.moments().m2 == pytest.approx(0.52, rel=1e-12)
    assert activation_profile(nn.Threshold, threshold=0.7, value=0.0).jumps == (0.7,)


def test_a_module_is_not_changed_and_a_later_change_of_it_is_seen():
    prelu = nn.PReLU(init=0.5)
    before = prelu.weight.detach().clone()
    assert activation_profile(prelu).moments().m2 == pytest.approx(0.5 * 1.25)
    assert torch.equal(prelu.weight, before)
    assert prelu.weight.dtype == torch.float32
    with torch.no_grad():
        prelu.weight.fill_(1.0)
    assert activation_profile(prelu).moments().m2 == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (nn.Dropout, "is random"), (nn.RReLU, "is random"), (nn.Softmax(dim=-1), "not elementwise"),
        (lambda x: x / x.norm(), "not elementwise"), (lambda x: torch.log(x), "gives NaN"),
        (lambda x: torch.complex(x, x), "real numbers"), (nn.Linear(3, 3), "could not be evaluated"),
    ],
)  # fmt: skip
def test_what_is_no_activation_is_refused_with_the_reason(target: object, reason: str):
    with pytest.raises(ActivationError, match=reason):
        activation_profile(target)


def test_a_class_that_needs_arguments_says_so():
    with pytest.raises(ActivationError, match=r"cannot be constructed.*missing 1 required"):
        activation_profile(nn.LayerNorm)


def test_profiling_leaves_every_random_state_alone():
    torch.manual_seed(5)
    np.random.seed(5)
    state, numbers = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    for target in (nn.PReLU, ReLUCubed, torch.tanh):
        activation_profile(target)
    for target in (nn.Dropout(), nn.RReLU):
        with pytest.raises(ActivationError):
            activation_profile(target)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (np.random.get_state()[1] == numbers).all()


def test_a_default_device_and_type_do_not_matter():
    with torch.device("meta"):
        assert activation_profile(nn.PReLU(init=0.25, device="cpu")).moments().m2 == pytest.approx(0.53125)
        unused = activation_profile(nn.Hardtanh, min_val=-2.0, max_val=2.0)
    assert unused.kinks == (-2.0, 2.0)


def test_the_same_class_name_twice_is_refused_unless_overwritten(relu_cubed: type[nn.Module]):
    other = type("ReLUCubed", (nn.Module,), {"forward": lambda self, x: x})
    with pytest.raises(ConfigError, match="exists already"):
        register_activation(other)
    register_activation(other, overwrite=True)
    assert activation_profile("relucubed").homogeneous_degree == 1.0

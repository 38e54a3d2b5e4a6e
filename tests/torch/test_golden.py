"""One seed, one network: PyTorch makes the golden weights, and its plan makes them again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import anyinit
from golden import NETS, agree, fingerprint, golden, made


@pytest.mark.parametrize("name", NETS)
def test_the_seed_gives_the_golden_weights_and_outputs(name):
    agree(fingerprint(made("torch", name), name), golden(name))


def test_another_seed_gives_other_weights():
    found = fingerprint(made("torch", "mlp"), "mlp", seed=1)
    assert not {d[-1] for d in found["draws"]} & {d[-1] for d in golden("mlp")["draws"]}


def test_corrected_draws_replay_to_the_byte_from_the_plan_as_json():
    torch.manual_seed(0)
    x = torch.randn(32, 16)
    model = made("torch", "mlp").model
    report = anyinit.initialize(model, x, seed=3, correct="always")
    assert any(p.draw.factor != 1.0 for w in report.plan.weights for p in w.parts)
    again = made("torch", "mlp").model
    anyinit.Plan.from_json(report.plan.to_json()).apply(again, x)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_types_are_float32_draws_rounded_to_nearest_even(dtype):
    full, short = nn.Linear(64, 48), nn.Linear(64, 48, dtype=dtype)
    for model in (full, short):
        anyinit.initialize(model, (8, 64), seed=5, correct="never")
    assert torch.equal(short.weight, _nearest_even(full.weight.detach(), dtype))
    assert not torch.equal(short.weight.float(), full.weight)


def _nearest_even(values, dtype):
    if dtype is torch.float16:
        return torch.from_numpy(values.numpy().astype(np.float16))
    bits = values.numpy().view(np.uint32).astype(np.uint64)
    return torch.from_numpy((((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)).to(
        dtype
    )

"""What must be the same after a call: types, objects, buffers, flags, random states; and what must not."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import anyinit

MODES = ["analytic", "empirical"]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(20_000 + seed))


def level(x: torch.Tensor) -> float:
    return x.detach().abs().square().mean().item()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def smooth(width: int = 192) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 10))


def test_bfloat16_keeps_its_type_and_the_scale_of_float32():
    wide, narrow = smooth(), smooth().to(torch.bfloat16)
    for model in (wide, narrow):
        anyinit.initialize(model, (32, 192), seed=3)
    for p, q in zip(wide.parameters(), narrow.parameters(), strict=True):
        assert q.dtype == torch.bfloat16 and torch.isfinite(q).all()
        assert torch.equal(p.to(torch.bfloat16), q)
        if p.dim() == 2:
            assert q.float().abs().max() < 7 * q.float().std()


def test_half_batches_whose_sums_overflow_are_measured_in_wider_numbers():
    model = nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 32), nn.ReLU())
    batch = (normal(1024, 96) * 60).half()
    assert not torch.isfinite(batch.square().sum(dtype=torch.float16))
    anyinit.initialize(model.half(), batch, "empirical", seed=0)
    assert all(p.dtype == torch.float16 and torch.isfinite(p).all() for p in model.parameters())
    with torch.no_grad():
        assert 0.5 < level(model(batch).float()) < 2


def test_float64_models_carry_float64_numbers():
    model = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).double()
    report = anyinit.initialize(model, (16, 3), seed=0)
    weight = model[2].weight.detach()
    assert weight.dtype == torch.float64 and not torch.equal(weight, weight.float().double())
    assert not any("dtype" in w or "double" in w for w in report.plan.warnings)


def test_lazy_models_get_their_shapes_and_their_levels():
    layers = [nn.LazyConv2d(48, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*layers, nn.LazyLinear(128), nn.ReLU(), nn.LazyLinear(128), nn.ReLU())
    anyinit.initialize(model, (8, 3, 6, 6), seed=0)
    assert not any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters())
    x = normal(64, 3, 6, 6)
    with torch.no_grad():
        for layer in model:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                assert 0.5 < level(x) < 2


class Again(nn.Module):
    """One layer applied several times."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.seen = nn.Linear(192, 192), list[torch.Tensor]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = []
        for _ in range(6):
            x = torch.relu(self.step(x))
            self.seen.append(x)
        return x


@pytest.mark.parametrize("mode", MODES)
def test_a_layer_used_again_and_again_is_drawn_once_and_holds_its_level(mode: str):
    logs = np.zeros(6)
    for seed in range(4):
        model, x = Again(), normal(96, 192, seed=seed)
        plan = anyinit.initialize(model, x, mode, seed=seed).plan
        assert [w.name for w in plan.weights] == ["step.weight", "step.bias"]
        with torch.no_grad():
            model(x)
        logs += [math.log(level(v)) / 4 for v in model.seen]
    assert np.abs(logs).max() < math.log(3)


def noise_states() -> tuple[Any, ...]:
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()


@pytest.mark.parametrize("mode", MODES)
def test_global_random_states_are_what_they_were(mode: str):
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Dropout(0.5), nn.Linear(48, 8))
    random.seed(7), np.random.seed(7), torch.manual_seed(7)
    before = noise_states()
    anyinit.initialize(model, normal(16, 24), mode, seed=0)
    assert noise_states() == before


def normalized(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    body = [nn.Linear(24, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.5), nn.Linear(48, 48), nn.ReLU()]
    return nn.Sequential(*body, nn.Linear(48, 6))


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_gives_the_same_bytes_whatever_the_model_held(mode: str):
    one, two, other = normalized(1), normalized(2), normalized(3)
    with torch.no_grad():
        for p in two.parameters():
            p.mul_(5)
    two.eval()
    torch.manual_seed(4)
    for model, seed in ((one, 5), (two, 5), (other, 6)):
        anyinit.initialize(model, normal(48, 24), mode, seed=seed)
    assert torch.equal(flat(one), flat(two))
    assert not torch.allclose(flat(one), flat(other))


@pytest.mark.parametrize("mode", MODES)
def test_running_statistics_and_flags_are_kept(mode: str):
    model = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 12, 3), nn.BatchNorm2d(12))
    model(normal(8, 3, 10, 10) * 3 - 1)
    model[4].eval()
    flags = [m.training for m in model.modules()]
    kept = {n: b.clone() for n, b in model.named_buffers()}
    anyinit.initialize(model, normal(8, 3, 10, 10), mode, seed=0)
    assert all(torch.equal(b, kept[n]) for n, b in model.named_buffers())
    assert flags == [m.training for m in model.modules()]


@pytest.mark.parametrize("number", [0.0, 1e-12, -1e-5])
def test_a_batch_of_one_small_number_is_refused_where_levels_are_measured(number: float):
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(anyinit.ConfigError, match="Nothing can be measured"):
        anyinit.initialize(model, torch.full((24, 12), number), "empirical", seed=0)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_constant_batch_does_not_blow_weights_up():
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    anyinit.initialize(model, torch.ones(24, 12), "empirical", seed=0)
    assert max(p.abs().max().item() * math.sqrt(p.shape[-1]) for p in model.parameters()) < 12


@pytest.mark.parametrize("mode", MODES)
def test_parameters_stay_the_objects_an_optimizer_holds(mode: str):
    model = smooth(24)
    model[2].weight.requires_grad_(False)
    frozen = model[2].weight.detach().clone()
    handle = model[0].register_forward_hook(lambda module, args, out: None)
    before = [(id(p), p.requires_grad, p.is_leaf, p.grad, p.device, p.dtype) for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    anyinit.initialize(model, normal(16, 24), mode, seed=0)
    assert [(id(p), p.requires_grad, p.is_leaf, p.grad, p.device, p.dtype) for p in model.parameters()] == before
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [b[0] for b in before]
    assert torch.equal(model[2].weight, frozen)
    assert list(model[0]._forward_hooks) == [handle.id]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model[1:])


def test_complex_weights_are_drawn_in_the_whole_plane():
    model = nn.Sequential(*[nn.Linear(96, 96, bias=False, dtype=torch.complex64) for _ in range(4)])
    x = torch.complex(normal(96, 96, seed=1), normal(96, 96, seed=2)) / math.sqrt(2)
    anyinit.initialize(model, x, seed=0)
    for p in model.parameters():
        assert p.dtype == torch.complex64
        assert (p.imag.var() / p.real.var()).item() == pytest.approx(1.0, rel=0.2)
        assert abs((p.real * p.imag).mean().item()) < 0.1 * p.real.var().item()
    with torch.no_grad():
        assert level(model(x)) == pytest.approx(level(x), rel=0.4)

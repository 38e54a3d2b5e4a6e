"""Bad input is refused with the right error, and a model that was refused, or that failed half-way, is as before."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import anyinit
from anyinit import AnyInitError
from anyinit.errors import BackendNotFoundError, ConfigError, TraceError


def net() -> nn.Module:
    torch.manual_seed(5)
    body = [nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.GELU()]
    model = nn.Sequential(*body, nn.Linear(32, 6))
    model(torch.randn(8, 24) + 1)  # running statistics of its own
    model[3].eval()
    model[4].weight.requires_grad_(False)
    return model


def state(model: nn.Module) -> dict[str, Any]:
    """Everything a user could miss: numbers, objects, flags, hooks, gradients and random states."""
    tensors = {n: (id(t), t.detach().clone().numpy().tobytes()) for n, t in model.state_dict(keep_vars=True).items()}
    flags = [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    grads = [(p.requires_grad, p.grad is None, p.is_leaf) for p in model.parameters()]
    noise = (random.getstate(), str(np.random.get_state()), torch.get_rng_state().numpy().tobytes())
    return {"tensors": tensors, "flags": flags, "grads": grads, "noise": noise, "mode": torch.is_grad_enabled()}


def broken(at: int) -> torch.Tensor:
    batch = torch.ones(8, 24)
    batch.view(-1)[at] = float("nan") if at % 2 else float("inf")
    return batch


BAD: dict[str, tuple[type[AnyInitError], str, tuple[Any, ...], dict[str, Any]]] = {
    "empty batch": (ConfigError, "empty", (torch.zeros(0, 24),), {}),
    "shape without samples": (ConfigError, "empty", ((0, 24),), {}),
    "negative shape": (ConfigError, "empty", ((-3, 24),), {}),
    "one NaN": (ConfigError, "1 of 192 entries are NaN", (broken(7),), {}),
    "one infinity": (ConfigError, "not finite", (broken(190),), {"mode": "empirical"}),
    "sparse batch": (ConfigError, "to_dense", (torch.eye(8, 24).to_sparse(),), {}),
    "input of no use": (ConfigError, "cannot be used", (object(),), {}),
    "no tensor inside": (ConfigError, "holds no tensor", ({},), {}),
    "wrong width": (TraceError, "shapes cannot be multiplied", ((8, 23),), {}),
    "wrong batch": (TraceError, "shapes cannot be multiplied", (torch.ones(8, 3, 24, 2),), {}),
    "mode": (ConfigError, "Did you mean 'analytic'", ((8, 24), "analytik"), {}),
    "no data to measure": (ConfigError, "got none", ((8, 24), "empirical"), {}),
    "target": (ConfigError, "Unknown value of target", ((8, 24),), {"target": "unitt"}),
    "distribution": (ConfigError, "Did you mean 'orthogonal'", ((8, 24),), {"distribution": "ortogonal"}),
    "residual": (ConfigError, "Unknown value of residual", ((8, 24),), {"residual": 3}),
    "bias": (ConfigError, "Did you mean 'keep'", ((8, 24),), {"bias": "kept"}),
    "correct": (ConfigError, "Unknown value of correct", ((8, 24),), {"correct": "sometimes"}),
    "option that does not exist": (ConfigError, "Did you mean 'target'", ((8, 24),), {"targt": "unit"}),
    "negative seed": (ConfigError, "between 0 and", ((8, 24),), {"seed": -1}),
    "word for a seed": (ConfigError, "seed", ((8, 24),), {"seed": "zero"}),
    "boolean seed": (ConfigError, "seed", ((8, 24),), {"seed": True}),
    "zero gain": (ConfigError, "positive finite", ((8, 24),), {"gains": {"0.weight": 0}}),
    "negative gain": (ConfigError, "positive finite", ((8, 24),), {"gains": {"0.weight": -2.0}}),
    "gain that is no number": (ConfigError, "positive finite", ((8, 24),), {"gains": float("nan")}),
    "only= matches nothing": (ConfigError, "matches no parameter", ((8, 24),), {"only": "decoder.*"}),
    "skip= matches nothing": (ConfigError, "matches no parameter", ((8, 24),), {"skip": ["0.weight", "7.bias"]}),
    "gain of nothing": (ConfigError, "matches no parameter", ((8, 24),), {"gains": {"head": 2.0}}),
    "override of nothing": (ConfigError, "matches no parameter", ((8, 24),), {"overrides": {"head": {"std": 1.0}}}),
    "module of another model": (ConfigError, "no part of the model", ((8, 24),), {"only": nn.Linear(24, 32)}),
    "predicate true of nothing": (ConfigError, "matches no parameter", ((8, 24),), {"only": lambda name: False}),
    "predicate that fails": (ConfigError, "failed on", ((8, 24),), {"skip": lambda name: name[99]}),
    "constant of nothing": (ConfigError, "a value", ((8, 24),), {"overrides": {"*": {"distribution": "constant"}}}),
    "mean alone": (ConfigError, "a std", ((8, 24),), {"overrides": {"*": {"distribution": "normal", "value": 1}}}),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_nothing_is_touched(case: str):
    kind, words, args, options = BAD[case]
    model = net()
    before = state(model)
    with pytest.raises(kind, match=words):
        anyinit.initialize(model, *args, **options)
    assert state(model) == before


@pytest.mark.parametrize(
    "thing", [[1, 2], object(), "model", None, {"weight": 1}, nn.Linear], ids=lambda t: type(t).__name__
)
def test_what_is_no_model_is_refused(thing: object):
    with pytest.raises(BackendNotFoundError):
        anyinit.initialize(thing, (8, 24))


def test_the_exception_of_the_model_is_chained():
    with pytest.raises(TraceError) as caught:
        anyinit.initialize(net(), (8, 23))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "23" in str(caught.value.__cause__)


class Pair(nn.Module):
    """Needs two inputs and a keyword that nobody could guess."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor, y: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        return x * self.weight + y * scale


def test_a_model_whose_input_cannot_be_inferred_asks_for_it():
    model = Pair()
    with pytest.raises(ConfigError, match="none can be inferred"):
        anyinit.initialize(model)
    assert torch.equal(model.weight, torch.ones(3))


def test_a_model_without_memory_is_refused_by_name():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 6))
    with pytest.raises(ConfigError, match=r"0\.weight is on the meta device"):
        anyinit.initialize(model, (8, 24))
    assert all(p.device.type == "meta" for p in model.parameters())


class Fragile(nn.Module):
    """Fails on some calls only, as a model with a bug or a full memory does."""

    def __init__(self, fails: Callable[[int], bool]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 32), nn.Linear(32, 32)
        self.norm = nn.BatchNorm1d(32)
        self.fails, self.calls = fails, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails(len(x)):
            x.new_zeros(2)[:5].view(7)
        return self.second(torch.relu(self.norm(self.first(x))))


def test_a_model_that_fails_by_itself_is_as_before():
    model = Fragile(lambda n: True)
    before = state(model)
    with pytest.raises(TraceError) as caught:
        anyinit.initialize(model, torch.randn(8, 24), "empirical")
    assert caught.value.__cause__ is not None
    assert {k: v for k, v in state(model).items() if k != "noise"} == {k: v for k, v in before.items() if k != "noise"}


class Stepping(nn.Module):
    """Trains itself whenever gradients are on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(24, 6)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.optimizer.zero_grad()
            self.layer(x).sum().backward()
            self.optimizer.step()
        return self.layer(x)


def test_a_model_that_trains_itself_in_a_run_is_diagnosed_and_not_changed():
    model = Stepping()
    before, batch = state(model), torch.randn(8, 24, generator=torch.Generator().manual_seed(0))
    anyinit.diagnose(model, batch)
    assert state(model) == before
    model(batch)
    assert state(model)["tensors"] != before["tensors"]  # the step is real


@pytest.mark.parametrize("mode", ["analytic", "empirical"])
def test_a_failure_in_the_third_write_restores_every_parameter(mode: str, monkeypatch: pytest.MonkeyPatch):
    model = net()
    batch = torch.randn(16, 24, generator=torch.Generator().manual_seed(0))
    before = state(model)
    mine, plain, writes = {id(p) for p in model.parameters()}, torch.Tensor.copy_, []

    def copy(self: torch.Tensor, other: torch.Tensor, *args: Any) -> torch.Tensor:
        if id(self) in mine:
            writes.append(id(self))
            if len(writes) == 3:
                raise MemoryError("no more")
        return plain(self, other, *args)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "copy_", copy)
        with pytest.raises(MemoryError):
            anyinit.initialize(model, batch, mode, seed=0)
    assert len(writes) > 3
    assert state(model) == before


def test_without_rollback_a_failed_write_is_left_where_it_stopped(monkeypatch: pytest.MonkeyPatch):
    model = net()
    before = state(model)["tensors"]
    mine, plain, writes = {id(p) for p in model.parameters()}, torch.Tensor.copy_, []

    def copy(self: torch.Tensor, other: torch.Tensor, *args: Any) -> torch.Tensor:
        if id(self) in mine:
            writes.append(id(self))
            if len(writes) == 3:
                raise MemoryError("no more")
        return plain(self, other, *args)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "copy_", copy)
        with pytest.raises(MemoryError):
            anyinit.initialize(model, (16, 24), seed=0, rollback=False)
    after = state(model)["tensors"]
    assert len(writes) == 3
    assert sum(before[n] != after[n] for n in before) in {1, 2}


def test_a_failure_while_the_drawn_network_is_measured_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    from anyinit._solve import correct

    model = net()
    before = state(model)
    calls: list[int] = []

    def stop(x: Any) -> float:
        calls.append(1)
        if len(calls) == 2:
            raise FloatingPointError("enough")
        return 1.0

    monkeypatch.setattr(correct, "square_mean", stop)
    with pytest.raises(FloatingPointError):
        anyinit.initialize(model, torch.randn(16, 24, generator=torch.Generator().manual_seed(0)), "empirical", seed=0)
    assert len(calls) == 2
    assert state(model) == before

"""What a newcomer gets wrong first is answered with the cause, the value and the next step."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import anyinit


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.a(x) * mask


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return net()


MISTAKES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a name": (lambda: anyinit.initialize("gpt2", (8, 4)), "the string 'gpt2'", "build the model first"),
    "a class": (lambda: anyinit.initialize(nn.Linear, (8, 4)), "the class Linear", r"an instance of it, Linear\("),
    "parameters": (lambda: anyinit.initialize(net().state_dict(), (8, 4)), "OrderedDict", "the model they belong to"),
    "layers": (lambda: anyinit.initialize([nn.Linear(4, 4)], (8, 4)), "list", "has to be made a model"),
    "wrong order": (lambda: anyinit.initialize((8, 4), net()), "tuple", "The model comes first"),
    "wrong width": (lambda: anyinit.initialize(net(), (8, 5)), r"\(8, 5, 'float32'\)", "the shape and type"),
    "one sample": (
        lambda: anyinit.initialize(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 2)), (3, 8, 8)),
        r"\(3, 8, 8, 'float32'\)",
        "first dimension counts the samples",
    ),
    "wrong type": (lambda: anyinit.initialize(net(), torch.rand(8, 4).double()), "'float64'", "shape and type"),
    "one input of two": (lambda: anyinit.initialize(Masked(), (8, 4)), "'mask'", "forward= to say how"),
    "unbuilt, no input": (lambda: anyinit.initialize(nn.LazyLinear(4)), "LazyLinear", "Pass a shape such as"),
    "a number": (lambda: anyinit.initialize(net(), 8), "Got: 8", "Pass a shape such as"),
    "meta device": (lambda: anyinit.initialize(on_meta(), (8, 4)), r"0\.weight", "to_empty.*or use plan"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_its_value_and_the_next_step(mistake: str):
    call, value, step = MISTAKES[mistake]
    with pytest.raises(anyinit.AnyInitError) as caught:
        call()
    assert re.search(value, str(caught.value))
    assert re.search(step, str(caught.value))


def test_a_double_batch_that_is_refused_leaves_the_model_alone():
    model = net()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    with pytest.raises(anyinit.TraceError) as caught:
        anyinit.initialize(model, torch.rand(8, 4).double(), seed=0)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())
    assert anyinit.initialize(model.double(), torch.rand(8, 4).double(), seed=0).healthy


def test_without_a_framework_the_message_names_the_extras(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(anyinit.BackendUnavailableError, match=r"pip install 'anyinit\[torch\]'.*extras for .*jax"):
        anyinit.initialize(object(), (8, 4))


def test_without_matplotlib_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    report = anyinit.initialize(net(), (8, 4), seed=0)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(anyinit.BackendUnavailableError, match=r"pip install 'anyinit\[plot\]'"):
        report.plot()


def test_a_misspelled_function_is_close_to_the_right_one():
    with pytest.raises(AttributeError) as caught:
        anyinit.initialise  # noqa: B018
    assert caught.value.name == "initialise"
    assert caught.value.obj is anyinit

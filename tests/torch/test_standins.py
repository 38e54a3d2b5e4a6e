"""The shapes assumed without data are PyTorch's own, and keep its compiler out of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from anyinit._frameworks.torch import standins
from anyinit._frameworks.torch.recording import equal
from anyinit._frameworks.torch.runtime import open_model
from anyinit.errors import TraceError

MODELS = {
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, dilation=2, groups=1),
            nn.BatchNorm2d(8),
            nn.Hardswish(inplace=True),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.AdaptiveAvgPool2d((2, 3)),
        ),
        (2, 3, 17, 19),
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 5, 16)),
    "lstm": (lambda: nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True), (2, 5, 4)),
    "projected": (lambda: nn.LSTM(4, 6, proj_size=3), (5, 2, 4)),
    "gru": (lambda: nn.GRU(4, 6), (5, 2, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_is_the_same_with_the_rules_of_pytorch(name: str, monkeypatch):
    build, shape = MODELS[name]
    model = build()
    quick = open_model(model, shape).record()
    monkeypatch.setattr(standins, "STAND_INS", {})
    monkeypatch.setattr("anyinit._frameworks.torch.record.STAND_INS", {})
    assert equal(quick, open_model(model, shape).record()) == ""


X = torch.empty(2, 3, 4, device="meta")
CALLS = [
    (F.linear, X, torch.empty(5, 4, device="meta")),
    (torch.add, X, torch.empty(3, 1, device="meta")),
    (torch.add, torch.empty(4, device="meta"), X),
    (torch.mul, X.transpose(1, 2), 2.0),
    (torch.matmul, X, torch.empty(2, 4, 6, device="meta")),
    (torch.pow, X, 2),
    (torch.cat, [X, torch.empty(2, 5, 4, device="meta")], 1),
    (torch.mean, X, [0, -1], True),
    (torch.mean, X, [1]),
    (F.adaptive_avg_pool1d, X, [2]),
    (F.conv1d, X, torch.empty(6, 3, 2, device="meta"), None, 2, 1),
    (F.softmax, X.expand(2, 3, 4), -1),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c[0].__name__)
def test_a_rule_gives_the_shape_type_and_layout_of_pytorch(call):
    fn, *args = call
    mine = standins.STAND_INS[fn.__name__.lstrip("_")](*args)
    own = fn(*args)
    assert (mine.shape, mine.dtype, mine.stride()) == (own.shape, own.dtype, own.stride())


@pytest.mark.parametrize(
    "call",
    [
        (F.linear, X, torch.empty(5, 3, device="meta")),
        (torch.add, X, torch.empty(7, device="meta")),
        (torch.matmul, X, X),
        (torch.cat, [X, torch.empty(2, 3, device="meta")], 0),
        (F.linear, X, torch.empty(5, 4, device="meta", dtype=torch.float64)),
        (F.conv1d, X, torch.empty(6, 2, 2, device="meta")),
        (F.conv1d, X, torch.empty(6, 3, 9, device="meta")),
    ],
    ids=lambda c: c[0].__name__,
)
def test_what_is_not_plainly_right_is_left_to_pytorch(call):
    fn, *args = call
    assert standins.STAND_INS[fn.__name__](*args) is NotImplemented


def test_a_wrong_channel_count_still_raises_the_exception_of_pytorch():
    with pytest.raises(TraceError, match="to have 3 channels"):
        open_model(nn.Conv2d(3, 4, 3), (2, 5, 8, 8)).record()


def test_recording_common_layers_never_imports_the_compiler():
    code = """
import sys, torch
from torch import nn
from anyinit._frameworks.torch.runtime import open_model
cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
runtime = open_model(cnn, (2, 3, 8, 8))
runtime.run({}, range(len(runtime.record().values)), lambda *_: None)
open_model(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"), (3, 2, 8)).record()
open_model(nn.Sequential(nn.Embedding(9, 4), nn.LSTM(4, 4)), (3, 2)).record()
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

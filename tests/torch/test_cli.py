"""``anyinit check`` on PyTorch models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anyinit.cli import main
from tests_cli import conforms, strict

NET = """\
import torch
from torch import nn

print("read")


def build():
    print("built")
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))


class Equal(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 4)
        nn.init.constant_(self.first.weight, 0.1)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.mix = nn.Embedding(30, 16), nn.Linear(16, 4)

    def forward(self, x, ids):
        return self.mix(self.table(ids)) + x


model = build()
with torch.device("meta"):
    large = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
batch = torch.linspace(-2, 2, 256).reshape(32, 8).sin()
labels = torch.arange(32) % 4


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch), labels)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["net.py:build", "--input", "64,8"], 0),
        (["net.py:model", "--input", "64,8"], 0),
        (["net.py:build"], 0),
        (["net.py:build", "--batch", "net.py:batch", "--loss", "net.py:loss"], 0),
        (["net.py:Equal", "--input", "64,8"], 0),
        (["net.py:Equal", "--input", "64,8", "--as-is"], 1),
        (["net.py:large", "--input", "64,8", "--plan-only"], 0),
        (["net.py:large", "--input", "64,8"], 2),
        (["net.py:build", "--input", "64,9"], 2),
        (["net.py:Two", "--input", "64,4", "--input", "64", "--input-dtype", "float32", "--input-dtype", "int64"], 0),
        (["net.py:Two", "--input", "x=9,4", "--input", "ids=9", "--input-dtype=float32", "--input-dtype=int32"], 0),
        (["net.py:build", "--input", "64,8", "--batch", "net.py:batch"], 2),
        (["net.py:build", "--input", "64,8", "--seed", "-1"], 2),
    ],
)  # fmt: skip
def test_the_exit_code_says_healthy_findings_or_unusable(
    arguments: list[str], code: int, folder: Path, capsys: pytest.CaptureFixture[str]
):
    before = {p: p.read_bytes() for p in folder.rglob("*")}
    assert main(["check", *arguments, "--json"]) == code
    shown = capsys.readouterr()
    found = strict(shown.out)
    if code == 2:
        conforms(found, "Every object has", "there is instead")
        assert found["error"]["cause"] and found["error"]["remedy"]
    else:
        conforms(found, "Every object has", "`check` adds")
        assert found["healthy"] is (code == 0) is (not found["findings"])
        assert "read" in shown.err
    assert {p: p.read_bytes() for p in folder.rglob("*")} == before


def test_findings_are_those_of_the_library(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", "net.py:Equal", "--as-is", "--input", "64,8", "--json"]) == 1
    found = strict(capsys.readouterr().out)
    assert [(f["by"], f["kind"], f["where"]) for f in found["findings"]] == [
        ("diagnosis", "identical rows", ["first.weight"])
    ]
    assert found["report"] is None


def test_the_table_ends_with_the_verdict(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", "net.py:build", "--input", "64,8"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("net.py:build on 64,8: weights drawn by AnyInit, seed 0")
    assert told.rstrip().endswith("In all: healthy.")
    assert "0.weight" in told


def test_a_package_is_named_by_its_module(folder: Path, capsys: pytest.CaptureFixture[str]):
    package = folder / "package_of_net"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "width.py").write_text("WIDTH = 8\n")
    (package / "net.py").write_text(
        "from torch import nn\nfrom .width import WIDTH\n\n\ndef build():\n    return nn.Linear(WIDTH, 4)\n"
    )
    assert main(["check", "package_of_net.net:build", "--input", "64,8"]) == 0
    assert not list(folder.rglob("__pycache__"))


def test_a_seed_gives_the_same_report_twice(folder: Path, capsys: pytest.CaptureFixture[str]):
    told = list[str]()
    for seed in ("3", "3", "4"):
        main(["check", "net.py:build", "--input", "64,8", "--seed", seed, "--json"])
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != told[2]

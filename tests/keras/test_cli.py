"""``anyinit check`` on Keras models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anyinit.cli import main
from tests_cli import conforms, strict

NET = """\
import keras


def build(first="glorot_uniform"):
    return keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(32, "relu", kernel_initializer=first), keras.layers.Dense(4)]
    )


def equal():
    return build("ones")


def words():
    return keras.Sequential([keras.Input((6,), dtype="int32"), keras.layers.Embedding(30, 8), keras.layers.Dense(4)])
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["net.py:build", "--input", "64,8"], 0),
        (["net.py:build"], 0),
        (["net.py:equal", "--input", "64,8", "--as-is"], 1),
        (["net.py:words", "--input", "64,6", "--input-dtype", "int32"], 0),
        (["net.py:build", "--input", "64,9"], 2),
    ],
)
def test_keras_models_are_checked(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "net.py").write_text(NET)
    assert main(["check", *arguments, "--json"]) == code
    found = strict(capsys.readouterr().out)
    conforms(found, "Every object has", "there is instead" if code == 2 else "`check` adds")

"""``anyinit check`` on models of JAX, whose parameters live apart."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anyinit.cli import main
from tests_cli import conforms, strict

NET = """\
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4)(nn.relu(nn.Dense(32)(x)))


class Words(nn.Module):
    @nn.compact
    def __call__(self, ids):
        return nn.Dense(4)(nn.relu(nn.Embed(30, 16)(ids)))


def plain(params, x):
    return jnp.tanh(x @ params["a"]) @ params["b"]


def apart():
    return plain, {"a": jnp.zeros((8, 16)), "b": jnp.zeros((16, 4))}


def state():
    return nnx.Linear(8, 4, rngs=nnx.Rngs(0))
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["net.py:Net", "--input", "64,8"], 0),
        (["net.py:apart", "--input", "64,8"], 0),
        (["net.py:apart", "--input", "64,8", "--as-is"], 1),
        (["net.py:plain", "--input", "64,8"], 2),
        (["net.py:state", "--input", "64,8"], 0),
        (["net.py:Words", "--input", "64", "--input-dtype", "int32"], 0),
        (["net.py:Words", "--input", "64", "--input-dtype", "float32"], 2),
    ],
)
def test_models_of_jax_are_checked(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "net.py").write_text(NET)
    assert main(["check", *arguments, "--json"]) == code
    found = strict(capsys.readouterr().out)
    conforms(found, "Every object has", "there is instead" if code == 2 else "`check` adds")

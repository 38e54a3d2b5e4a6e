"""Which tests run is decided by ``ANYINIT_FRAMEWORKS``, never by what happens to be installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def conftest() -> ModuleType:
    spec = importlib.util.spec_from_file_location("the_conftest", Path(__file__).parents[1] / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_framework_that_is_asked_for_and_missing_fails_the_run(conftest: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANYINIT_FRAMEWORKS", "torch, jax")
    monkeypatch.setattr(conftest, "_missing", lambda name: ["jax"] if name == "jax" else [])
    with pytest.raises(pytest.UsageError, match="asks for jax, not installed"):
        conftest._chosen()


def test_an_unknown_framework_fails_the_run(conftest: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANYINIT_FRAMEWORKS", "torhc")
    with pytest.raises(pytest.UsageError, match="torhc"):
        conftest._chosen()


def test_only_the_frameworks_asked_for_are_collected(conftest: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANYINIT_FRAMEWORKS", "torch")
    monkeypatch.setattr(conftest, "_missing", lambda name: [])
    conftest.CHOSEN.update(conftest._chosen())
    here = conftest.HERE
    assert conftest.pytest_ignore_collect(here / "jax" / "test_x.py") is True
    assert conftest.pytest_ignore_collect(here / "torch" / "test_x.py") is None
    assert conftest.pytest_ignore_collect(here / "core" / "test_x.py") is None


def test_without_a_request_what_is_installed_is_collected(conftest: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANYINIT_FRAMEWORKS", raising=False)
    monkeypatch.setattr(conftest, "_missing", lambda name: [] if name == "jax" else [name])
    assert conftest._chosen() == {"jax"}

"""Which framework folders are collected, and one thread per test process.

``ANYINIT_FRAMEWORKS`` is a comma-separated list (``torch,jax,vision``). A framework named there must be installed: a
missing one fails the run instead of skipping its tests. Unset, the folders of installed frameworks are collected.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import settings

# the same examples in every run of continuous integration; new ones everywhere else
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

os.environ.setdefault("OMP_NUM_THREADS", "1")

FRAMEWORKS = {
    "torch": ("torch",),
    "jax": ("jax",),
    "tensorflow": ("tensorflow",),
    "keras": ("keras",),
    "vision": ("torch", "torchvision", "timm"),
}
BACKENDS = ("tensorflow", "jax", "torch")
HERE = Path(__file__).parent


def _missing(framework: str) -> list[str]:
    return [name for name in FRAMEWORKS[framework] if importlib.util.find_spec(name) is None]


def _chosen() -> set[str]:
    requested = os.environ.get("ANYINIT_FRAMEWORKS")
    if requested is None:
        return {name for name in FRAMEWORKS if not _missing(name)}
    names = {name.strip() for name in requested.split(",") if name.strip()}
    for name in sorted(names):
        if name not in FRAMEWORKS:
            raise pytest.UsageError(f"ANYINIT_FRAMEWORKS names {name!r}; known: {', '.join(FRAMEWORKS)}")
        if _missing(name):
            raise pytest.UsageError(f"ANYINIT_FRAMEWORKS asks for {name}, not installed: {', '.join(_missing(name))}")
    return names


CHOSEN: set[str] = set()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
installed = [name for name in BACKENDS if importlib.util.find_spec(name) is not None]
if installed:
    os.environ.setdefault("KERAS_BACKEND", installed[0])


def pytest_configure(config: pytest.Config) -> None:
    CHOSEN.update(_chosen())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    folder = collection_path.relative_to(HERE).parts[:1] if collection_path.is_relative_to(HERE) else ()
    return True if folder and folder[0] in FRAMEWORKS and folder[0] not in CHOSEN else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if folder in FRAMEWORKS:
            item.add_marker(getattr(pytest.mark, folder))

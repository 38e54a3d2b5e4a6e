"""What ``import anyinit`` loads, proved in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
HEAVY = ("torch", "jax", "flax", "equinox", "haiku", "keras", "tensorflow", "transformers", "matplotlib", "scipy")


def loaded_after(code: str) -> set[str]:
    """Top-level modules loaded in a new interpreter after running ``code``."""
    program = f"import sys; sys.path.insert(0, {str(SRC)!r})\n{code}\nprint('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("LOADED")
    return {name.split(".")[0] for name in last.split()[1:]}


def test_importing_the_package_loads_no_framework_no_matplotlib_and_no_scipy():
    assert not loaded_after("import anyinit") & set(HEAVY)


def test_the_probe_sees_a_heavy_module_when_one_is_loaded():
    assert "scipy" in loaded_after("import scipy")


def test_reports_and_plans_load_no_framework_and_no_matplotlib():
    code = "import anyinit; print(anyinit.Report(anyinit.Plan(0, ())))"
    assert not loaded_after(code) & set(HEAVY)


def test_profiling_an_activation_loads_no_framework():
    code = "import anyinit; anyinit.gain('relu')"
    assert not loaded_after(code) & set(HEAVY) - {"scipy"}


def test_every_public_name_can_be_fetched():
    import anyinit

    missing = [name for name in anyinit.__all__ if not hasattr(anyinit, name)]
    assert not missing
    assert set(anyinit.__all__) <= set(dir(anyinit))


def test_an_unknown_name_is_an_attribute_error():
    import anyinit

    with pytest.raises(AttributeError, match="initialise"):
        anyinit.initialise  # noqa: B018


def test_the_version_is_the_one_of_the_package_metadata():
    import tomllib

    import anyinit

    metadata = tomllib.loads((SRC.parent / "pyproject.toml").read_text())
    assert anyinit.__version__ == metadata["project"]["version"]

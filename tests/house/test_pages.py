"""The pages keep their word: commands, paths, links and names in them exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import anyinit

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TARGETS = set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_make_target_named_on_a_page_exists(page: Path):
    named = set(re.findall(r"`?\bmake ([a-z][a-z-]+)`", page.read_text()))
    for block in blocks(page, "sh"):
        named |= set(re.findall(r"^\s*make ([a-z-]+)", block, flags=re.MULTILINE))
    assert named <= TARGETS


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_file_that_a_page_runs_or_links_exists(page: Path):
    words = page.read_text()
    linked = [link for link in re.findall(r"\]\(([^)#:\s]+)\)", words)]
    run = re.findall(r"python ((?:examples|benchmarks)/\S+\.py)", words)
    missing = [p for p in linked if not (page.parent / p).exists()] + [p for p in run if not (ROOT / p).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_name_of_the_package_on_a_page_is_public(page: Path):
    named = set(re.findall(r"\banyinit\.([a-zA-Z]\w*)\(", page.read_text()))
    assert named <= set(anyinit.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_blocks_compile(page: Path):
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


def test_the_extras_that_the_readme_installs_exist():
    import tomllib

    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {e for group in re.findall(r"anyinit\[([a-z,-]+)\]", PAGES[0].read_text()) for e in group.split(",")}
    assert named
    assert named <= extras


def test_continuous_integration_runs_lint_types_and_tests():
    script = (ROOT / ".ci" / "run").read_text()
    assert all(f"make {target}" in script for target in ("lint", "typecheck", "test"))


def test_the_design_page_names_every_room():
    words = (ROOT / "docs" / "design.md").read_text()
    inside = [p for p in (ROOT / "src" / "anyinit").iterdir() if p.suffix == ".py" or p.is_dir()]
    rooms = {p.stem for p in inside} - {"__pycache__", "__init__"}
    assert [room for room in sorted(rooms) if f"`{room}" not in words] == []


def test_no_page_or_source_names_a_path_of_one_machine_or_a_package_index():
    files = [*PAGES, ROOT / "Makefile", ROOT / "pyproject.toml", *ROOT.glob("constraints*.txt")]
    files += [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
    banned = re.compile(r"(?<![\w.])/(?:home|root|opt|tmp)/|https?://\S*(?:/simple|/whl)")
    assert [str(f) for f in files if banned.search(f.read_text())] == []

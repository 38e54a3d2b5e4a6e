"""The rooms of the house: who may import whom, and how large a file may be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
PACKAGE = SRC / "anyinit"
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 450

# Each room and the rooms it may import from; a room may always import from itself.
MAY_IMPORT = {
    "errors": set(),
    "_notebook": set(),
    "_core": {"errors", "_notebook"},
    "_options": {"errors"},
    "_graph": {"errors", "_core"},
    "_rules": {"errors", "_core", "_graph"},
    "_solve": {"errors", "_core", "_graph", "_rules", "_options", "_notebook"},
    "report": {"errors", "_notebook", "_core", "_graph", "_rules", "_solve"},
    "_health": {"errors", "_notebook", "_core", "_graph", "_rules", "_solve", "report"},
    "_frameworks": {"errors", "_core", "_graph"},
}
MAY_IMPORT["_api"] = {*MAY_IMPORT}
MAY_IMPORT["jax"] = MAY_IMPORT["keras"] = MAY_IMPORT["_entries"] = {"_frameworks"}
MAY_IMPORT["__init__"] = {*MAY_IMPORT}
MAY_IMPORT["cli"] = MAY_IMPORT["lightning"] = MAY_IMPORT["transformers"] = {"__init__", "errors"}
MAY_IMPORT["__main__"] = {"cli"}
MAY_IMPORT["testing"] = {*MAY_IMPORT}

EVERYWHERE = {"numpy", "scipy"}
FRAMEWORKS = {
    "torch", "jax", "jaxlib", "flax", "equinox", "haiku", "keras", "tensorflow", "transformers", "optax", "lightning",
    "pytorch_lightning",
}  # fmt: skip
OF_A_ROOM = {
    "torch": {"torch"},
    "jax": {"jax", "jaxlib", "flax", "equinox", "haiku"},
    "tensorflow": {"tensorflow"},
    "keras": {"keras", "jax", "tensorflow", "torch"},
}
OF_A_FILE = {"lightning.py": {"lightning", "pytorch_lightning"}, "transformers.py": {"transformers"}}


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Full names of every module that a file imports, wherever the statement stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = path.relative_to(SRC).with_suffix("").parts[: -node.level]
                found.add(".".join((*base, node.module or "")).rstrip("."))
            else:
                found.add(node.module or "")
                found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "anyinit"}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            first = node.args[0]
            found |= {first.value} if isinstance(first, ast.Constant) else set()
    return found


def rooms_imported(path: Path) -> set[str]:
    known = set(MAY_IMPORT) - {"__init__"}
    names = {name.split(".")[1] for name in imported(path) if name.startswith("anyinit.")}
    return names & known - {room(path)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_from_rooms_below_its_own(path: Path):
    assert room(path) in MAY_IMPORT, f"{path} stands in no known room; add it to MAY_IMPORT and docs/design.md"
    assert rooms_imported(path) <= MAY_IMPORT[room(path)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_framework_is_imported_only_in_its_own_folder(path: Path):
    parts = path.relative_to(PACKAGE).parts
    inside = parts[0] == "_frameworks" and len(parts) > 2
    allowed = OF_A_ROOM.get(parts[1], set()) if inside else OF_A_FILE.get("/".join(parts), set())
    roots = {name.split(".")[0] for name in imported(path)}
    assert roots & FRAMEWORKS <= allowed


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_matplotlib_is_imported_only_by_the_style_of_the_plots(path: Path):
    roots = {name.split(".")[0] for name in imported(path)}
    assert "matplotlib" not in roots or path.name == "style.py"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_is_short_enough_to_be_read(path: Path):
    assert len(path.read_text().splitlines()) < LONGEST


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_error_is_swallowed(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or getattr(node.type, "id", "") in {"Exception", "BaseException"}
            silent = all(isinstance(s, ast.Pass | ast.Continue) for s in node.body)
            assert not (broad and silent), f"line {node.lineno}"


def test_the_walk_sees_an_import_that_breaks_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = "from anyinit import _api\nimport torch\n\ndef f():\n    from ..report import text\n"
    broken = tmp_path / "anyinit" / "_core" / "broken.py"
    broken.parent.mkdir(parents=True)
    broken.write_text(source)
    monkeypatch.setitem(globals(), "SRC", tmp_path)
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path / "anyinit")
    assert rooms_imported(broken) == {"_api", "report"}
    assert "torch" in imported(broken)

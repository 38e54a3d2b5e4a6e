"""The site: every page is reached from its navigation, and every public name has a place in the reference."""

from __future__ import annotations

import ast
import math
import re
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import anyinit

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
MODULES = {"anyinit.errors", "anyinit.testing"}
ENTRIES = {"anyinit.jax", "anyinit.keras", "anyinit.lightning", "anyinit.transformers"}  # each imports its framework
SETTINGS = (ROOT / "mkdocs.yml").read_text()


def navigated() -> list[str]:
    """Pages of the navigation, in order."""
    return re.findall(r"^\s+- [^:\n]+: (\S+\.md)$", SETTINGS[SETTINGS.index("\nnav:") :], flags=re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Headings as the links to them are spelled."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}


def test_every_page_stands_in_the_navigation_once():
    assert sorted(navigated()) == [str(page.relative_to(DOCS)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_every_link_of_a_page_leads_somewhere_on_the_site(page: Path):
    words = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", words)
    for target, anchor in links:
        goal = (page.parent / target).resolve() if target else page
        assert goal.exists() and goal.is_relative_to(DOCS), target
        assert not anchor or anchor in anchors(goal), f"{target}#{anchor}"


@pytest.mark.parametrize("page", sorted((DOCS / "tutorials").glob("*.md")), ids=lambda p: p.name)
def test_every_number_that_a_tutorial_stresses_is_printed_on_its_page(page: Path):
    words = page.read_text()
    printed = set(re.findall(r"[\w.+-]+", " ".join(re.findall(r"```text\n(.*?)```", words, flags=re.DOTALL))))
    stressed = re.findall(r"\*\*(-?\d[\d.e+-]*)\*\*", re.sub(r"```.*?```", "", words, flags=re.DOTALL))
    assert [number for number in stressed if number not in printed] == []


def test_the_curves_of_the_figure_are_those_of_the_page():
    curves = import_module("figures").data("norms")
    table = (DOCS / "tutorials" / "norms.md").read_text().split("cosine 100\n")[1].split("```")[0]
    rows = dict(re.match(r"(.+?)\s{2,}(.*)", line).groups() for line in table.splitlines())  # type: ignore[union-attr]
    assert len(rows) == len(curves) == 9
    for name, row in rows.items():
        shown = [float(cell) for cell in row.split()]
        levels, cosines = curves[name]["level"], curves[name]["cosine"]
        assert shown[:2] == pytest.approx([levels[0], levels[-1]], rel=0.05, abs=0), name
        assert shown[2:] == pytest.approx([cosines[0], cosines[-1]], abs=6e-3), name
    assert (DOCS / "img" / "norms.png").read_bytes().startswith(b"\x89PNG")


def test_the_depth_figure_shows_the_levels_and_gradients_of_the_page():
    words, curves = (DOCS / "tutorials" / "depth.md").read_text(), import_module("figures").data("depth")
    for name, first, last in re.findall(r"^(\d+ layers, \w+): level (\S+) -> (\S+),", words, flags=re.MULTILINE):
        levels = curves[name]["level"]
        assert (levels[0], levels[-1]) == pytest.approx((float(first), float(last)), rel=0.05), name
    for layers, *ratios in re.findall(
        r"^(\d+) layers, first over.*PyTorch (\S+), AnyInit (\S+)$", words, flags=re.MULTILINE
    ):
        for start, ratio in zip(("PyTorch", "AnyInit"), ratios, strict=True):
            gradient = curves[f"{layers} layers, {start}"]["gradient"]
            assert len(gradient) == int(layers) + 1
            assert gradient[1] / gradient[-2] == pytest.approx(float(ratio), rel=0.5)
    assert len(curves) == 4


def test_the_histograms_are_those_of_the_gradients_on_the_page():
    words, curves = (DOCS / "tutorials" / "lecture.md").read_text(), import_module("figures").data("lecture")
    stated = re.findall(r"^(\w+) +gradient rms +(\S+), exactly zero (\d+)%", words, flags=re.MULTILINE)
    assert [name for name, *_ in stated] == ["Xavier", "He", "AnyInit"]
    for name, rms, zero in stated:
        g = np.array(curves[name]["gradients"])
        assert len(g) == 141
        assert math.sqrt((g**2).mean()) == pytest.approx(float(rms), rel=0.02)
        assert 100 * np.mean(g == 0) == pytest.approx(float(zero), abs=0.6)


def test_the_levels_of_the_resnet_figure_are_those_of_the_page():
    words, rows = (DOCS / "tutorials" / "resnet.md").read_text(), import_module("figures").data("resnet")["report"]
    shown = re.findall(r"^(\S+) +fan .* output (\S+) +measured (\S+)$", words, flags=re.MULTILINE)
    assert [name for name, *_ in shown] == rows["name"]
    measured = [float(m) for _, _, m in shown]
    own = [i for i, path in enumerate(rows["name"]) if path != "stem.weight"]
    assert [rows["measured"][i] for i in own] == pytest.approx([measured[i] for i in own], rel=0.02)


def test_the_gradients_of_the_pinn_figure_are_those_of_the_page():
    words, rows = (DOCS / "tutorials" / "pinn.md").read_text(), import_module("figures").data("pinn")["report"]
    ratios = [float(x) for x in re.search(r"^\[([\d., ]+)\]$", words, flags=re.MULTILINE).group(1).split(",")]  # type: ignore[union-attr]
    found = [g / rows["predicted_grad"][2] for g in rows["predicted_grad"][:3]]
    assert found == pytest.approx(ratios, rel=0.05)


def test_the_last_branch_of_the_gpt_figure_is_that_of_the_page():
    words, rows = (DOCS / "tutorials" / "gpt.md").read_text(), import_module("figures").data("gpt")["report"]
    told = re.search(r"level at its target: predicted (\S+) .* measured (\S+)", words)
    assert told is not None
    at = rows["name"].index("blocks.2.down.weight")
    assert (rows["predicted"][at], rows["measured"][at]) == pytest.approx(tuple(map(float, told.groups())), rel=0.05)


def test_every_picture_on_a_page_is_made_by_the_script():
    shown = {name for page in PAGES for name in re.findall(r"\]\(\S*img/(\w+)\.png\)", page.read_text())}
    figures = import_module("figures")
    assert shown == set(figures.FIGURES)
    assert all((DOCS / "data" / f"{name}.json").exists() for name in shown)


def test_the_dashed_lines_are_the_moment_map():
    figures = import_module("figures")
    curves = figures.data("norms")
    for name, f, gain in (("relu", lambda x: np.maximum(x, 0), math.sqrt(2)), ("tanh", np.tanh, 5 / 3)):
        start = curves[name]["level"][0], curves[name]["cosine"][0]
        levels, cosines = figures.predicted(f, gain, *start, 20)
        assert curves[name]["level predicted"][:21] == pytest.approx(levels, rel=1e-4)
        assert curves[name]["cosine predicted"][:21] == pytest.approx(cosines, abs=1e-4)


def test_the_reference_has_every_public_name():
    words = (DOCS / "api.md").read_text()
    places = re.findall(r"^::: ([\w.]+)$", words, flags=re.MULTILINE)
    errors = {name for name in anyinit.__all__ if name.endswith("Error")}
    assert "anyinit.errors" in places
    assert {place.rpartition(".")[2] for place in places} >= set(anyinit.__all__) - errors - {"__version__"}


def documented(home: str, name: str) -> bool:
    """Whether a module defines a name with a docstring, or takes one from a module that does; nothing is imported."""
    tree = ast.parse((ROOT / "src" / (home.replace(".", "/") + ".py")).read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return bool(ast.get_docstring(node))
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return documented(node.module or "", name)
    return False


def test_every_entry_of_the_reference_exists():
    for place in re.findall(r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(), flags=re.MULTILINE):
        home, _, name = place.rpartition(".")
        if home in ENTRIES:
            assert documented(home, name), place
        else:
            found = import_module(place) if place in MODULES else getattr(import_module(home), name)
            assert found.__doc__, place


@pytest.mark.parametrize("home", sorted(ENTRIES))
def test_the_reference_has_every_name_of_the_modules_of_one_framework(home: str):
    tree = ast.parse((ROOT / "src" / (home.replace(".", "/") + ".py")).read_text())
    names = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    words = (DOCS / "api.md").read_text()
    assert names and [name for name in names if f"::: {home}.{name}\n" not in words] == []


def test_continuous_integration_builds_the_site_with_warnings_as_errors():
    makefile = (ROOT / "Makefile").read_text()
    assert "make docs" in (ROOT / ".ci" / "run").read_text()
    assert "mkdocs build --strict" in makefile
    assert re.search(r"^strict: true$", SETTINGS, flags=re.MULTILINE)
    assert set(re.findall(r"(\w+): (\w+)", SETTINGS[SETTINGS.index("\nvalidation:") : SETTINGS.index("\nnav:")])) >= {
        ("omitted_files", "warn"),
        ("not_found", "warn"),
        ("anchors", "warn"),
    }


def test_every_framework_that_an_error_names_can_be_installed_as_an_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(anyinit.known_backends()) <= set(extras)

"""The pages keep their word: commands, paths, links and names in them exist."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import anyinit

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
    prose = re.sub(r"```.*?```", "", words, flags=re.DOTALL)  # in code, brackets are no links
    linked = [link for link in re.findall(r"\]\(([^)#:\s]+)\)", prose)]
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


HOMES = {
    "torch": "torch", "transformers": "torch", "lightning": "torch", "torchvision": "vision", "timm": "vision",
    "jax": "jax", "flax": "jax", "equinox": "jax", "haiku": "jax", "keras": "jax", "numpy": "anywhere",
}  # fmt: skip
NEEDS = {
    "torch": ("torch", "transformers", "lightning"),
    "jax": ("jax", "flax", "equinox", "haiku", "keras"),
    "vision": ("torchvision",),
}


@dataclass(frozen=True)
class Example:
    """A block of a page, where it needs to run, and the output printed below it."""

    line: int
    home: str
    code: str
    shown: str | None
    place: tuple[int, int]


def examples(page: Path) -> list[Example]:
    """Python blocks; one that imports neither a framework nor NumPy runs where the block before it ran."""
    words, home, found = page.read_text(), "anywhere", list[Example]()
    for m in re.finditer(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", words, flags=re.DOTALL):
        imported = set(re.findall(r"^(?:import|from) (\w+)", m.group(1), flags=re.MULTILINE))
        homes = {HOMES[name] for name in imported if name in HOMES}
        home = next((h for h in ("vision", "jax", "torch", "anywhere") if h in homes), home)
        found.append(Example(words[: m.start()].count("\n"), home, m.group(1), m.group(2), m.span(2)))
    return found


def homes() -> set[str]:
    """Environments whose blocks run here, by the same rule as the tests' folders."""
    asked = os.environ.get("ANYINIT_FRAMEWORKS")
    if asked is not None:
        return {name.strip() for name in asked.split(",")} | {"anywhere"}
    return {h for h, needs in NEEDS.items() if all(map(importlib.util.find_spec, needs))} | {"anywhere"}


def ran(page: Path, home: str) -> list[tuple[Example, str]]:
    """The blocks of one page and environment, run in order in one namespace, with what they printed."""
    names: dict[str, object] = {"__name__": f"page_{page.stem}_{home}"}
    module = ModuleType(str(names["__name__"]))
    module.__dict__.update(names)
    sys.modules[module.__name__] = module
    out = list[tuple[Example, str]]()
    try:
        for example in (e for e in examples(page) if e.home == home):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * (example.line + 1) + example.code, str(page), "exec"), module.__dict__)
            out.append((example, printed.getvalue()))
    finally:
        del sys.modules[module.__name__]
    return out


RUNNABLE = sorted((p, h) for p in PAGES for h in {e.home for e in examples(p)} & homes())
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def same(printed: str, shown: str) -> bool:
    """Whether two outputs have the same words, and numbers within five per cent."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=0.05) for a, b in pairs)


@contextlib.contextmanager
def own_names() -> Iterator[None]:
    """What a page registers is forgotten after it: two pages may name one function differently."""
    before = set(anyinit.registered_activations())
    yield
    for name in set(anyinit.registered_activations()) - before:
        anyinit.unregister_activation(name)


@pytest.fixture
def clean_registry() -> Iterator[None]:
    with own_names():
        yield


@pytest.mark.parametrize(("page", "home"), RUNNABLE, ids=lambda v: v.name if isinstance(v, Path) else v)
def test_python_blocks_run_and_print_what_the_page_shows(
    page: Path, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_registry: None
):
    monkeypatch.chdir(tmp_path)
    for example, printed in ran(page, home):
        if example.shown is not None:
            assert same(printed, example.shown), f"{page.name}:{example.line}\n{printed}"


def test_an_output_with_another_word_or_another_number_is_not_the_same():
    assert same("level 1.00 of 26", "level  1.01 of 26")
    assert not same("level 1.2 of 26", "level 1 of 26")
    assert not same("level 1 of 26", "levels 1 of 26")


def test_the_policy_page_states_the_constants_of_the_source():
    words = (ROOT / "docs" / "policy.md").read_text()
    stated = {(m[0], m[1]): float(m[2]) for m in re.findall(r"^\| `(\w+)\.(\w+)` \| ([\d.]+) \|", words, re.MULTILINE)}
    assert len(stated) > 10
    found = {(room, name): float(getattr(import_module(f"anyinit._solve.{room}"), name)) for room, name in stated}
    assert stated == found


def test_the_limits_page_lists_the_vocabulary():
    vocabulary = {op.__name__ for op in import_module("anyinit._graph.ops").VOCABULARY} - {"Opaque"}
    words = (ROOT / "docs" / "limits.md").read_text()
    assert vocabulary <= set(re.findall(r"`(\w+)`", words))


def test_every_file_that_the_design_page_names_exists():
    words = (ROOT / "docs" / "design.md").read_text()
    named = set(re.findall(r"`(_?\w+/\w+\.py)`", words))
    assert len(named) > 15
    assert [f for f in sorted(named) if not (ROOT / "src" / "anyinit" / f).exists()] == []


def test_the_results_page_and_the_readme_are_what_the_benchmarks_make_of_the_data():
    results = import_module("results")
    assert results.PAGE.read_text() == results.page()
    assert results.written(results.README.read_text()) == results.README.read_text()
    assert all(mark in results.README.read_text() for mark in results.MARKS)
    assert set(results.torch_runs().done) == set(results.training.TASKS)
    assert set(results.jax_runs().done) <= set(results.training_jax.TASKS)


def test_the_readme_admits_every_task_on_which_another_start_was_better():
    results, scoring = import_module("results"), import_module("scoring")
    words = " ".join(results.README.read_text().split())
    for runs in (results.torch_runs(), results.jax_runs()):
        table = scoring.cells(runs.rows)
        for task in runs.done:
            mine = table[task, "anyinit"]
            rest = min(table[task, c] for c in runs.names if c not in scoring.OURS)
            assert (f"{task} ({mine / rest:.2g})" in words) == (rest < mine and not scoring.equal(rest, mine))


def test_the_benchmark_counts_ties_ranks_and_divergence():
    scoring = import_module("scoring")
    losses = {"default": math.inf, "xavier": 1.0, "orthogonal": 0.5, "he": 0.011, "lsuv": 0.01, "anyinit": 0.01}
    table = {("t", name): loss for name, loss in {**losses, "anyinit unit": 2.0}.items()}
    assert scoring.ranks(table, ["t"], "he") == scoring.ranks(table, ["t"], "lsuv") == [2.0]
    assert scoring.ranks(table, ["t"], "default") == [7.0]
    assert scoring.score(table, {"t": 1.0}, "anyinit") == 1.0
    assert scoring.score(table, {"t": 1.0}, "default") == scoring.score(table, {"t": 1.0}, "anyinit unit") == 0.0
    assert scoring.score(table, {"t": 1.0}, "orthogonal") == pytest.approx(math.log(2) / math.log(100))


def test_long_runs_are_compared_at_each_figures_own_rate_and_paired_by_seed():
    longer = import_module("longer")

    def run(contender: str, seed: int, rate: float, loss: float, held: float) -> dict[str, object]:
        return {
            "task": "t", "contender": contender, "seed": seed, "rate": rate, "loss": loss, "held": held,
            "held_end": 2 * held, "constant": 1.0,
        }  # fmt: skip

    noise = [1.0, 1.1, 0.9]
    rows = [run("anyinit", s, 0.1, 0.010 * n, 0.9) for s, n in enumerate(noise)]
    rows += [run("anyinit", s, 0.2, 0.5, 0.20 * n) for s, n in enumerate(noise)]
    rows += [run("he", s, 0.1, 0.020 * n * (1 + 0.01 * s), 0.1 * n * (1 + 0.01 * s)) for s, n in enumerate(noise)]
    rows += [run("lsuv", 0, 0.1, 3.0, 0.8), run("xavier", 0, 0.1, 4.0, 0.9), run("lsuv", 1, 0.1, 3.0, 0.8)]
    rows += [run("lsuv", 2, 0.1, 3.0, 0.8)]
    rows += [run("xavier", s, 0.1, 4.0, 0.9) for s in (1, 2)]
    loss, held = (longer.compared(rows, "t", figure) for figure in ("loss", "held"))
    assert (loss.rival, loss.seeds) == ("he", 3)
    assert loss.ratio == pytest.approx(0.5 / (1.01 * 1.02) ** (1 / 3))
    assert loss.p < 0.01
    assert not loss.worse
    assert held.ratio == pytest.approx(2 / (1.01 * 1.02) ** (1 / 3))
    assert held.worse


def refresh(page: Path) -> None:
    """Write what the blocks print today below them; other environments' blocks stay as they are."""
    printed = {e.place: text for home in homes() for e, text in ran(page, home) if e.shown is not None}
    words = page.read_text()
    for (start, end), text in sorted(printed.items(), reverse=True):
        words = words[:start] + "\n".join(line.rstrip() for line in text.splitlines()) + "\n" + words[end:]
    page.write_text(words)


if __name__ == "__main__":  # python tests/house/test_pages.py: refresh the outputs on all pages
    for one in PAGES:
        with own_names():
            refresh(one)

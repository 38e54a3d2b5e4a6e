"""Commands: exit codes, JSON as documented, and errors that name the next step."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from anyinit.cli import loading, main
from anyinit.cli.check import Abstract, inputs
from anyinit.errors import ConfigError
from tests_cli import conforms, strict

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    return tmp_path


def written(folder: Path, code: str, name: str = "net.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(code))
    return path


@pytest.mark.parametrize("text", ["gelu", "x*sigmoid(1.702*x)", "-x*tanh(x)", "-x", "tanh", "x**3", "sign(x)", "0*x"])
def test_a_profile_conforms_to_the_documented_schema(text: str, capsys: pytest.CaptureFixture[str]):
    assert main(["activation", text, "--json"]) == 0
    found = strict(capsys.readouterr().out)
    conforms(found, "Every object has", "`activation` adds")
    assert found["expression"] == text
    assert set(found["gains"]) == {"rms", "std", "grad"}


def test_an_expression_and_the_name_it_spells_have_one_profile(capsys: pytest.CaptureFixture[str]):
    found = []
    for text in ("quick_gelu", "x*sigmoid(1.702*x)"):
        main(["activation", "--json", text])
        found.append(strict(capsys.readouterr().out))
    for key in ("second_moment", "chi", "chi_1", "sigma_star"):
        assert found[0][key] == pytest.approx(found[1][key], rel=1e-9)


@pytest.mark.parametrize("text", ["__import__('os')", "sgmoid", "9**9**9**9", "(" * 10_000, "", "exp(x**2)", "1/x"])
def test_what_has_no_profile_exits_with_2_and_says_why(text: str, capsys: pytest.CaptureFixture[str]):
    assert main(["activation", text]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("anyinit: ") and "Traceback" not in shown.err
    assert main(["activation", text, "--json"]) == 2
    found = strict(capsys.readouterr().out)
    conforms(found, "Every object has", "there is instead")
    assert set(found["error"]) == {"kind", "cause", "value", "remedy"}


@pytest.mark.parametrize("arguments", [[], ["chekc"], ["check"], ["check", "a.py:b", "--as-is", "--plan-only"]])
def test_unusable_arguments_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: anyinit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("net.py", "names no object"),
        ("nte.py:build", "no such file.*'net.py'"),
        ("net.py:biuld", "no biuld in net.py.*'build'"),
        (".:build", "neither a .py file nor a module"),
        ("no_such_module_here:build", "ModuleNotFoundError.*Install no_such_module_here"),
        ("net.py:needs", "takes arguments.*width.*defaults"),
        ("net.py:nothing", "returned nothing.*return the model"),
        ("net.py:three", "tuple of 3.*(model, params)"),
        ("net.py:fails", r"could not be built.*ZeroDivisionError.*net.py, line 4"),
        ("broken.py:build", "SyntaxError.*broken.py, line 2"),
        ("raises.py:build", "KeyError.*raises.py, line 2"),
        ("ends.py:build", "SystemExit.*__main__"),
        ("relative.py:build", "ImportError.*package.module:name"),
        ("missing.py:build", "not_installed_anywhere.*Install not_installed_anywhere"),
        ("net.py:number", "no model of a supported framework|No supported framework"),
    ],
)
def test_a_target_that_cannot_be_read_is_told_with_its_place_and_the_next_step(
    target: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    written(folder, """\
        number = 3
        def build(): ...
        def needs(width): ...
        def fails(): return 1 / 0
        def nothing(): return None
        def three(): return 1, 2, 3
        """)  # fmt: skip
    written(folder, "import os\ndef build(:\n", "broken.py")
    written(folder, "import os\n{}['weights']\n", "raises.py")
    written(folder, "import sys\nsys.exit('usage')\n", "ends.py")
    written(folder, "from .parts import thing\n", "relative.py")
    written(folder, "import not_installed_anywhere\n", "missing.py")
    before = sorted(p.name for p in folder.rglob("*"))
    assert main(["check", target, "--input", "4,3"]) == 2
    told = capsys.readouterr().err
    assert re.search(words, " ".join(told.split())), told
    assert "Traceback" not in told
    assert sorted(p.name for p in folder.rglob("*")) == before


def test_the_whole_way_to_an_error_is_shown_on_request(folder: Path, capsys: pytest.CaptureFixture[str]):
    written(folder, "def build(): return 1 / 0\n")
    assert main(["check", "net.py:build", "--input", "4,3", "--traceback"]) == 2
    assert "ZeroDivisionError" in (told := capsys.readouterr().err) and "Traceback" in told


def test_shapes_are_read_as_they_are_typed():
    assert inputs(None, None) is None
    assert inputs(["32,3,224,224"], None) == (32, 3, 224, 224)
    assert inputs(["(4, 3)"], None) == (4, 3)
    assert inputs(["4,3", "4"], None) == ((4, 3), (4,))
    assert inputs(["ids=4,16", "mask=4,16"], None) == {"ids": (4, 16), "mask": (4, 16)}
    typed = inputs(["4,3", "4,5"], ["int64"])
    assert [type(t) for t in typed] == [Abstract, Abstract]
    assert [(t.shape, t.dtype.name) for t in typed] == [((4, 3), "int64"), ((4, 5), "int64")]


@pytest.mark.parametrize(
    ("shapes", "dtypes"),
    [
        *(([t], None) for t in ("4,x", "", "4,-3", "0,3", "4.5", "４", "9" * 12)),
        (["4,3"], ["int65"]),
        (None, ["int64"]),
        (["4", "4", "4"], ["int64", "int32"]),
        (["a=4", "4"], None),
        (["a=4", "a=5"], None),
    ],
)
def test_shapes_that_mean_nothing_are_refused(shapes: list[str] | None, dtypes: list[str] | None):
    with pytest.raises(ConfigError) as caught:
        inputs(shapes, dtypes)
    assert caught.value.remedy


def test_a_file_may_import_its_neighbours(folder: Path):
    written(folder, "VALUE = 7\n", "neighbour_of_net.py")
    path = written(folder, "from neighbour_of_net import VALUE\nclass Box:\n    inner = VALUE\n")
    assert loading.named(f"{path}:Box.inner") == 7
    assert not list(folder.rglob("__pycache__"))


def test_the_installed_command_is_main():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    home, name = scripts["anyinit"].split(":")
    assert getattr(import_module(home), name) is main


def test_the_module_runs_without_any_framework(tmp_path: Path):
    code = (
        "import sys; sys.argv[1:] = ['activation', 'x*sigmoid(1.702*x)']\nimport runpy\n"
        "try: runpy.run_module('anyinit', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: print('CODE', end.code, *sys.modules)"
    )
    path = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r})\n{code}"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert "The level holds for about 57 plain layers" in done.stdout
    last = done.stdout.splitlines()[-1].split()
    assert last[:2] == ["CODE", "0"]
    assert not {"torch", "jax", "tensorflow", "keras", "matplotlib"} & {m.split(".")[0] for m in last}


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_a_picture_is_written_where_it_is_asked_for(name: str, start: bytes, folder: Path):
    pytest.importorskip("matplotlib").use("Agg")
    assert main(["activation", "x*sigmoid(1.702*x)", "--picture", name]) == 0
    assert (folder / name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.txt", "a", "nowhere/a.png"])
def test_a_picture_that_cannot_be_written_is_refused(name: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["activation", "gelu", "--picture", name]) == 2
    assert "Name a file that ends in .png" in capsys.readouterr().err
    assert not list(folder.iterdir())

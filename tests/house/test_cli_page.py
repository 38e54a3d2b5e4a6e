"""What the page about the command line shows is what its commands print."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest

from anyinit.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
PAIR = re.compile(r"```sh\n((?:anyinit .*\n)+)```\n\n```text\n((?:(?!```).*\n)*)```")


def printed(commands: str, folder: Path) -> str:
    """Output of commands, one to a line, run where the page's own file is."""
    words = PAGE.read_text()
    code = re.search(r"```python\n# (\w+\.py)\n(.*?)```", words, re.DOTALL)
    assert code is not None
    (folder / code[1]).write_text(code[2])
    out, before = list[str](), (Path.cwd(), sys.path[:])
    os.chdir(folder)
    try:
        for line in commands.splitlines():
            told = io.StringIO()
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
                main(shlex.split(line)[1:])
            out.append(told.getvalue().rstrip() + "\n")
    finally:
        os.chdir(before[0])
        sys.path[:] = before[1]
    return "\n".join(out)


def numbers_apart(text: str) -> tuple[list[str], list[float]]:
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
    return number.sub("#", text).split(), [float(n) for n in number.findall(text)]


def runs_here(commands: str) -> bool:
    asked = os.environ.get("ANYINIT_FRAMEWORKS")
    torch = "torch" in asked.split(",") if asked is not None else importlib.util.find_spec("torch") is not None
    return torch or "check" not in commands


@pytest.mark.parametrize("commands", [m[1] for m in PAIR.finditer(PAGE.read_text())])
def test_commands_print_what_the_page_shows(commands: str, tmp_path: Path):
    if not runs_here(commands):
        pytest.skip("the model of this page needs PyTorch")
    shown = next(m[2] for m in PAIR.finditer(PAGE.read_text()) if m[1] == commands)
    words, values = numbers_apart(printed(commands, tmp_path))
    assert words == numbers_apart(shown)[0]
    assert values == pytest.approx(numbers_apart(shown)[1], rel=0.05)


def test_the_page_shows_both_commands_and_their_errors():
    commands = " ".join(m[1] for m in PAIR.finditer(PAGE.read_text()))
    assert {"anyinit check", "anyinit activation", "biuld", "sgmoid"} <= {
        w for w in ("anyinit check", "anyinit activation", "biuld", "sgmoid") if w in commands
    }


if __name__ == "__main__":  # python tests/house/test_cli_page.py: refresh the outputs

    def fresh(match: re.Match[str]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return f"```sh\n{match[1]}```\n\n```text\n{printed(match[1], Path(folder))}```"

    PAGE.write_text(PAIR.sub(fresh, PAGE.read_text()))

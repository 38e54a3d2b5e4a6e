"""The page on rules: its example runs, and its list of admitted errors is the table's."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anyinit._rules import ADJOINT, FORWARD
from rule_rows import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"
NAMES = {
    "error": "pairs",
    "fourth": "fourth moment",
    "back": "gradient",
    "level": "level of one draw",
    "noise": "noise",
}


def test_the_worked_example_passes_its_own_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    page = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    space: dict[str, Any] = page.__dict__
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), space)
    FORWARD.pop(space["Difference"])
    ADJOINT.pop(space["Difference"])
    assert not space["comparison"].misses
    assert "G0[0,1]" in capsys.readouterr().out


def test_the_page_lists_every_error_that_a_row_admits():
    page = PAGE.read_text()
    listed = page[page.index("<!-- admitted -->") : page.index("<!-- end -->")].strip().splitlines()[3:]
    expected = [
        f"| {r.name} | {', '.join(f'{NAMES[k]} {v:g}' for k, v in r.allow.items())} | {r.why} |"
        for r in ROWS
        if r.allow
    ]
    assert listed == expected

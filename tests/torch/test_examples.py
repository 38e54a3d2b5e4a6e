"""The examples run as a reader would run them, and what they print is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    """What an example prints."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_depth_example_holds_its_levels_and_draws_its_picture(tmp_path: Path):
    picture = tmp_path / "depth.png"
    told = run("examples/depth_matters.py", "--steps", "0", "--seeds", "3", "--out", str(picture))
    rows = [line.split() for line in told.splitlines() if line.startswith("   ") and line.split()[0].isdigit()]
    assert [(row[0], row[1]) for row in rows] == [
        ("10", "PyTorch"),
        ("10", "AnyInit"),
        ("30", "PyTorch"),
        ("30", "AnyInit"),
    ]
    for row in rows:
        levels = [float(cell) for cell in row[2:] if re.fullmatch(r"[\d.e+-]+\d", cell)]
        assert len(levels) == 4
        if row[1] == "AnyInit":
            assert all(0.5 <= level <= 2 for level in levels)
        else:
            assert max(levels[2:]) < 1e-2
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_activation_example_agrees_with_closed_forms_and_warns_of_depth():
    told = run("examples/custom_activation.py")
    table = told.split("\n\n")[0]
    numbers = re.findall(r"^\S.*?\s{2,}(\S+)\s+(\S+)$", table, flags=re.MULTILINE)
    pairs = [(float(a), float(b)) for a, b in numbers if re.match(r"\d", a)]
    assert len(pairs) == 6
    assert all(abs(got - exact) <= 1e-11 * exact for got, exact in pairs)
    shallow, deep = told.split("\n20 layers: ")
    assert "usable at this depth" in shallow
    assert "normalize between layers" in deep

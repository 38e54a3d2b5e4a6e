"""How finished training runs are compared: cells, ranks with ties, a score, paired tests, and tables of them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TIE = 1.1  # losses within this factor of the best count as equal to it
NAMES = ("default", "xavier", "orthogonal", "he", "lsuv", "anyinit", "anyinit unit")
OURS = ("anyinit", "anyinit unit")
Row = dict[str, Any]
Cells = dict[tuple[str, str], float]


def read(path: Path) -> list[Row]:
    """Rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def chosen(rows: list[Row]) -> dict[tuple[str, str], float]:
    """The rate of every task and contender: the best of the first seed."""
    first = sorted((r for r in rows if r["seed"] == 0), key=lambda r: (r["loss"], r["rate"]), reverse=True)
    return {(r["task"], r["contender"]): r["rate"] for r in first}


def cells(rows: list[Row]) -> Cells:
    """Median loss over the seeds at the chosen rate."""
    rate, found = chosen(rows), dict[tuple[str, str], list[float]]()
    for r in rows:
        key = (r["task"], r["contender"])
        if r["rate"] == rate.get(key):
            found.setdefault(key, []).append(r["loss"])
    return {key: statistics.median(losses) for key, losses in found.items()}


def capped(loss: float, constant: float) -> float:
    """Nothing costs more than learning nothing."""
    return min(loss, constant) if math.isfinite(loss) else constant


def best(table: Cells, task: str) -> float:
    return min(loss for (t, _), loss in table.items() if t == task)


def score(table: Cells, constants: dict[str, float], contender: str) -> float:
    """Mean over tasks of the log loss on a scale from the constant predictor (0) to the task's best (1)."""
    marks = list[float]()
    for task, constant in constants.items():
        top = math.log(capped(best(table, task), constant) / constant)
        mine = math.log(capped(table[task, contender], constant) / constant)
        marks.append(mine / top if top < 0 else 0.0)
    return statistics.fmean(marks)


def ranks(table: Cells, tasks: Iterable[str], contender: str, names: Iterable[str] = NAMES) -> list[float]:
    """Places from one; contenders within the tie margin of one another's loss share the mean of their places."""
    names = tuple(names)
    found = list[float]()
    for task in tasks:
        mine = table[task, contender]
        others = [table[task, c] for c in names if c != contender]
        ahead = sum(not equal(o, mine) and o < mine for o in others)
        found.append(1 + ahead + 0.5 * sum(equal(o, mine) for o in others))
    return found


def equal(a: float, b: float) -> bool:
    """Whether two losses lie within the tie margin."""
    return a == b or max(a, b) <= TIE * min(a, b)


def times(ratio: float) -> str:
    return f"{ratio:.3g} times" if math.isfinite(ratio) else "infinitely"


def short(loss: float) -> str:
    """A loss in three digits."""
    return "diverged" if not math.isfinite(loss) else f"{loss:.3g}"


def cell(loss: float, top: float) -> str:
    return f"**{short(loss)}**" if equal(loss, top) else short(loss)


def grid(head: list[str], body: list[list[str]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return ["| " + " | ".join(line) + " |" for line in lines]

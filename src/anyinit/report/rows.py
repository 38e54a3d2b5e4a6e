"""Cells of the table, shared by text, Markdown and HTML; identical blocks share a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyinit.report.records import Layer

ROWS_SHOWN = 24
SHORT = {"truncated_normal": "truncated"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: heading, alignment (``<`` or ``>``) and one cell per row."""

    heading: str
    align: str
    cells: tuple[str, ...]


def table(layers: Sequence[Layer], *, compact: bool = True) -> list[Column]:
    """Columns of the table of weights; a column that would be empty is left out."""
    groups = grouped(layers) if compact and len(layers) > ROWS_SHOWN else [[r] for r in layers]

    def column(heading: str, align: str, cell: Callable[[list[Layer]], str]) -> Column:
        return Column(heading, align, tuple(cell(g) for g in groups))

    columns = [
        column("weight", "<", label),
        column("fan", ">", lambda g: spread([float(r.fan) for r in g], whole=True)),
        column("draw", "<", _draw),
        column("scale", ">", lambda g: spread([r.scale for r in g])),
        column("feeds", "<", lambda g: " / ".join(dict.fromkeys(r.path for r in g if r.path))),
        column("predicted", ">", lambda g: spread([r.predicted for r in g])),
        column("5-95 %", ">", _band),
        column("measured", ">", lambda g: spread([r.measured for r in g])),
        column("output", ">", lambda g: spread([r.predicted_output for r in g])),
        column("gradient", ">", lambda g: spread([r.predicted_grad for r in g])),
    ]
    return [c for c in columns if c.heading == "weight" or any(cell not in {"", "0"} for cell in c.cells)]


def grouped(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Weights of repeated blocks together, each group where its first member stands."""
    groups: dict[tuple[object, ...], list[Layer]] = {}
    for record in layers:
        key = (_template(record.name), record.shape, record.role, _draw([record]), record.fan)
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def label(group: Sequence[Layer]) -> str:
    """Name of a row: ``h.{0-11}.mlp.weight (12)`` for twelve blocks."""
    names = [r.name.split(".") for r in group]
    if len(names) == 1:
        return group[0].name
    pieces = [_numbers(list(dict.fromkeys(column))) for column in zip(*names, strict=True)]
    return f"{'.'.join(pieces)} ({len(names)})"


def number(value: float | None) -> str:
    """Three significant digits, short; empty for a missing value."""
    if value is None:
        return ""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value:.1e}"


def spread(values: Sequence[float | None], *, whole: bool = False) -> str:
    """One number, or the smallest and largest of a group where they print differently."""
    known = [v for v in values if v is not None]
    if not known:
        return ""
    low, high = (f"{v:.0f}" if whole else number(v) for v in (min(known), max(known)))
    return low if low == high else f"{low}..{high}"


def amount(count: int) -> str:
    """A count in words of at most five characters: ``25.6 M``."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def others(records: Sequence[Layer]) -> list[str]:
    """One phrase per kind of tensor outside the table: ``53 gain = 1``."""
    counts: dict[str, int] = {}
    for record in records:
        phrase = record.role or "parameter"
        if record.distribution == "constant":
            phrase += f" = {number(record.value)}"
        elif record.distribution == "keep":
            phrase += "" if phrase == "kept" else " kept"
        else:
            phrase += f" {record.distribution}, scale {number(record.scale)}"
        counts[phrase] = counts.get(phrase, 0) + 1
    return [f"{count} {phrase}" for phrase, count in counts.items()]


def _draw(group: Sequence[Layer]) -> str:
    """Distribution of the entries; a star where the draw carries a measured correction."""
    first = group[0]
    corrected = any(p.draw.factor != 1 for p in first.parts)
    return SHORT.get(first.distribution, first.distribution) + "*" * corrected


def _band(group: Sequence[Layer]) -> str:
    bands = [r.band for r in group if r.band is not None]
    return f"{number(min(b[0] for b in bands))} - {number(max(b[1] for b in bands))}" if bands else ""


def _template(name: str) -> str:
    return ".".join("#" if piece.isdigit() else piece for piece in name.split("."))


def _numbers(pieces: list[str]) -> str:
    if len(pieces) == 1:
        return pieces[0]
    numbers = [int(p) for p in pieces]
    contiguous = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    if contiguous:
        return f"{{{numbers[0]}-{numbers[-1]}}}"
    return "{" + (",".join(pieces) if len(pieces) <= 3 else f"{pieces[0]},{pieces[1]},..,{pieces[-1]}") + "}"

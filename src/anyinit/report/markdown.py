"""The report as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyinit.report import rows, text

if TYPE_CHECKING:
    from anyinit.report.report import Report


def render(report: Report, *, compact: bool = True) -> str:
    """A table and lists; vertical bars and angle brackets in names are escaped."""
    lines = [f"**{escape(text.title(report))}**", ""]
    if report.layers:
        columns = rows.table(report.layers, compact=compact)
        lines.append("| " + " | ".join(c.heading for c in columns) + " |")
        lines.append("|" + "|".join(":---" if c.align == "<" else "---:" for c in columns) + "|")
        for i in range(len(columns[0].cells)):
            lines.append("| " + " | ".join(escape(c.cells[i]) for c in columns) + " |")
        lines += ["", text.CAPTION]
    for line in text.remarks(report):
        lines.append("- " + escape(line[4:]) if line.startswith("  - ") else escape(line))
    return "\n".join(lines).rstrip()


def escape(words: str) -> str:
    """Text that Markdown shows as it is."""
    for mark in "\\`*_{}[]<>|":
        words = words.replace(mark, f"\\{mark}")
    return words

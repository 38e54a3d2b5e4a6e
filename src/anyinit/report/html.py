"""The report in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from anyinit.report import rows, text

if TYPE_CHECKING:
    from anyinit.report.report import Report


def render(report: Report) -> str:
    """A self-contained fragment: no script, no style sheet; every name escaped."""
    pieces = [f"<div><p><b>{escape(text.title(report))}</b></p>"]
    if report.layers:
        columns = rows.table(report.layers)
        head = "".join(f'<th style="text-align:{_side(c.align)}">{escape(c.heading)}</th>' for c in columns)
        pieces.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
        for i in range(len(columns[0].cells)):
            cells = (f'<td style="text-align:{_side(c.align)}">{escape(c.cells[i])}</td>' for c in columns)
            pieces.append(f"<tr>{''.join(cells)}</tr>")
        pieces.append(f"</tbody></table><p>{escape(text.CAPTION)}</p>")
    for line in text.remarks(report):
        if line:
            pieces.append(f"<div>{escape(line)}</div>")
    return "".join(pieces) + "</div>"


def _side(align: str) -> str:
    return "left" if align == "<" else "right"

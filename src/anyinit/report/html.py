"""The report in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyinit import _notebook
from anyinit.report import rows, text

if TYPE_CHECKING:
    from anyinit.report.report import Report


def render(report: Report) -> str:
    """A self-contained fragment: no script, no style sheet; every name escaped."""
    parts = list[str]()
    if report.layers:
        columns = rows.table(report.layers)
        body = list(zip(*(c.cells for c in columns), strict=True))
        left = [i for i, c in enumerate(columns) if c.align == "<"]
        parts.append(_notebook.table([c.heading for c in columns], body, left))
        parts.append(_notebook.lines([text.CAPTION]))
    parts.append(_notebook.lines(text.remarks(report)))
    return _notebook.view(text.title(report), *parts, healthy=report.healthy)

"""What a notebook shows of an object: one look for all of them, every name escaped.

No script, no style sheet, no colour of text or background, so that a dark notebook reads as well as a light one.
Borders are half-transparent grey, and the bar at the side is Okabe and Ito's (2008) green or vermilion, which words say
too. MathJax is told to leave names with dollar signs alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

HEALTHY, FINDINGS, PLAIN = "#009E73", "#D55E00", "rgba(128,128,128,0.6)"
LINE = "1px solid rgba(128,128,128,0.4)"


def view(title: str, *parts: str, healthy: bool | None = None) -> str:
    """A fragment: a bar at the side (green, vermilion, or grey for no verdict), the title and the parts below it."""
    bar = PLAIN if healthy is None else HEALTHY if healthy else FINDINGS
    style = f"border-left:4px solid {bar};padding-left:0.8em;overflow-x:auto"
    head = f"<p><b>{escape(title)}</b></p>"
    return f'<div class="tex2jax_ignore mathjax_ignore" style="{style}">{head}{"".join(parts)}</div>'


def table(head: Sequence[str], body: Iterable[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """A table; the columns ``left`` are set to the left, numbers to the right."""
    sides = set(left)

    def row(tag: str, cells: Sequence[str]) -> str:
        styled = (
            f'<{tag} style="text-align:{"left" if i in sides else "right"};padding:0.15em 0.6em">{escape(cell)}</{tag}>'
            for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(styled)}</tr>"

    top = f'<thead style="border-bottom:{LINE}">{row("th", head)}</thead>' if head else ""
    rows = "".join(row("td", cells) for cells in body)
    return f'<table style="border-collapse:collapse">{top}<tbody>{rows}</tbody></table>'


def lines(texts: Iterable[str]) -> str:
    """One line each; empty ones are left out."""
    return "".join(f"<div>{escape(t)}</div>" for t in texts if t.strip())

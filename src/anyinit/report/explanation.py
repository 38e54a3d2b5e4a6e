"""An answer to "why this number": a formula, the values in it, and whose it is; as text, Markdown, HTML and data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from anyinit._solve.plan import Term, product
from anyinit.report import markdown


@dataclass(frozen=True)
class Explanation:
    """Why a number is what it is; ``print`` it, or let a notebook show it.

    title: what is explained. quantity, value: the number; None where nothing is drawn. formula: how it comes about.
    terms: the values in the formula; those with a power other than zero multiply to ``value``. lines: what else is
    known. condition: when the number is right. source: paper and equation. parts: of a module or of a packed parameter.
    """

    title: str
    quantity: str = ""
    value: float | None = None
    formula: str = ""
    terms: tuple[Term, ...] = ()
    lines: tuple[str, ...] = ()
    condition: str = ""
    source: str = ""
    parts: tuple[Explanation, ...] = ()

    @property
    def product(self) -> float:
        """What the factors multiply to; equals ``value`` up to rounding."""
        return product(self.terms)

    def to_text(self) -> str:
        """Indented text."""
        if not self.title:
            return "\n\n".join(p.to_text() for p in self.parts)
        lines = [self.title, *("  " + line for line in self._body())]
        for part in self.parts:
            lines += ["  " + line for line in part.to_text().splitlines()]
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """A heading in bold, a table of the values, and lists."""
        say = markdown.escape
        blocks = [f"**{say(self.title)}**"] if self.title else []
        if self.formula:
            blocks.append(f"{say(self.quantity)} {_number(self.value)} = `{self.formula}`")
        if self.terms:
            rows = [f"| `{t.symbol}` | {_number(t.value)} | {say(t.meaning)} |" for t in self.terms]
            blocks.append("\n".join(["| in it | value | what it is |", "|:---|---:|:---|", *rows]))
        if told := self._told():
            blocks.append("\n".join(f"- {say(line)}" for line in told))
        return "\n\n".join([*blocks, *(p.to_markdown() for p in self.parts)])

    def _repr_html_(self) -> str:
        pieces = [f"<p><b>{escape(self.title)}</b></p>"] if self.title else []
        if self.formula:
            pieces.append(f"<p>{escape(self.quantity)} {_number(self.value)} = <code>{escape(self.formula)}</code></p>")
        if self.terms:
            rows = "".join(
                f"<tr><td><code>{escape(t.symbol)}</code></td><td>{_number(t.value)}</td><td>{escape(t.meaning)}</td></tr>"
                for t in self.terms
            )
            pieces.append(f"<table>{rows}</table>")
        if told := self._told():
            pieces.append(f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in told)}</ul>")
        return f"<div>{''.join(pieces)}{''.join(p._repr_html_() for p in self.parts)}</div>"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        return self.to_text()

    __repr__ = __str__

    def __contains__(self, words: str) -> bool:
        """Whether the text has these words."""
        return words in self.to_text()

    def _body(self) -> list[str]:
        lines: list[str] = []
        if self.formula:
            lines.append(f"{self.quantity} {_number(self.value)} = {self.formula}")
            wide = max((len(t.symbol) for t in self.terms), default=0)
            long = max((len(_number(t.value)) for t in self.terms), default=0)
            lines += [f"  {t.symbol:{wide}s}  {_number(t.value):{long}s}  {t.meaning}".rstrip() for t in self.terms]
        return [*lines, *self._told()]

    def _told(self) -> list[str]:
        more = [("right when", self.condition), ("source", self.source)]
        return [*self.lines, *(f"{label}: {words}" for label, words in more if words)]


def formula(terms: Iterable[Term]) -> str:
    """The product in symbols: ``gain * sqrt(target / (fan_in * E[x^2]))``."""
    of = {p: [_wrapped(t.symbol) for t in terms if t.power == p] for p in (1.0, 0.5, -0.5, -1.0)}
    above, below = of[0.5], of[-0.5]
    root = " * ".join(above) or ("1" if below else "")
    if below:
        root += " / " + (below[0] if len(below) == 1 else f"({' * '.join(below)})")
    front = [*of[1.0], *([f"sqrt({root})"] if root else [])] or ["1"]
    behind = of[-1.0]
    return " * ".join(front) + (
        " / " + (behind[0] if len(behind) == 1 else f"({' * '.join(behind)})") if behind else ""
    )


def _wrapped(symbol: str) -> str:
    return f"({symbol})" if " " in symbol else symbol


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.7g}" if value == round(value) else f"{value:.5g}"

"""A diagnosis: facts and findings, as text, HTML, plain data and a picture."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from anyinit import _notebook
from anyinit._health.facts import BINS, REACH, Facts
from anyinit._health.judge import Trouble, judge
from anyinit.errors import ConfigError, UnhealthyError
from anyinit.report import style

HEADINGS = ("weight", "activation", "level", "mean", "spread", "dead", "flat", "rank", "gradient", "zeros", "step")


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`anyinit.diagnose` found; ``print`` it, or let a notebook show it.

    facts: every measurement. findings: what is wrong, most basic first; empty for a healthy model.
    """

    facts: Facts
    findings: tuple[Trouble, ...]

    @classmethod
    def of(cls, facts: Facts) -> Diagnosis:
        """The diagnosis of what was measured."""
        return cls(facts, judge(facts))

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def assert_healthy(self) -> None:
        """Raise if anything was found.

        Raises:
            UnhealthyError: listing every finding.
        """
        if self.findings:
            listed = "\n".join(f"  - {t}" for t in self.findings)
            raise UnhealthyError(f"{len(self.findings)} finding{'s' * (len(self.findings) > 1)}:\n{listed}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"findings": [asdict(t) for t in self.findings], **asdict(self.facts)}

    def histograms(self) -> dict[str, Any]:
        """Histograms of the gradients: ``edges`` in units of a gradient's root mean square, and counts by parameter."""
        counts = {w.name: list(w.counts) for w in self.facts.weights if w.counts}
        return {"edges": np.linspace(-REACH, REACH, BINS + 1).tolist(), "counts": counts}

    def plot(self, names: list[str] | None = None, ax: Any = None) -> tuple[Any, Any]:
        """Gradient histograms, a panel for each parameter (at most 12, or those of ``names``); figure and axes.

        Raises:
            BackendUnavailableError: Matplotlib is not installed.
            ConfigError: there is no gradient to show.
        """
        found = self.histograms()
        chosen = [n for n in (names or list(found["counts"])[:12]) if n in found["counts"]]
        if not chosen:
            raise ConfigError("No parameter has a gradient to show.", value=names)
        columns = min(3, len(chosen))
        rows = math.ceil(len(chosen) / columns)
        figure, axes = style.panels(rows, columns, ax=ax, least=len(chosen), size=(style.WIDTH / 1.5, 1.5))
        edges = np.asarray(found["edges"])
        with style.drawing():
            for one, name in zip(axes, chosen, strict=False):
                counts = np.asarray(found["counts"][name], dtype=float)
                one.stairs(counts / counts.sum(), edges, color=style.GRADIENT, fill=True, alpha=0.6)
                style.label(one, x="gradient / rms", y="share", title=style.short(name, 28))
            for one in axes[len(chosen) :]:
                one.set_visible(False)
        return figure, axes

    def rows(self) -> list[tuple[str, ...]]:
        """The table: a row for each layer, after a heading."""
        by_name = {w.name: w for w in self.facts.weights}
        out: list[tuple[str, ...]] = [HEADINGS]
        for x in self.facts.layers:
            w = by_name[x.name]
            cells = (x.level, x.mean, x.spread, x.dead, x.saturated, x.rank, w.gradient, w.gradient_zeros, w.update)
            out.append((x.name, x.activation, *map(_number, cells)))
        return out

    def verdict(self) -> str:
        """One sentence."""
        count = len(self.findings)
        first = ""
        if self.facts.loss is not None:
            chance = f", log({self.facts.classes}) = {math.log(self.facts.classes):.3g}" if self.facts.classes else ""
            first = f" First loss {self.facts.loss:.3g}{chance}."
        return ("Healthy." if not count else f"{count} finding{'s' * (count > 1)}.") + first

    def __str__(self) -> str:
        table = self.rows()
        widths = [max(len(r[k]) for r in table) for k in range(len(table[0]))]
        lines = [_line(row, widths) for row in table]
        lines.insert(1, "-" * (sum(widths) + 2 * len(widths) - 2))
        found = [f"  - {t}" for t in self.findings]
        notes = [f"  - {n}" for n in self.facts.notes]
        parts = [*lines, *(["", "Findings:", *found] if found else []), *(["", "Notes:", *notes] if notes else [])]
        return "\n".join([*parts, "", self.verdict()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *body = self.rows()
        said = [*(f"{k}. {t}" for k, t in enumerate(self.findings, 1)), *(f"Note: {n}" for n in self.facts.notes)]
        parts = _notebook.lines(said), _notebook.table(head, body, (0, 1))
        return _notebook.view(self.verdict(), *parts, healthy=self.healthy)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = zip(row, widths, strict=True)
    return "  ".join(c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(cells)).rstrip()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"

"""The report as text: the table people paste into a paper or an issue."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anyinit.report import rows
from anyinit.report.rows import Column

if TYPE_CHECKING:
    from anyinit.report.report import Report

NAME_WIDTH, CELL_WIDTH, LISTED = 44, 28, 12
CAPTION = (
    "Levels are second moments, means over draws. Predicted: where the target holds (after activation, pooling);\n"
    "output: at the weight's own operation, bias included. *: corrected on the drawn network."
)


def render(report: Report, *, compact: bool = True) -> str:
    """Title, table, what else was set, and every remark."""
    lines = [title(report), ""]
    if report.layers:
        lines += [*_table(rows.table(report.layers, compact=compact)), *CAPTION.split("\n")]
    lines += remarks(report)
    return "\n".join(lines).rstrip()


def title(report: Report) -> str:
    """One line: seed, parameters and how many were set."""
    tensors, scalars = report.counts["tensors"], report.counts["scalars"]
    said = ", ".join(f"{tensors[k]} {k}" for k in ("drawn", "constant", "kept", "not set") if tensors[k])
    size = rows.amount(scalars["total"])
    scheme = dict(report.plan.options).get("scheme")
    named = f"scheme {scheme}; " if scheme else ""
    return f"AnyInit: {tensors['total']} tensors, {size} parameters ({said}); {named}seed {report.seed}"


def remarks(report: Report) -> list[str]:
    """Sections below the table; each is left out where there is nothing to say."""
    rest = [r for r in report.parameters if not r.is_weight]
    advice = [a for s in report.stability if (a := s.advice())]
    unset = [f"{u.name}: {u.reason}" for u in report.unscaled]
    opaque = [f"{o.operation} at {o.where or 'top level'}{': ' if o.why else ''}{o.why}" for o in report.opaque]
    lines = ["", "Also set: " + "; ".join(rows.others(rest)) + "."] if rest else []
    for heading, entries in (
        ("Stability", advice),
        ("Certificates", [str(c) for c in report.plan.certificates]),
        ("Not set", unset),
        ("Operations without a rule (measured)", opaque),
        ("Assumptions that do not hold", list(report.assumptions)),
        ("Warnings", list(report.warnings)),
        ("Notes", list(report.notes)),
    ):
        lines += section(heading, entries)
    found = report.findings
    levels = [str(f) for f in found if f.kind in {"level", "not finite", "alike"}]
    return [*lines, *section("Levels", levels), "", verdict(report)]


def verdict(report: Report) -> str:
    """One sentence: healthy or how many findings, and what it rests on."""
    found, count = len(report.findings), len(report.layers)
    if not report.counts["tensors"]["total"]:
        return "Nothing to initialize: the model has no parameters."
    measured = sum(r.measured is not None or r.measured_output is not None for r in report.layers)
    basis = f"{measured} of {count} levels measured" if measured else "nothing measured"
    if found:
        return f"{found} finding{'s' if found > 1 else ''} ({basis})."
    return f"Healthy{'' if measured else ' as predicted'} ({basis})."


def section(heading: str, entries: list[str]) -> list[str]:
    """A heading and its bullets, equal ones once; nothing for no entries."""
    if not entries:
        return []
    counts = Counter(entries)
    told = [f"{entry} ({n} times)" if n > 1 else entry for entry, n in counts.items()]
    shown = [f"  - {entry}" for entry in told[:LISTED]]
    more = [f"  - and {len(told) - LISTED} more"] if len(told) > LISTED else []
    return ["", f"{heading}:", *shown, *more]


def _table(columns: list[Column]) -> list[str]:
    fitted = [_fit(c, NAME_WIDTH if i == 0 else CELL_WIDTH) for i, c in enumerate(columns)]
    widths = [max(len(c.heading), *(len(cell) for cell in c.cells)) for c in fitted]

    def line(cells: list[str]) -> str:
        return "  ".join(f"{t:{c.align}{w}}" for t, c, w in zip(cells, fitted, widths, strict=True)).rstrip()

    rule = "-" * (sum(widths) + 2 * len(widths) - 2)
    body = [line([c.cells[i] for c in fitted]) for i in range(len(fitted[0].cells))]
    return [line([c.heading for c in fitted]), rule, *body, rule]


def _fit(column: Column, width: int) -> Column:
    keep = width // 2 - 1
    cells = tuple(c if len(c) <= width else f"{c[:keep]}..{c[-keep:]}" for c in column.cells)
    return Column(column.heading, column.align, cells)

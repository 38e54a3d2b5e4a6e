"""The results page, and what the README says of it, from the finished runs in docs/data.

python benchmarks/results.py     # writes docs/results.md and the marked part of README.md
"""

from __future__ import annotations

import re
import statistics
import textwrap
from dataclasses import dataclass
from pathlib import Path

import certificates
import ingredients
import longer
import training
import training_jax
from scoring import OURS, TIE, Row, best, cell, cells, chosen, equal, grid, ranks, read, score, short, times

ROOT = Path(__file__).parents[1]
PAGE, README = ROOT / "docs" / "results.md", ROOT / "README.md"
MARKS = ("<!-- results: written by benchmarks/results.py -->", "<!-- end of results -->")
WORDS = {
    "default": "the model's own default",
    "xavier": "Xavier (Glorot & Bengio 2010), normal, gain set by activation",
    "orthogonal": "orthogonal (Saxe et al. 2014), gain set by activation",
    "orthogonal bias": "the same with biases in the first dense layer",
    "he": "He (2015), normal, everywhere",
    "lecun": "LeCun (1998), normal, everywhere",
    "lsuv": "LSUV (Mishkin & Matas 2016)",
    "anyinit": "AnyInit, nothing set",
    "anyinit unit": 'AnyInit with `target="unit"`',
}


@dataclass(frozen=True)
class Runs:
    """Finished runs of one set of tasks. names: who competes; tasks: what each is."""

    rows: list[Row]
    names: tuple[str, ...]
    tasks: dict[str, str]

    @property
    def done(self) -> list[str]:
        """Tasks in the order in which they were run."""
        return list(dict.fromkeys(r["task"] for r in self.rows))

    @property
    def constants(self) -> dict[str, float]:
        return {r["task"]: r["constant"] for r in self.rows}

    @property
    def seeds(self) -> int:
        return len({r["seed"] for r in self.rows})


def torch_runs() -> Runs:
    return Runs(read(training.DATA), training.NAMES, training.TASKS)


def jax_runs() -> Runs:
    return Runs(read(training_jax.DATA), training_jax.NAMES, training_jax.TASKS)


def summary(runs: Runs) -> list[str]:
    """The short table, line by line."""
    table, tasks = cells(runs.rows), runs.done
    body = [
        [WORDS[c], f"{statistics.fmean(ranks(table, tasks, c, runs.names)):.2f}",
         f"{sum(equal(table[t, c], best(table, t)) for t in tasks)}", f"{score(table, runs.constants, c):.3f}"]
        for c in runs.names
    ]  # fmt: skip
    return grid(["starting point", "rank", f"at the top, of {len(tasks)}", "score"], body)


def losses(runs: Runs) -> list[str]:
    """Every cell."""
    table = cells(runs.rows)
    body = [[t, *(cell(table[t, c], best(table, t)) for c in runs.names), short(runs.constants[t])] for t in runs.done]
    return grid(["task", *runs.names, "constant"], body)


def rates(runs: Runs) -> list[str]:
    """What every task is, and the rates that were best."""
    rate, steps = chosen(runs.rows), {r["task"]: r["steps"] for r in runs.rows}
    body = [[t, runs.tasks[t], f"{steps[t]}", *(f"{rate[t, c]:g}" for c in runs.names)] for t in runs.done]
    return grid(["task", "model and data", "steps", *runs.names], body)


def rivals(runs: Runs) -> list[tuple[str, str, float]]:
    """Task, the best of the others, and how many times its loss is the default's; best for us first."""
    table = cells(runs.rows)
    found = list[tuple[str, str, float]]()
    for task in runs.done:
        rival = min((c for c in runs.names if c not in OURS), key=lambda c: table[task, c])
        found.append((task, rival, table[task, rival] / table[task, "anyinit"]))
    return sorted(found, key=lambda f: -f[2])


def behind(runs: Runs) -> list[str]:
    """Tasks on which another start was better, and by how much."""
    return [
        f"{task} ({1 / ratio:.2g})" for task, _, ratio in reversed(rivals(runs)) if ratio < 1 and not equal(ratio, 1)
    ]


def verdicts(runs: Runs) -> list[str]:
    """One line per task: the default against the best of the contenders that are not ours."""
    lines = list[str]()
    for task, rival, ratio in rivals(runs):
        if equal(ratio, 1.0):
            text = f"level with {rival}"
        else:
            text = f"loss {times(ratio)} lower than" if ratio > 1 else f"loss **{times(1 / ratio)} higher** than"
            text = f"{text} {rival}"
        lines.append(f"* {task}: {text}, the best of the others.")
    return lines


def page() -> str:
    """The results page."""
    ours, other = torch_runs(), jax_runs()
    long, parts = read(longer.DATA), read(ingredients.DATA)
    later = [*(_third(long) if long else ()), *(_fourth(parts) if parts else ())]
    return "\n".join([*_head(ours), *_first(ours), *_second(other), *later, *_rest(ours, other)])


def prose(*words: str) -> list[str]:
    """A paragraph in lines."""
    return [*textwrap.wrap(" ".join(words), 115, break_on_hyphens=False, break_long_words=False), ""]


def _head(runs: Runs) -> list[str]:
    count = f"{len(runs.done)} tasks in PyTorch, {runs.seeds} seeds, {len(runs.rows):,} runs"
    rates = ", ".join(f"{training.RATES[k]:g}" for k in training.GRID)
    return [
        "# Does it train better?",
        "",
        "<!-- Written by `python benchmarks/results.py` from docs/data/*.jsonl. -->",
        "",
        *prose(
            f"{count}. Adam at a constant rate, fixed data, a few seconds per run on one core of a",
            "CPU; the figure is the",
            "training loss at the end of a short run; [longer runs and held-out",
            "data](#ten-times-as-long-and-on-held-out-data) follow below. Every contender gets the same search for a",
            f"learning rate: {rates}, and on along a ladder by factors of about three while the",
            "best rate lies at the",
            "edge. A cell is the median over the seeds of the mean loss over the last tenth of the",
            "steps, at the rate",
            "that was best for the first seed.",
        ),
    ]


def _first(runs: Runs) -> list[str]:
    return [
        "## In short",
        "",
        *prose(
            f"*Rank*: mean place among {len(runs.names)}, ties shared. *At the top*: tasks on which",
            "the loss is within",
            f"{TIE - 1:.0%} of the best. *Score*: log loss on a scale from 0, the best constant",
            "prediction, to 1, the",
            "best of the task; a run that is worse than constant, or diverges, counts as 0.",
        ),
        *summary(runs),
        "",
        "## Losses",
        "",
        *prose(
            "Uncapped medians; bold: within the tie margin of the best. The last column is the loss of the best",
            "constant prediction.",
        ),
        *losses(runs),
        "",
        "## Where AnyInit wins and where it does not",
        "",
        *verdicts(runs),
        "",
    ]


def _second(runs: Runs) -> list[str]:
    return [
        "## In JAX and Keras",
        "",
        *prose(
            f"{len(runs.done)} tasks, {runs.seeds} seeds, {len(runs.rows):,} runs; same protocol. The rivals are the",
            "library's own default and textbook schemes as [`scheme=`](schemes.md) draws them, with the gain of the",
            "activation for Xavier and orthogonal; tables of tokens and positions stay as the library made them.",
        ),
        *summary(runs),
        "",
        *losses(runs),
        "",
        *verdicts(runs),
        "",
    ]


def _third(rows: list[Row]) -> list[str]:
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    shown = [longer.compared(rows, t, f) for t in tasks for f in longer.SHOWN]
    worse = [f"{c.task} ({longer.SHOWN[c.figure]}, {c.ratio:.3g} times)" for c in shown if c.worse]
    better = [c for c in shown if c.better]
    seeds = len({r["seed"] for r in rows})
    return [
        "## Ten times as long, and on held-out data",
        "",
        *prose(
            f"{len(tasks)} of the tasks in PyTorch, {longer.TIMES} times the steps, {seeds} seeds,",
            f"{len(rows):,} runs. A fifth of",
            f"the rows is held back and looked at {longer.CHECKS} times; *lowest* is what early",
            "stopping would keep. The",
            "first seed searches for the rate of every contender anew, by training loss for the first figure and by",
            "the lowest held-out loss for the other two; AnyInit and the two best of the others of",
            "each then run on all",
            "seeds, with the same batches. *Ratio*: of geometric means over the seeds, above one",
            "where AnyInit is worse;",
            "*p*: paired t test on log losses.",
        ),
        *prose(
            f"Of {len(shown)} comparisons with the best of the others AnyInit is significantly (p <",
            f"{longer.SIGNIFICANT:g})",
            f"better in {len(better)} and worse in {len(worse)}{': ' if worse else ''}{', '.join(worse)}.",
        ),
        *longer.table(rows),
        "",
    ]


def _fourth(rows: list[Row]) -> list[str]:
    changes = [[f"*{c}*", call, words] for c, (call, words) in ingredients.CHANGES.items()]
    return [
        "## What each ingredient is worth",
        "",
        *prose(
            "One change at a time to the default call, same protocol and seeds: how many times",
            "higher the loss becomes.",
            "Bold: the change *helps* beyond the tie margin; `=`: it leaves the start as it is.",
        ),
        *ingredients.table(rows, read(training.DATA)),
        "",
        *grid(["change", "call", "what goes"], changes),
        "",
    ]


def _rest(ours: Runs, other: Runs) -> list[str]:
    return [
        "## Certificates",
        "",
        *prose(
            "What `certify=True` measures, at every starting point in PyTorch above: do those that",
            "pass train, and those",
            "that fail not? *Halfway*: a score of 0.5. Scores and lines rest on the same runs. Written by",
            "`benchmarks/certificates.py`.",
        ),
        *certificates.table(read(certificates.DATA), certificates.scores(ours.rows)),
        "",
        "## Tasks and learning rates",
        "",
        *rates(ours),
        "",
        *rates(other),
        "",
        *prose(
            "Read these tables with care: the runs are short, the networks small, several are",
            "deeper than anybody would",
            "build without normalization (which is the point), and the constants of the default policy",
            "([policy](policy.md)) were chosen on other tasks of the same kind. A rule by layer",
            "class has no business",
            "in a SIREN, whose layers multiply by 30: the rival to look at there is its own",
            "default. Digits are few enough",
            "to be learned by heart: low training losses say that a start lets a network fit, not",
            "that it generalizes.",
        ),
    ]


def readme() -> str:
    """The part of the README between the marks."""
    ours, other = torch_runs(), jax_runs()
    table, tasks = cells(other.rows), other.done
    top = sum(equal(table[t, "anyinit"], best(table, t)) for t in tasks)
    lines = [
        *prose(
            f"{len(ours.done)} small tasks in PyTorch, {ours.seeds} seeds, the same search for a",
            "learning rate for everyone",
            "(rank: lower is better; score: 1 is the best of each task, 0 the best constant prediction):",
        ),
        *summary(ours),
        "",
        *prose(
            "Where another start is better, and how many times higher our loss is:",
            f"{', '.join(behind(ours)) or 'nowhere'}.",
            f"Of {len(tasks)} tasks in JAX and Keras it is at the top on {top}; behind:",
            f"{', '.join(behind(other)) or 'nowhere'}.",
        ),
    ]
    return "\n".join([MARKS[0], *lines[:-1], MARKS[1]])


def written(words: str) -> str:
    """A README with its marked part as it should be."""
    pattern = re.compile(re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1]), re.DOTALL)
    return pattern.sub(lambda _: readme(), words)


def main() -> None:
    PAGE.write_text(page())
    README.write_text(written(README.read_text()))


if __name__ == "__main__":
    main()

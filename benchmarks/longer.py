"""Ten times as long, and on data that was held back.

    python benchmarks/longer.py --seeds 5 --out docs/data/longer.jsonl   # train; can be stopped and resumed

The tasks, batches, optimizer and starting points of training.py with a part of the data held back. The first seed tries
the rate that was best for the short run and the next lower one, and goes on for as long as the best lies at the
edge. The other seeds train AnyInit and the two of the others that did best on the first one. The rate of a figure is
the one at which the first seed had the lowest of that figure. Runs of one task go side by side, as one batched model.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import training
from scoring import Row, capped, chosen, grid, read, short

DATA = Path(__file__).parents[1] / "docs" / "data" / "longer.jsonl"
TASKS = ("stream relu 16", "relu^2 6", "layer norm 12", "silu 16", "leaky 24", "siren", "elu 12", "mish 20")
NAMES = ("default", "xavier", "orthogonal", "he", "lsuv", "anyinit")
TIMES, CHECKS = 10, 20  # how much longer; how often held-out data is looked at
SIGNIFICANT = 0.05
SHOWN = {"loss": "training, at the end", "held": "held out, lowest", "held_end": "held out, at the end"}


def train(task: Any, jobs: list[training.Job]) -> Iterator[Row]:
    """Long runs. loss: mean training loss over the last tenth of the steps; held: the lowest held-out loss of all;
    held_end: the last one; held_short: the one when the short run would have ended."""
    from together import Together, batchable, rounded

    assert batchable(task)
    steps = task.steps * TIMES
    seen, held = Together(task, jobs, split=True).trained(steps, CHECKS)
    whole, held = seen.isfinite().all(0), held.nan_to_num(math.inf)
    figures = {
        "loss": seen[-(steps // 10) :].mean(0), "held": held.min(0).values,
        "held_end": held[-1], "held_short": held[CHECKS // TIMES - 1],
    }  # fmt: skip
    for k, (contender, seed, rate) in enumerate(jobs):
        yield {
            "task": task.name, "contender": contender, "seed": seed, "rate": rate,
            **{name: rounded(v[k]) if whole[k] else math.inf for name, v in figures.items()},
            "first": rounded(seen[0, k]), "steps": steps, "constant": rounded(task.constant),
        }  # fmt: skip


def rates(rows: Iterable[Row], task: str, contender: str) -> dict[str, float]:
    """The best rate of each figure on the first seed."""
    mine = [r for r in rows if (r["task"], r["contender"], r["seed"]) == (task, contender, 0)]
    return {f: min(mine, key=lambda r, f=f: (r[f], r["rate"]))["rate"] for f in ("loss", "held")}


def finalists(rows: Iterable[Row], task: str) -> list[str]:
    """AnyInit and, for each figure, the two best of the others on the first seed."""
    best = dict[str, dict[str, float]]()
    for r in (r for r in rows if r["task"] == task and r["seed"] == 0 and r["contender"] != "anyinit"):
        for f in ("loss", "held"):
            table = best.setdefault(f, {})
            table[r["contender"]] = min(table.get(r["contender"], math.inf), r[f])
    others = {c for table in best.values() for c in sorted(table, key=lambda c, t=table: t[c])[:2]}
    return ["anyinit", *(c for c in NAMES if c in others)]


def everything(log: training.Log, tasks: Iterable[Any], seeds: int) -> None:
    """Train what is missing."""
    begin = chosen(read(training.DATA))
    for task in tasks:
        at = {c: training.RATES.index(begin[task.name, c]) for c in NAMES}
        training.search(log, task, {c: (max(k - 1, 0), k) for c, k in at.items()}, ("loss", "held"))
        known = list(log.known.values())
        final = finalists(known, task.name)
        jobs = {(c, s, r) for c in final for r in rates(known, task.name, c).values() for s in range(1, seeds)}
        log.fill(task, sorted(jobs))


@dataclass(frozen=True)
class Comparison:
    """AnyInit against the best of the others by one figure. ratio: of geometric means over the seeds, above one where
    AnyInit is worse; p: of a paired t test on the logarithms."""

    task: str
    figure: str
    ours: float
    rival: str
    theirs: float
    ratio: float
    p: float
    seeds: int

    @property
    def worse(self) -> bool:
        return self.ratio > 1 and self.p < SIGNIFICANT

    @property
    def better(self) -> bool:
        return self.ratio < 1 and self.p < SIGNIFICANT


def compared(rows: list[Row], task: str, figure: str) -> Comparison:
    """Finalists at their best rates for a figure (the rate for ``held`` serves all held-out figures)."""
    from scipy.stats import ttest_rel

    mine = [r for r in rows if r["task"] == task]
    logs, raw = dict[str, list[float]](), dict[str, float]()
    for c in finalists(rows, task):
        rate = rates(rows, task, c)["loss" if figure == "loss" else "held"]
        runs = sorted((r for r in mine if (r["contender"], r["rate"]) == (c, rate)), key=lambda r: r["seed"])
        logs[c] = [math.log(capped(r[figure], r["constant"])) for r in runs]
        raw[c] = statistics.median(r[figure] for r in runs)
    ours = logs.pop("anyinit")
    rival = min(logs, key=lambda c: statistics.fmean(logs[c]))
    assert len(logs[rival]) == len(ours)
    gap = statistics.fmean(ours) - statistics.fmean(logs[rival])
    p = float(ttest_rel(ours, logs[rival]).pvalue)
    return Comparison(task, figure, raw["anyinit"], rival, raw[rival], math.exp(gap), p, len(ours))


def table(rows: list[Row]) -> list[str]:
    """One line per task and figure."""
    body: list[list[str]] = []
    for task in dict.fromkeys(r["task"] for r in rows):
        for figure, words in SHOWN.items():
            c = compared(rows, task, figure)
            ratio = f"**{c.ratio:.3g}**" if c.worse else f"{c.ratio:.3g}"
            p = "< 0.001" if c.p < 0.001 else f"{c.p:.2g}"
            body.append([task, words, short(c.ours), f"{short(c.theirs)} ({c.rival})", ratio, p])
    return grid(["task", "figure", "anyinit", "best other", "ratio", "p"], body)


def first_loss(task: Any, contender: str, seed: int) -> float:
    """The first loss of a run."""
    from together import Together

    return float(Together(task, [(contender, seed, 0.0)], split=True).step()[0])


def main() -> None:
    args = training.options(__doc__, NAMES).parse_args()
    known = {t.name: t for t in training.known_tasks()}
    wanted, log = [known[t] for t in TASKS if not args.tasks or t in args.tasks], training.Log(args.out, train)
    if args.refresh:
        training.refresh(log, wanted, ["anyinit"], first_loss)
    everything(log, wanted, args.seeds)


if __name__ == "__main__":
    main()

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
from collections.abc import Iterable
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


Job = tuple[str, int, float]
"""Contender, seed and rate of a run."""


class Adam:
    """Adam (Kingma & Ba 2015) with a rate for each entry of the first axis."""

    def __init__(self, params: list[Any], rates: Any) -> None:
        self.params, self.count = params, 0
        self.rates = [rates.view(-1, *(1 for _ in p.shape[1:])) for p in params]
        self.first, self.second = [p.detach() * 0 for p in params], [p.detach() * 0 for p in params]

    def step(self, slopes: tuple[Any, ...], betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> None:
        self.count += 1
        bias = [1 - b**self.count for b in betas]
        for p, m, v, g, rate in zip(self.params, self.first, self.second, slopes, self.rates, strict=True):
            m.lerp_(g, 1 - betas[0])
            v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
            p.data.sub_(m.div(v.sqrt().div_(math.sqrt(bias[1])).add_(epsilon)).mul_(rate / bias[0]))


class Together:
    """Models of one task, one per job, as one model whose values have an axis of jobs."""

    def __init__(self, task: Any, jobs: list[Job]) -> None:
        import torch

        from tasks.contenders import start

        self.task, self.models = task, list[Any]()
        self.batch, self.rest = task.batch.split()
        self.draws = {seed: torch.Generator().manual_seed(2000 + seed) for _, seed, _ in jobs}
        opening = {seed: self.batch(rng)[0] for seed, rng in self.draws.items()}
        for contender, seed, _ in jobs:
            torch.manual_seed(1000 + seed)
            self.models.append(task.build())
            start(contender, task, self.models[-1], opening[seed], seed)
        assert not list(self.models[0].buffers())
        self.seeds, names = [seed for _, seed, _ in jobs], [n for n, _ in self.models[0].named_parameters()]
        parts = [dict(m.named_parameters()) for m in self.models]
        self.values = {n: torch.stack([p[n].detach() for p in parts]).requires_grad_(True) for n in names}

    def losses(self, *, held: bool = False) -> Any:
        """Loss of every job, on its next batch or on what was held back."""
        import torch
        from torch.func import functional_call

        def one(values: Any, x: Any, y: Any) -> Any:
            return self.task.loss(lambda inputs: functional_call(self.models[0], values, (inputs,)), (x, y))

        if held:
            with torch.no_grad():
                return torch.func.vmap(one, in_dims=(0, None, None))(self.values, *self.rest)
        drawn = {seed: self.batch(rng) for seed, rng in self.draws.items()}
        x, y = (torch.stack([drawn[seed][k] for seed in self.seeds]) for k in (0, 1))
        return torch.func.vmap(one)(self.values, x, y)


def train(task: Any, jobs: list[Job]) -> list[Row]:
    """Long runs. loss: mean training loss over the last tenth of the steps; held: the lowest held-out loss of all;
    held_end: the last one; held_short: the one when the short run would have ended."""
    import torch

    both, steps = Together(task, jobs), task.steps * TIMES
    adam = Adam(list(both.values.values()), torch.tensor([rate for _, _, rate in jobs]))
    losses, held = list[Any](), list[Any]()
    for step in range(1, steps + 1):
        loss = both.losses()
        losses.append(loss.detach())
        adam.step(torch.autograd.grad(loss.sum(), adam.params))
        if step * CHECKS % steps == 0:
            held.append(both.losses(held=True))
    seen, kept = torch.stack(losses).double(), torch.stack(held).double()
    kept[~kept.isfinite()] = math.inf
    whole = seen.isfinite().all(0)
    figures = {
        "loss": seen[-(steps // 10) :].mean(0), "held": kept.min(0).values,
        "held_end": kept[-1], "held_short": kept[CHECKS // TIMES - 1],
    }  # fmt: skip
    return [
        {
            "task": task.name, "contender": contender, "seed": seed, "rate": rate,
            **{name: float(f"{v[k] if whole[k] else math.inf:.6g}") for name, v in figures.items()},
            "first": float(f"{seen[0, k]:.6g}"), "steps": steps, "constant": float(f"{task.constant:.6g}"),
        }
        for k, (contender, seed, rate) in enumerate(jobs)
    ]  # fmt: skip


class Log(training.Log):
    """Finished runs; missing ones of a task are trained together."""

    def rows_of(self, task: Any, jobs: Iterable[Job]) -> None:
        missing = [j for j in dict.fromkeys(jobs) if (task.name, *j) not in self.known]
        for row in train(task, missing) if missing else ():
            self.add(row)


def searching(log: Log, task: Any, begin: dict[tuple[str, str], float]) -> None:
    """Runs of the first seed: for each contender the ladder of rates, until no figure is lowest at its edge."""
    ladder = training.RATES
    at = {c: ladder.index(begin[task.name, c]) for c in NAMES}
    log.rows_of(task, [(c, 0, ladder[k]) for c in NAMES for k in (at[c] - 1, at[c]) if k >= 0])
    while True:
        jobs = list[Job]()
        for c in NAMES:
            tried = {ladder.index(k[3]): r for k, r in log.known.items() if k[:3] == (task.name, c, 0)}
            tops = {min(tried, key=lambda k, f=f: (tried[k][f], k)) for f in ("loss", "held")}
            steps = {k for t in tops for k in (t - 1, t + 1) if 0 <= k < len(ladder) and k not in tried}
            jobs += [(c, 0, ladder[k]) for k in sorted(steps)]
        if not jobs:
            return
        log.rows_of(task, jobs)


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


def everything(log: Log, tasks: Iterable[Any], seeds: int) -> None:
    """Train what is missing."""
    begin = chosen(read(training.DATA))
    for task in tasks:
        searching(log, task, begin)
        known = list(log.known.values())
        jobs = {
            (c, seed, rate)
            for c in finalists(known, task.name)
            for rate in rates(known, task.name, c).values()
            for seed in range(1, seeds)
        }
        log.rows_of(task, sorted(jobs))


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


def begun(task: Any, contender: str, seed: int) -> float:
    """The first loss of a run."""
    return float(Together(task, [(contender, seed, 0.0)]).losses()[0])


def main() -> None:
    args = training.options(__doc__, NAMES).parse_args()
    known = {t.name: t for t in training.known_tasks()}
    wanted, log = [known[t] for t in TASKS if not args.tasks or t in args.tasks], Log(args.out)
    if args.refresh:
        training.refresh(log, wanted, ["anyinit"], begun)
    everything(log, wanted, args.seeds)


if __name__ == "__main__":
    main()

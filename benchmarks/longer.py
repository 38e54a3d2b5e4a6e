"""Ten times as long, and on data that was held back.

    python benchmarks/longer.py --seeds 5 --out docs/data/longer.jsonl   # train; can be stopped and resumed

The tasks, batches, optimizer and starting points of training.py with a part of the data held back. The first seed tries
the rate that was best for the short run and the next lower one, and goes on for as long as the best lies at the
edge. The other seeds train AnyInit and the two of the others that did best on the first one. The rate of a figure is
the one at which the first seed had the lowest of that figure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import training
from scoring import Row, chosen, read

DATA = Path(__file__).parents[1] / "docs" / "data" / "longer.jsonl"
TASKS = ("stream relu 16", "relu^2 6", "layer norm 12", "silu 16", "leaky 24", "siren", "lstm")
NAMES = ("default", "xavier", "orthogonal", "he", "lsuv", "anyinit")
TIMES, CHECKS = 10, 20  # how much longer; how often held-out data is looked at
FIGURES = ("loss", "held", "held_end", "held_short")


def train(task: Any, contender: str, seed: int, rate: float) -> Row:
    """One long run. loss: training loss over the last tenth of the *short* run's steps; held: the lowest held-out loss
    of all looks; held_end: the last one; held_short: the one when the short run would have ended."""
    import torch

    from tasks.contenders import start

    torch.manual_seed(1000 + seed)
    model = task.build()
    rng = torch.Generator().manual_seed(2000 + seed)
    batch, rest = task.batch.split()
    start(contender, task, model, batch(rng)[0], seed)
    adam = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    losses, held, steps = list[float](), list[float](), task.steps * TIMES
    for step in range(1, steps + 1):
        loss = task.loss(model, batch(rng))
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step * CHECKS % steps == 0:
            held.append(_held(task, model, rest))
    whole = len(losses) == steps and math.isfinite(losses[-1])
    found = {
        "loss": statistics.fmean(losses[-(task.steps // 10) :]), "held": min(held, key=_order),
        "held_end": held[-1], "held_short": held[CHECKS // TIMES - 1],
    } if whole else dict.fromkeys(FIGURES, math.inf)  # fmt: skip
    return {
        "task": task.name, "contender": contender, "seed": seed, "rate": rate,
        **{k: float(f"{v:.6g}") for k, v in found.items()},
        "first": float(f"{losses[0]:.6g}"), "steps": steps, "constant": float(f"{task.constant:.6g}"),
    }  # fmt: skip


def _order(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf


def _held(task: Any, model: Any, rest: Any) -> float:
    import torch

    model.eval()
    with torch.no_grad():
        loss = float(task.loss(model, rest))
    model.train()
    return loss


def search(log: training.Log, task: Any, contender: str, begin: float) -> None:
    """Runs of the first seed: the ladder of rates, until no figure is lowest at its edge."""
    ladder, at = training.RATES, training.RATES.index(begin)
    tried = {k: log.row(task, contender, 0, ladder[k]) for k in (at, at - 1) if k >= 0}
    while True:
        tops = {min(tried, key=lambda k, f=f: (tried[k][f], k)) for f in ("loss", "held")}
        steps = {k for t in tops for k in (t - 1, t + 1) if 0 <= k < len(ladder) and k not in tried}
        if not steps:
            return
        tried.update({k: log.row(task, contender, 0, ladder[k]) for k in sorted(steps)})


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
        for contender in NAMES:
            search(log, task, contender, begin[task.name, contender])
        for contender in finalists(log.known.values(), task.name):
            for rate in sorted(set(rates(log.known.values(), task.name, contender).values())):
                for seed in range(1, seeds):
                    log.row(task, contender, seed, rate)


def begun(task: Any, contender: str, seed: int) -> float:
    """The first loss of a run."""
    import torch

    from tasks.contenders import start

    torch.manual_seed(1000 + seed)
    model = task.build()
    rng, (batch, _) = torch.Generator().manual_seed(2000 + seed), task.batch.split()
    start(contender, task, model, batch(rng)[0], seed)
    return float(task.loss(model, batch(rng)).detach())


def main() -> None:
    args = training.options(__doc__, NAMES).parse_args()
    known = {t.name: t for t in training.known_tasks()}
    wanted, log = [known[t] for t in TASKS if not args.tasks or t in args.tasks], training.Log(args.out, train)
    if args.refresh:
        training.refresh(log, wanted, ["anyinit"], begun)
    everything(log, wanted, args.seeds)


if __name__ == "__main__":
    main()

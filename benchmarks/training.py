"""Does a starting point make small networks train better? Ours, and what a user would pick instead.

    python benchmarks/training.py --seeds 3 --out results.jsonl        # train; can be stopped and resumed
    python benchmarks/training.py --tasks "gelu 50" gpt --out some.jsonl
    python benchmarks/training.py --refresh --out docs/data/training.jsonl  # what starts elsewhere today, again
    python benchmarks/results.py                                       # the page, from docs/data/*.jsonl

Every contender gets the same models, data, batches, optimizer and search for a learning rate: the first seed tries a
grid, which is followed beyond its edge for as long as the best rate lies there; the other seeds run at that rate.
A cell is the median over the seeds of the mean training loss over the last tenth of the steps. The data comes with
scikit-learn (photographs need Pillow).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scoring import NAMES, OURS, Row, chosen, read

HERE = Path(__file__).parent
DATA = HERE.parent / "docs" / "data" / "training.jsonl"
RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
GRID = (3, 4, 5)  # places on the ladder that are always tried
EXTRA = ("orthogonal bias",)  # can be trained as well; not on the page
TASKS = {
    "gelu 50": "gelu MLP, 50 layers of 64, a function of two coordinates",
    "relu 30": "relu MLP, 30 layers of 64, digits",
    "tanh 60": "tanh MLP, 60 layers of 64, a function of two coordinates",
    "relu^2 6": "MLP with relu(x)^2, 6 layers of 64, digits",
    "elu 12": "elu MLP, 12 layers of 64, a function of two coordinates",
    "mish 20": "mish MLP, 20 layers of 64, digits",
    "conv 16": "relu conv net, 16 layers, 16 channels, digits",
    "residual 24": "silu residual MLP without norms, 24 blocks of 64, digits",
    "resnet bn": "ResNet with batch norm, 4 blocks of 16 channels, digits",
    "vit": "vision transformer, 4 blocks of 48, digits",
    "gpt": "GPT on letters, 3 blocks of 64, 48 letters",
    "gru": "GRU on letters, width 96, 48 letters",
    "siren": "SIREN, 5 layers of 64, a photograph",
    "stream relu 16": "relu residual MLP, activation after each of 16 sums, no norms, digits",
    "stream gelu 12": "gelu residual MLP, activation after each of 12 sums, no norms, digits",
    "stream conv 10": "relu ResNet without norms, 10 blocks of 16 channels, mean over pixels, digits",
    "leaky 24": "leaky relu (0.2) MLP, 24 layers of 64, digits",
    "silu 16": "silu MLP, 16 layers of 64, a function of two coordinates",
    "softsign 30": "softsign MLP, 30 layers of 64, a function of two coordinates",
    "layer norm 12": "gelu MLP with layer norm, 12 layers of 64, digits",
    "lstm": "LSTM on letters, width 96, 48 letters",
    "pinn": "tanh MLP, 8 layers of 64, a Poisson equation",
}


Job = tuple[str, int, float]
"""Contender, seed and rate of a run."""


def train(task: Any, jobs: list[Job]) -> Iterator[Row]:
    """Runs of one task, side by side where that is possible; a loss is infinite if it was not finite on the way."""
    from together import Together, batchable

    if batchable(task):
        seen, _ = Together(task, jobs).trained(task.steps)
        yield from (_row(task, job, seen[:, k].tolist()) for k, job in enumerate(jobs))
    else:
        yield from (_row(task, job, _alone(task, job)) for job in jobs)


def _alone(task: Any, job: Job) -> list[float]:
    """Losses by step, up to the first that is not finite."""
    import torch

    from together import begun

    model, rng = begun(task, job, task.batch)
    adam = torch.optim.Adam(model.parameters(), lr=job[2], fused=True)
    losses: list[float] = []
    for _ in range(task.steps):
        loss = task.loss(model, task.batch(rng))
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
        adam.zero_grad()
        loss.backward()
        adam.step()
    return losses


def _row(task: Any, job: Job, losses: list[float]) -> Row:
    whole = len(losses) == task.steps and all(map(math.isfinite, losses))
    final = statistics.fmean(losses[-max(task.steps // 10, 1) :]) if whole else math.inf
    return {
        "task": task.name, "contender": job[0], "seed": job[1], "rate": job[2], "loss": float(f"{final:.6g}"),
        "first": float(f"{losses[0]:.6g}"), "steps": task.steps, "constant": float(f"{task.constant:.6g}"),
    }  # fmt: skip


class Log:
    """Finished runs, on disk line by line; ``train(task, jobs)`` makes those that are missing."""

    def __init__(self, path: Path, train: Callable[[Any, list[Job]], Iterable[Row]] = train) -> None:
        self.path, self.train = path, train
        rows = read(path) if path.exists() else []
        self.known = {(r["task"], r["contender"], r["seed"], r["rate"]): r for r in rows}

    def fill(self, task: Any, jobs: Iterable[Job]) -> None:
        """Train those of ``jobs`` that are missing."""
        missing = [j for j in dict.fromkeys(jobs) if (task.name, *j) not in self.known]
        for row in self.train(task, missing) if missing else ():
            self.add(row)

    def add(self, row: Row) -> None:
        """Keep a finished run, on disk as well."""
        self.known[row["task"], row["contender"], row["seed"], row["rate"]] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(*row.values(), flush=True)

    def forget(self, keys: set[tuple[str, str, int, float]]) -> None:
        """Drop runs, on disk as well."""
        self.known = {k: r for k, r in self.known.items() if k not in keys}
        self.path.write_text("".join(json.dumps(r) + "\n" for r in self.known.values()))

    def first(self, task: str, contender: str) -> dict[int, Row]:
        """Runs of the first seed by their place on the ladder of rates."""
        return {RATES.index(k[3]): r for k, r in self.known.items() if k[:3] == (task, contender, 0)}


def search(log: Log, task: Any, begin: Mapping[str, Iterable[int]], figures: tuple[str, ...] = ("loss",)) -> None:
    """Runs of the first seed: for each contender the places of ``begin``, then on for as long as the best rate of a
    figure lies at the edge of those tried."""
    log.fill(task, [(c, 0, RATES[k]) for c, places in begin.items() for k in places])
    while True:
        jobs = list[Job]()
        for contender in begin:
            tried = log.first(task.name, contender)
            tops = {min(tried, key=lambda k, f=f: (tried[k][f], k)) for f in figures}
            steps = {k for t in tops for k in (t - 1, t + 1) if 0 <= k < len(RATES) and k not in tried}
            jobs += [(contender, 0, RATES[k]) for k in sorted(steps)]
        if not jobs:
            return
        log.fill(task, jobs)


def known_tasks() -> list[Any]:
    """All tasks in PyTorch."""
    import torch

    from tasks import fields, modern, plain, streams

    torch.set_num_threads(1)
    return [*plain.tasks(), *modern.tasks(), *fields.tasks(), *streams.tasks()]


def first_loss(task: Any, contender: str, seed: int) -> float:
    """The first loss of a run."""
    from together import begun

    model, rng = begun(task, (contender, seed, 0.0), task.batch)
    return float(task.loss(model, task.batch(rng)).detach())


def refresh(log: Log, tasks: Iterable[Any], names: Iterable[str], first: Callable[[Any, str, int], float]) -> None:
    """Drop runs whose first loss is no longer what the contender starts at; ``first(task, contender, seed)``."""
    for task in tasks:
        for name in names:
            mine = [r for r in log.known.values() if (r["task"], r["contender"]) == (task.name, name)]
            now = {seed: first(task, name, seed) for seed in sorted({r["seed"] for r in mine})}
            old = {seed for seed in now if any(_moved(r["first"], now[seed]) for r in mine if r["seed"] == seed)}
            if old:
                print(f"{task.name}, {name}: starts elsewhere today with seeds {sorted(old)}", flush=True)
                log.forget({k for k in log.known if k[:2] == (task.name, name) and k[2] in old})


def _moved(before: float, now: float) -> bool:
    return not math.isclose(before, now, rel_tol=1e-4)


def everything(log: Log, tasks: Iterable[Any], seeds: int, names: Iterable[str]) -> None:
    """Train what is missing from the log."""
    for task in tasks:
        search(log, task, dict.fromkeys(names, GRID))
        rate = chosen([r for r in log.known.values() if "loss" in r])
        log.fill(task, [(c, seed, rate[task.name, c]) for c in names for seed in range(1, seeds)])


def options(description: str | None, names: tuple[str, ...], extra: tuple[str, ...] = ()) -> argparse.ArgumentParser:
    """What every script that trains can be asked for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines to write and to resume from")
    parser.add_argument("--contenders", nargs="+", choices=(*names, *extra), default=names)
    parser.add_argument("--tasks", nargs="+", default=(), help="names of tasks; all without it")
    parser.add_argument("--refresh", action="store_true", help="first drop runs of ours that start elsewhere today")
    return parser


def main() -> None:
    args = options(__doc__, NAMES, EXTRA).parse_args()
    known = known_tasks()
    assert {t.name for t in known} == set(TASKS)
    wanted, log = [t for t in known if not args.tasks or t.name in args.tasks], Log(args.out)
    if args.refresh:
        refresh(log, wanted, OURS, first_loss)
    everything(log, wanted, args.seeds, args.contenders)


if __name__ == "__main__":
    main()

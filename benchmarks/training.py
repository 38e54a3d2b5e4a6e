"""Does a starting point make small networks train better? Ours, and what a user would pick instead.

    python benchmarks/training.py --seeds 3 --out results.jsonl        # train; can be stopped and resumed
    python benchmarks/training.py --tasks "gelu 50" gpt --out some.jsonl
    python benchmarks/training.py --page docs/results.md               # the page, from docs/data/training.jsonl

Every contender gets the same models, data, batches, optimizer and search for a learning rate: the first seed tries a
grid, which is followed beyond its edge for as long as the best rate lies there; the other seeds run at that rate.
A cell is the median over the seeds of the mean training loss over the last tenth of the steps.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

DATA = HERE.parent / "docs" / "data" / "training.jsonl"
RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
GRID = (3, 4, 5)  # places on the ladder that are always tried
TIE = 1.1  # losses within this factor of the best count as equal to it
NAMES = ("default", "xavier", "orthogonal", "he", "lsuv", "anyinit", "anyinit unit")
EXTRA = ("orthogonal bias",)  # can be trained as well; not on the page
OURS = ("anyinit", "anyinit unit")
WORDS = {
    "default": "the model's own default",
    "xavier": "Xavier (Glorot & Bengio 2010), normal, gain set by activation",
    "orthogonal": "orthogonal (Saxe et al. 2014), gain set by activation",
    "orthogonal bias": "the same with biases in the first dense layer",
    "he": "He (2015), normal, everywhere",
    "lsuv": "LSUV (Mishkin & Matas 2016)",
    "anyinit": "AnyInit, nothing set",
    "anyinit unit": 'AnyInit with `target="unit"`',
}
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
Row = dict[str, Any]
Cells = dict[tuple[str, str], float]


# ---------------------------------------------------------------------- training
def train(task: Any, contender: str, seed: int, rate: float) -> Row:
    """One run; the loss is infinite if it stops being finite on the way."""
    import torch

    from tasks.contenders import start

    torch.manual_seed(1000 + seed)
    model = task.build()
    rng = torch.Generator().manual_seed(2000 + seed)
    start(contender, task, model, task.batch(rng)[0], seed)
    adam = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    losses: list[float] = []
    for _ in range(task.steps):
        loss = task.loss(model, task.batch(rng))
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
        adam.zero_grad()
        loss.backward()
        adam.step()
    whole = len(losses) == task.steps and math.isfinite(losses[-1])
    final = statistics.fmean(losses[-(task.steps // 10) :]) if whole else math.inf
    return {
        "task": task.name, "contender": contender, "seed": seed, "rate": rate, "loss": float(f"{final:.6g}"),
        "first": float(f"{losses[0]:.6g}"), "steps": task.steps, "constant": float(f"{task.constant:.6g}"),
    }  # fmt: skip


class Log:
    """Finished runs, on disk line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = read(path) if path.exists() else []
        self.known = {(r["task"], r["contender"], r["seed"], r["rate"]): r for r in self.rows}

    def run(self, task: Any, contender: str, seed: int, rate: float) -> float:
        """Loss of a run, from the log or freshly trained."""
        key = (task.name, contender, seed, rate)
        if key not in self.known:
            row = train(task, contender, seed, rate)
            self.known[key] = row
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(*row.values(), flush=True)
        return self.known[key]["loss"]


def search(log: Log, task: Any, contender: str, seed: int = 0) -> float:
    """Best rate of one seed: the grid, then beyond its edge while the best rate lies there."""
    losses = {k: log.run(task, contender, seed, RATES[k]) for k in GRID}
    while True:
        best = min(losses, key=lambda k: (losses[k], k))
        steps = [k for k in (best - 1, best + 1) if 0 <= k < len(RATES) and k not in losses]
        if not steps:
            return RATES[best]
        losses.update({k: log.run(task, contender, seed, RATES[k]) for k in steps})


def everything(out: Path, seeds: int, names: Iterable[str], wanted: Iterable[str]) -> None:
    """Train what is missing from ``out``."""
    import torch

    from tasks import fields, modern, plain, streams

    torch.set_num_threads(1)
    log, names = Log(out), list(names)
    known = [*plain.tasks(), *modern.tasks(), *fields.tasks(), *streams.tasks()]
    assert {t.name for t in known} == set(TASKS)
    for task in (t for t in known if not wanted or t.name in wanted):
        for contender in names:
            rate = search(log, task, contender)
            for seed in range(1, seeds):
                log.run(task, contender, seed, rate)


# ---------------------------------------------------------------------- evaluation
def read(path: Path) -> list[Row]:
    """Rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def chosen(rows: list[Row]) -> dict[tuple[str, str], float]:
    """The rate of every task and contender: the best of the first seed."""
    first = sorted((r for r in rows if r["seed"] == 0), key=lambda r: (r["loss"], r["rate"]), reverse=True)
    return {(r["task"], r["contender"]): r["rate"] for r in first}


def cells(rows: list[Row]) -> Cells:
    """Median loss over the seeds at the chosen rate."""
    rate, found = chosen(rows), dict[tuple[str, str], list[float]]()
    for r in rows:
        key = (r["task"], r["contender"])
        if r["rate"] == rate.get(key):
            found.setdefault(key, []).append(r["loss"])
    return {key: statistics.median(losses) for key, losses in found.items()}


def capped(loss: float, constant: float) -> float:
    """Nothing costs more than learning nothing."""
    return min(loss, constant) if math.isfinite(loss) else constant


def best(table: Cells, task: str) -> float:
    return min(loss for (t, _), loss in table.items() if t == task)


def score(table: Cells, constants: dict[str, float], contender: str) -> float:
    """Mean over tasks of the log loss on a scale from the constant predictor (0) to the task's best (1)."""
    marks = list[float]()
    for task, constant in constants.items():
        top = math.log(capped(best(table, task), constant) / constant)
        mine = math.log(capped(table[task, contender], constant) / constant)
        marks.append(mine / top if top < 0 else 0.0)
    return statistics.fmean(marks)


def ranks(table: Cells, tasks: Iterable[str], contender: str) -> list[float]:
    """Places from one; contenders within the tie margin of one another's loss share the mean of their places."""
    found = list[float]()
    for task in tasks:
        mine = table[task, contender]
        others = [table[task, c] for c in NAMES if c != contender]
        ahead = sum(not equal(o, mine) and o < mine for o in others)
        found.append(1 + ahead + 0.5 * sum(equal(o, mine) for o in others))
    return found


def equal(a: float, b: float) -> bool:
    """Whether two losses lie within the tie margin."""
    return a == b or max(a, b) <= TIE * min(a, b)


# ---------------------------------------------------------------------- the page
def summary(rows: list[Row]) -> list[str]:
    """The short table, line by line."""
    table, constants = cells(rows), {r["task"]: r["constant"] for r in rows}
    tasks = list(constants)
    body = [
        [WORDS[c], f"{statistics.fmean(ranks(table, tasks, c)):.2f}",
         f"{sum(equal(table[t, c], best(table, t)) for t in tasks)}", f"{score(table, constants, c):.3f}"]
        for c in NAMES
    ]  # fmt: skip
    return grid(["starting point", "rank", f"at the top, of {len(tasks)}", "score"], body)


def page(rows: list[Row]) -> str:
    """The results page."""
    table, rate = cells(rows), chosen(rows)
    constants = {r["task"]: r["constant"] for r in rows}
    steps = {r["task"]: r["steps"] for r in rows}
    tasks = list(constants)
    seeds = len({r["seed"] for r in rows})
    losses = [[t, *(_cell(table[t, c], best(table, t)) for c in NAMES), _short(constants[t])] for t in tasks]
    rates = [[t, TASKS[t], f"{steps[t]}", *(f"{rate[t, c]:g}" for c in NAMES)] for t in tasks]
    count = f"{len(tasks)} tasks, {seeds} seeds, {len(rows)} runs"
    return "\n".join(
        [
            "# Does it train better?",
            "",
            "<!-- Written by `python benchmarks/training.py --page docs/results.md` from docs/data/training.jsonl. -->",
            "",
            f"{count}. Adam at a constant rate, fixed data, a few seconds per run on one core of a CPU; the figure",
            "is the training loss at the end of a short run, nothing is held out. Every contender gets the same search",
            f"for a learning rate: {', '.join(f'{RATES[k]:g}' for k in GRID)}, and on along a ladder by factors of",
            "about three while the best rate lies at the edge. A cell is the median over the seeds of the mean loss",
            "over the last tenth of the steps, at the rate that was best for the first seed.",
            "",
            "## In short",
            "",
            f"*Rank*: mean place among {len(NAMES)}, ties shared. *At the top*: tasks on which the loss is within",
            f"{TIE - 1:.0%} of the best. *Score*: log loss on a scale from 0, the best constant prediction, to 1, the",
            "best of the task; a run that is worse than constant, or diverges, counts as 0.",
            "",
            *summary(rows),
            "",
            "## Losses",
            "",
            "Uncapped medians; bold: within the tie margin of the best. The last column is the loss of the best",
            "constant prediction.",
            "",
            *grid(["task", *NAMES, "constant"], losses),
            "",
            "## Where AnyInit wins and where it does not",
            "",
            *_verdicts(table, tasks),
            "",
            "## Certificates",
            "",
            "What `certify=True` measures, at every starting point above: do those that pass train, and those that",
            "fail not? *Halfway*: a score of 0.5. Scores and lines rest on the same runs.",
            "Written by `benchmarks/certificates.py`.",
            "",
            *_certificates(rows),
            "",
            "## Tasks and learning rates",
            "",
            *grid(["task", "model and data", "steps", *NAMES], rates),
            "",
            "Read these tables with care: the runs are short, the networks small, several are deeper than anybody",
            "would build without normalization (which is the point), and the constants of the default policy",
            "([policy](policy.md)) were chosen on other tasks of the same kind. A rule by layer class has no business",
            "in a SIREN, whose layers multiply by 30: the rival to look at there is its own default. Digits are few",
            "enough to be learned by heart: low losses say that a start lets a network fit, not that it generalizes.",
            "",
        ]
    )


def _certificates(rows: list[Row]) -> list[str]:
    import certificates

    return certificates.table(read(certificates.DATA), certificates.scores(rows))


def _verdicts(table: Cells, tasks: list[str]) -> list[str]:
    """One line per task: the default against the best of the contenders that are not ours."""
    lines: list[tuple[float, str]] = []
    for task in tasks:
        mine = table[task, "anyinit"]
        rival = min((c for c in NAMES if c not in OURS), key=lambda c: table[task, c])
        ratio = table[task, rival] / mine
        if equal(mine, table[task, rival]):
            text = f"level with {rival}"
        else:
            text = f"loss {_times(ratio)} lower than" if ratio > 1 else f"loss **{_times(1 / ratio)} higher** than"
            text = f"{text} {rival}"
        lines.append((-ratio, f"* {task}: {text}, the best of the others."))
    return [line for _, line in sorted(lines)]


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if math.isfinite(ratio) else "infinitely"


def _short(loss: float) -> str:
    return "diverged" if not math.isfinite(loss) else f"{loss:.3g}"


def _cell(loss: float, top: float) -> str:
    return f"**{_short(loss)}**" if equal(loss, top) else _short(loss)


def grid(head: list[str], body: list[list[str]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return ["| " + " | ".join(line) + " |" for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file of JSON lines to write and to resume from")
    parser.add_argument("--contenders", nargs="+", choices=(*NAMES, *EXTRA), default=NAMES)
    parser.add_argument("--tasks", nargs="+", default=(), help="names of tasks; all without it")
    parser.add_argument("--data", type=Path, default=DATA, help="finished runs for --page")
    parser.add_argument("--page", type=Path, help="write the results page here instead of training")
    args = parser.parse_args()
    if args.page is not None:
        args.page.write_text(page(read(args.data)))
    elif args.out is not None:
        everything(args.out, args.seeds, args.contenders, args.tasks)
    else:
        parser.error("Say --out (train) or --page (write the page).")


if __name__ == "__main__":
    main()

"""What each ingredient of the default policy is worth: one change at a time.

    python benchmarks/ingredients.py --seeds 3 --out docs/data/ingredients.jsonl   # train; can be stopped and resumed

Protocol of training.py, whose runs of the default are what these are compared with. A change that leaves the start of
a task as it is costs no run: it is noted as such.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import training
from scoring import Row, cells, grid

DATA = Path(__file__).parents[1] / "docs" / "data" / "ingredients.jsonl"
TASKS = (
    "relu 30", "relu^2 6", "elu 12", "siren", "stream relu 16", "residual 24", "softsign 30", "silu 16", "conv 16",
    "gpt",
)  # fmt: skip
CHANGES = {
    "independent draws": ("`mirror=False`", "no weights in sign pairs"),
    "normal draws": ('`distribution="normal"`', "nothing is orthogonal"),
    "no biases": ('`bias="zero"`', "none in the first layer, none against a steep level, no phases"),
    "whole branches": ('`residual="none"`', "a branch is as large as its stream"),
    "no correction": ('`correct="never"`', "a drawn network is not run"),
    "last layer x 3.2": ("`gains={last: 3.2}`", "ten times the second moment of the output"),
    "anyinit unit": ('`target="unit"`', "no policy at all: a unit level behind every activation"),
}


def unchanged(task: Any, change: str) -> bool:
    """Whether a change leaves every weight of the first seed's start as it is."""
    import torch

    from together import begun

    ours, theirs = (begun(task, (name, 0, 0.0), task.batch)[0].state_dict() for name in ("anyinit", change))
    return all(torch.equal(v, theirs[k]) for k, v in ours.items())


def everything(log: training.Log, tasks: list[Any], seeds: int) -> None:
    """Train what is missing."""
    for task in tasks:
        wanted = list[str]()
        for change in (c for c in CHANGES if c not in training.NAMES):
            mine = [r for k, r in log.known.items() if k[:2] == (task.name, change)]
            if not mine and unchanged(task, change):
                log.add({"task": task.name, "contender": change, "seed": 0, "rate": 0.0, "same": True})
            elif not any("same" in r for r in mine):
                wanted.append(change)
        training.everything(log, [task], seeds, wanted)


def worth(rows: list[Row], base: list[Row]) -> dict[tuple[str, str], float | None]:
    """By task and change, how many times higher the loss becomes; None where nothing changes."""
    default = cells(base)
    changed = {**cells([r for r in rows if "same" not in r]), **{k: v for k, v in default.items() if k[1] in CHANGES}}
    found: dict[tuple[str, str], float | None] = {(r["task"], r["contender"]): None for r in rows if "same" in r}
    for (task, change), loss in changed.items():
        if task in TASKS:
            ours = default[task, "anyinit"]
            found[task, change] = None if loss == ours else loss / ours
    return found


def table(rows: list[Row], base: list[Row]) -> list[str]:
    """Factors by task and change, and their geometric means."""
    found = worth(rows, base)
    tasks = [t for t in TASKS if all((t, c) in found for c in CHANGES)]
    body = [[t, *(_factor(found[t, c]) for c in CHANGES)] for t in tasks]
    means = [_mean([found[t, c] for t in tasks]) for c in CHANGES]
    return grid(["task", *CHANGES], [*body, ["geometric mean of those changed", *means]])


def _factor(ratio: float | None) -> str:
    if ratio is None:
        return "="
    text = "diverged" if not math.isfinite(ratio) else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:,.0f}"
    return f"**{text}**" if ratio < 1 / 1.1 else text


def _mean(ratios: list[float | None]) -> str:
    logs = [math.log(r) for r in ratios if r is not None and math.isfinite(r)]
    return f"{math.exp(statistics.fmean(logs)):.3g}" if logs else "="


def main() -> None:
    args = training.options(__doc__, tuple(CHANGES)).parse_args()
    known = {t.name: t for t in training.known_tasks()}
    wanted, log = [known[t] for t in TASKS if not args.tasks or t in args.tasks], training.Log(args.out)
    if args.refresh:
        log.forget({k for k, r in log.known.items() if "same" in r})
        training.refresh(log, wanted, CHANGES, training.first_loss)
    everything(log, wanted, args.seeds)


if __name__ == "__main__":
    main()

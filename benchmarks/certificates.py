"""How often do certificates tell a starting point that trains from one that does not?

    python benchmarks/certificates.py --out docs/data/certificates.jsonl   # measure starts; can be resumed
    python benchmarks/certificates.py --table                              # error rates, from that file

A start's score is its log loss on the scale of the results page, from the runs in docs/data/training.jsonl: 0 is
the best constant prediction, 1 the best of the task. It has trained if it got halfway.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import scoring
import training

HERE = Path(__file__).parent
DATA = HERE.parent / "docs" / "data" / "certificates.jsonl"
HALFWAY = 0.5


def starts(out: Path) -> None:
    """Certificates of every task and contender, first seed."""
    import torch

    from anyinit._frameworks.torch.runtime import open_model
    from anyinit._graph.rewrite import canonical
    from anyinit._solve.certify import measure
    from anyinit._solve.roles import Uses
    from anyinit.errors import AnyInitError
    from tasks import fields, modern, plain, streams
    from tasks.contenders import start

    torch.set_num_threads(1)
    done = {(r["task"], r["contender"]) for r in scoring.read(out)} if out.exists() else set[tuple[str, str]]()
    for task in [*plain.tasks(), *modern.tasks(), *fields.tasks(), *streams.tasks()]:
        for name in scoring.NAMES:
            if (task.name, name) in done:
                continue
            torch.manual_seed(1000)
            model = task.build()
            batch = task.batch(torch.Generator().manual_seed(2000))[0][:32]
            start(name, task, model, batch, 0)
            runtime = open_model(model, batch, forward=task.forward)
            try:
                graph = canonical(runtime.record())
                uses = Uses(graph)
                uses.collect()
                found = measure(graph, uses, runtime, runtime.read([f[0] for f in runtime.parameters()]))
            except AnyInitError as error:
                print(f"{task.name}, {name}: {error}", file=sys.stderr)
                continue
            row = {"task": task.name, "contender": name, **{c.name: float(f"{c.value:.4g}") for c in found}}
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def scores(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Score of every cell of the results."""
    table, constants = scoring.cells(rows), {r["task"]: r["constant"] for r in rows}
    out: dict[tuple[str, str], float] = {}
    for (task, contender), loss in table.items():
        top = math.log(scoring.capped(scoring.best(table, task), constants[task]) / constants[task])
        mine = math.log(scoring.capped(loss, constants[task]) / constants[task])
        out[task, contender] = mine / top if top < 0 else 0.0
    return out


def table(found: list[dict[str, Any]], score: dict[tuple[str, str], float]) -> list[str]:
    """One row per certificate: its line, and how starts on either side of it trained."""
    from anyinit._solve.plan import LINES, Certificate

    body: list[list[str]] = []
    known = [r for r in found if (r["task"], r["contender"]) in score]
    sides = {n: [Certificate(n, r[n]).passed for r in known if n in r] for n in LINES}
    marks = {n: [score[r["task"], r["contender"]] for r in known if n in r] for n in LINES}
    sides["all of them"] = [all(Certificate(n, r[n]).passed for n in LINES if n in r) for r in known]
    marks["all of them"] = [score[r["task"], r["contender"]] for r in known]
    for name, passed in sides.items():
        good = [m for m, p in zip(marks[name], passed, strict=True) if p]
        bad = [m for m, p in zip(marks[name], passed, strict=True) if not p]
        body.append(
            [name, f"{LINES[name]:g}" if name in LINES else "", *_side(good, below=True), *_side(bad, below=False)]
        )
    head = [
        "certificate",
        "line",
        "pass",
        "mean score",
        "of these not halfway",
        "fail",
        "mean score",
        "of these halfway",
    ]
    return scoring.grid(head, body)


def _side(marks: list[float], *, below: bool) -> list[str]:
    if not marks:
        return ["0", "", ""]
    wrong = sum((m < HALFWAY) == below for m in marks)
    return [f"{len(marks)}", f"{sum(marks) / len(marks):.2f}", f"{wrong / len(marks):.0%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file of JSON lines to write and to resume from")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--runs", type=Path, default=training.DATA)
    parser.add_argument("--table", action="store_true", help="print error rates")
    args = parser.parse_args()
    if args.out is not None:
        starts(args.out)
    if args.table:
        print("\n".join(table(scoring.read(args.data), scores(scoring.read(args.runs)))))


if __name__ == "__main__":
    main()

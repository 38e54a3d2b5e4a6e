"""page"""
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



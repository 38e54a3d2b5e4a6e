"""When do biases in the first layer help? Measured, and what a batch alone says about it beforehand.

    python benchmarks/first_layer_bias.py --out docs/data/first_layer_bias.jsonl   # train; can be stopped and resumed
    python benchmarks/first_layer_bias.py --page docs/first_layer.md               # the page, from that file

Six-layer MLPs of width 64 start as the default policy starts them, once with and once without biases in the first
layer, all else equal. Inputs differ in kind and in dimension. A side's loss is the geometric mean over the seeds of the
mean training loss over the last tenth of the steps, at the learning rate that is best for that side.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).parent.parent / "docs" / "data" / "first_layer_bias.jsonl"
SEEN_BEFORE = DATA.with_name("first_layer_seen.jsonl")  # the criteria of every input
DIMENSIONS = (1, 2, 3, 4, 8, 16, 64)
KINDS = {
    "uniform": "coordinates, uniform in a cube; a smooth function of them",
    "sphere": "points on a sphere; a smooth function of them",
    "positive": "coordinates, uniform between 0 and 1, as they come; a smooth function of them",
    "normal": "standardized columns, independent and normal; a smooth function of them",
    "table": "standardized columns of measurements (breast cancer, scikit-learn); two classes",
    "digits": "leading principal components of digits; ten classes",
    "one-hot": "one of d categories; a number for each",
}
ACTIVATIONS = ("relu", "tanh")
RATES = (3e-4, 1e-3, 3e-3)
SEEDS = 3
STEPS = 200
ROWS = 1024
SEEN = 256  # rows of the batch that the initialization and the criteria see
TIE = 1.1  # sides within this factor of one another: either choice is right
Array = NDArray[np.float64]
Row = dict[str, Any]


# ---------------------------------------------------------------------- inputs
def smooth(x: Array, rng: np.random.Generator) -> Array:
    """A sum of eight sines along random directions with random phases, standardized."""
    along = 1.5 * rng.standard_normal((x.shape[1], 8)) / math.sqrt(float(np.mean(np.sum(np.square(x), axis=1))))
    y = np.sin(x @ along + rng.uniform(0, 2 * math.pi, 8)).sum(1)
    return (y - y.mean()) / y.std()


def data(kind: str, d: int) -> tuple[Array, Array] | None:
    """Inputs and targets (integers: classes); ``None`` where there are none of this dimension."""
    rng = np.random.default_rng(7)
    if kind in {"uniform", "positive", "normal"}:
        low = {"uniform": -1.0, "positive": 0.0}.get(kind)
        x = rng.standard_normal((ROWS, d)) if low is None else rng.uniform(low, 1.0, (ROWS, d))
        return x, smooth(x, rng)
    if kind == "sphere":
        x = rng.standard_normal((ROWS, d))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        return None if d == 1 else (x, smooth(x, rng))
    if kind == "one-hot":
        at = rng.integers(0, d, ROWS)
        y = rng.standard_normal(d)
        return None if d == 1 else (np.eye(d)[at], ((y - y.mean()) / y.std())[at])
    return _collected(kind, d)


def _collected(kind: str, d: int) -> tuple[Array, Array] | None:
    from sklearn.datasets import load_breast_cancer, load_digits

    bunch: Any = load_digits() if kind == "digits" else load_breast_cancer()
    x = np.asarray(bunch.data, np.float64)
    if kind == "table":
        x = (x - x.mean(0)) / x.std(0)
        return None if d > x.shape[1] else (x[:, :d], bunch.target)
    x = (x - x.mean()) / x.std()
    if d == 64:
        return x, bunch.target  # pixels, mean and all
    x = x - x.mean(0)
    x = x @ np.linalg.svd(x, full_matrices=False)[2][:d].T
    return x / x.std(), bunch.target


# ---------------------------------------------------------------------- training
def train(kind: str, d: int, activation: str, biased: bool, rate: float, seed: int) -> Row:
    """One run."""
    import torch
    from torch import nn

    import anyinit
    from anyinit._solve import policy

    found = data(kind, d)
    assert found is not None
    x = torch.tensor(found[0], dtype=torch.float32)
    labels = found[1].dtype.kind == "i"
    y = torch.tensor(found[1]) if labels else torch.tensor(found[1], dtype=torch.float32)[:, None]
    last = int(y.max()) + 1 if labels else 1
    act = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    layers = [m for k in range(5) for m in (nn.Linear(64 if k else d, 64), act())]
    model = nn.Sequential(*layers, nn.Linear(64, last))
    with mock.patch.object(policy, "LENGTH", -1.0 if biased else math.inf):
        anyinit.initialize(model, x[:SEEN], seed=seed)
    assert bool(model[0].bias.any()) == biased
    adam = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    rng = torch.Generator().manual_seed(1000 + seed)
    measure = nn.functional.cross_entropy if labels else nn.functional.mse_loss
    losses: list[float] = []
    for _ in range(STEPS):
        at = torch.randint(0, len(x), (128,), generator=rng)
        loss = measure(model(x[at]), y[at])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    final = statistics.fmean(losses[-(STEPS // 10) :])
    key = {"kind": kind, "d": d, "activation": activation, "biased": biased, "rate": rate, "seed": seed}
    return {**key, "loss": float(f"{final:.5g}")}


def everything(out: Path) -> None:
    """Train what is missing from ``out``."""
    import torch

    torch.set_num_threads(1)
    known = {tuple(list(r.values())[:6]) for r in read(out)} if out.exists() else set[Any]()
    for kind in KINDS:
        for d in DIMENSIONS:
            if data(kind, d) is None:
                continue
            for key in (
                (kind, d, activation, biased, rate, seed)
                for activation in ACTIVATIONS
                for biased in (True, False)
                for rate in RATES
                for seed in range(SEEDS)
            ):
                if key not in known:
                    with out.open("a") as file:
                        file.write(json.dumps(train(*key)) + "\n")
            print(kind, d, flush=True)
    lines = [json.dumps(row) for kind in KINDS for d in DIMENSIONS if (row := seen(kind, d)) is not None]
    SEEN_BEFORE.write_text("\n".join(lines) + "\n")


def read(path: Path) -> list[Row]:
    """Rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


# ---------------------------------------------------------------------- criteria
def count(x: Array) -> float:
    """Numbers per sample."""
    return float(x.shape[1])


def length(x: Array) -> float:
    """Relative variance of the squared norms."""
    norms = np.sum(np.square(x), axis=1)
    return float(norms.var() / norms.mean() ** 2)


def mean_share(x: Array) -> float:
    """Share of the mean sample in the energy."""
    return float(np.sum(np.square(x.mean(0))) / np.mean(np.sum(np.square(x), axis=1)))


def _nearest(x: Array) -> tuple[Array, Array]:
    """Angle to the sample nearest in direction, and the logarithm of the ratio of the two lengths."""
    norms = np.linalg.norm(x, axis=1)
    x, norms = x[norms > 0], norms[norms > 0]
    cosines = (x / norms[:, None]) @ (x / norms[:, None]).T
    np.fill_diagonal(cosines, -2.0)
    at = cosines.argmax(1)
    angles = np.arccos(np.clip(cosines[np.arange(len(x)), at], -1.0, 1.0))
    return angles, np.abs(np.log(norms / norms[at]))


def nearest_angle(x: Array) -> float:
    """Median angle, in radians, to the sample nearest in direction."""
    return float(np.median(_nearest(x)[0]))


def radial(x: Array) -> float:
    """Median difference in log length to the sample nearest in direction, over the median angle to it."""
    angles, lengths = _nearest(x)
    return float(np.median(lengths) / max(float(np.median(angles)), 1e-9))


def directions(x: Array) -> float:
    """Directions in use: ``(tr C)^2 / tr C^2`` of the second moments."""
    spectrum = np.linalg.eigvalsh(x.T @ x / len(x))
    return float(spectrum.sum() ** 2 / np.square(spectrum).sum())


CRITERIA: dict[str, tuple[Callable[[Array], float], int]] = {
    "count of inputs": (count, -1),
    "length variance": (length, 1),
    "nearest angle": (nearest_angle, -1),
    "radial ratio": (radial, 1),
    "length variance up to 8 inputs": (lambda x: length(x) if x.shape[1] <= 8 else 0.0, 1),
    "radial ratio up to 8 inputs": (lambda x: radial(x) if x.shape[1] <= 8 else 0.0, 1),
    "share of the mean": (mean_share, 1),
    "directions in use": (directions, -1),
}
"""Criteria with the sign in which they speak for biases."""
SHOWN = [name for name in CRITERIA if "inputs" not in name]
LENGTH = 0.1  # the line of the length variance in the default policy, for up to 8 inputs


# ---------------------------------------------------------------------- evaluation
Case = tuple[str, int, dict[str, float], dict[str, float]]


def cases(rows: list[Row]) -> list[Case]:
    """Kind, dimension, criteria, and per activation the log of the loss with biases over that without."""
    logs = dict[tuple[Any, ...], list[float]]()
    for r in rows:
        logs.setdefault((r["kind"], r["d"], r["activation"], r["biased"], r["rate"]), []).append(math.log(r["loss"]))
    best = dict[tuple[Any, ...], float]()
    for key, found in logs.items():
        best[key[:4]] = min(best.get(key[:4], math.inf), statistics.fmean(found))
    out: list[Case] = []
    for seen in read(SEEN_BEFORE):
        kind, d = seen["kind"], seen["d"]
        gaps = {a: best[kind, d, a, True] - best[kind, d, a, False] for a in ACTIVATIONS}
        out.append((kind, d, {name: seen[name] for name in CRITERIA}, gaps))
    return out


def seen(kind: str, d: int) -> Row | None:
    """The criteria of one input, to six digits."""
    held = data(kind, d)
    if held is None:
        return None
    return {"kind": kind, "d": d, **{n: float(f"{fn(held[0][:SEEN]):.6g}") for n, (fn, _) in CRITERIA.items()}}


def judged(found: Iterable[Case], choose: Callable[[Case], bool]) -> tuple[int, int, float]:
    """Right choices, all choices, and the mean log loss given away."""
    right, cost = 0, list[float]()
    for case in found:
        for gap in case[3].values():
            lost = max(gap, 0.0) if choose(case) else max(-gap, 0.0)
            right += lost <= math.log(TIE)
            cost.append(lost)
    return right, len(cost), statistics.fmean(cost)


def line(found: list[Case], name: str) -> float:
    """The line that gives least away on these cases: the middle of the best gap between two values."""
    sign = CRITERIA[name][1]
    values = sorted({sign * c[2][name] for c in found})
    lines = [values[0] - 1, *((a + b) / 2 for a, b in itertools.pairwise(values)), values[-1] + 1]
    return sign * min(lines, key=lambda at: judged(found, lambda c: sign * c[2][name] > at)[2])


def elsewhere(found: list[Case], name: str) -> tuple[int, int, float]:
    """As :func:`judged`, every kind with the line that was best on the other kinds."""
    sign, parts = CRITERIA[name][1], list[tuple[int, int, float]]()
    for kind in dict.fromkeys(c[0] for c in found):
        at = line([c for c in found if c[0] != kind], name)
        parts.append(judged([c for c in found if c[0] == kind], lambda c, at=at: sign * c[2][name] > sign * at))
    whole = sum(n for _, n, _ in parts)
    return sum(r for r, _, _ in parts), whole, sum(n * cost for _, n, cost in parts) / whole


# ---------------------------------------------------------------------- the page
def page(rows: list[Row]) -> str:
    """The page, from finished runs."""
    found = cases(rows)
    sides = [
        ["always", "", *_marks(judged(found, lambda _: True)), "", ""],
        ["never", "", *_marks(judged(found, lambda _: False)), "", ""],
        ["length variance up to 8 inputs, as the policy has it", f"{LENGTH:g}",
         *_marks(judged(found, lambda c: c[2]["length variance up to 8 inputs"] > LENGTH)), "", ""],
    ]  # fmt: skip
    for name, (_, sign) in CRITERIA.items():
        at = line(found, name)
        fit = judged(found, lambda c, s=sign, n=name, at=at: s * c[2][n] > s * at)
        sides.append([name, f"{at:.3g}", *_marks(fit), *_marks(elsewhere(found, name))])
    gaps = [
        [kind, f"{d}", *(_times(gap[a]) for a in ACTIVATIONS), *(_number(values[n]) for n in SHOWN)]
        for kind, d, values, gap in found
    ]
    return "\n".join(
        [
            "# Biases in the first layer",
            "",
            "<!-- Written by `python benchmarks/first_layer_bias.py --page docs/first_layer.md`. -->",
            "",
            "A relu network without biases is positively homogeneous, a tanh network odd: along a ray from the origin",
            "neither can tell much. Biases in the first layer end that, and cost something where nothing was to be",
            "told. Which of the two holds is measured here, and compared with what a batch says before training.",
            "",
            f"{len(rows)} runs: MLPs of 6 layers of 64, started as the [default policy](policy.md) starts them with",
            f"and without such biases, {STEPS} steps of Adam, {SEEDS} seeds, the best of {len(RATES)} learning rates",
            "for each side.",
            "",
            "## Which criterion",
            "",
            f"*Right*: choices that give at most {TIE - 1:.0%} away, of two activations on every input below. *Given",
            "away*: geometric-mean factor between the chosen side's loss and the better side's. *Other kinds*: the",
            "line is the best one for all other kinds of input, which is what a new kind would meet.",
            "",
            *grid(["criterion", "line", "right", "given away", "right, other kinds", "given away"], sides),
            "",
            "*Length variance*: relative variance of the squared norms. *Nearest angle*: median angle to the sample",
            f"nearest in direction, among {SEEN}. *Radial ratio*: median difference in log length to that sample over",
            "the median angle: what separates neighbours, length or direction. *Share of the mean*: of the energy.",
            "*Directions in use*: participation ratio of the second moments.",
            "",
            "## What was measured",
            "",
            "Loss with biases over loss without (below one: biases help), and the criteria.",
            "",
            *grid(["input", "numbers", *ACTIVATIONS, *SHOWN], gaps),
            "",
            *(f"* {kind}: {text}." for kind, text in KINDS.items()),
            "",
            "The bound of 8 inputs was chosen after looking at these runs, so the two rows with it flatter themselves;",
            "without labels no criterion sees that classes suffer less from a missing bias than smooth functions do.",
            "One-hot inputs are learned to the last digit within these steps; their ratios are those of tiny numbers.",
            "",
        ]
    )


def _marks(found: tuple[int, int, float]) -> list[str]:
    right, whole, cost = found
    return [f"{right} of {whole}", f"{math.exp(cost):.3f}"]


def _times(gap: float) -> str:
    factor = f"{math.exp(gap):.2g}"
    return f"**{factor}**" if gap < -math.log(TIE) else factor


def _number(value: float) -> str:
    return "0" if value < 1e-6 else "inf" if value > 1e6 else f"{value:.2g}"


def grid(head: list[str], body: list[list[str]]) -> list[str]:
    """A table."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file of JSON lines to write and to resume from")
    parser.add_argument("--page", type=Path, help="write the page here instead of training")
    args = parser.parse_args()
    if args.page is not None:
        args.page.write_text(page(read(DATA)))
    elif args.out is not None:
        everything(args.out)
    else:
        parser.error("Say --out (train) or --page (write the page).")


if __name__ == "__main__":
    main()

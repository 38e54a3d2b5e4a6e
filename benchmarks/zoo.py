"""Every model of the zoo: are all weights placed, and do the predictions hold over real draws?

    python benchmarks/zoo.py                        # all models
    python benchmarks/zoo.py --models gpt2 resnet50 --draws 32
    python benchmarks/zoo.py --worst 5              # also name the worst weights

Columns: seconds to plan; weights placed of all; operations without a rule; the distance in bits between the predicted
and the mean measured level at each weight's own output (median, worst); the same for gradients; the share of single
draws inside their band. The exit status is 1 if a weight was not placed or a model failed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import anyinit
from measure import bits, draw, mean
from models import ZOO


@dataclass(frozen=True)
class Row:
    """What the zoo says about one model."""

    name: str
    seconds: float
    weights: int
    placed: int
    opaque: int
    draws: int
    levels: dict[str, float]
    gradients: dict[str, float]
    inside: float

    def __str__(self) -> str:
        cells = [
            f"{self.name:14s}{self.seconds:7.2f}s",
            f"{self.placed:5d}/{self.weights:<5d}{self.opaque:6d}{self.draws:7d}",
            *(f"{_median(b):8.3f}{max(b.values(), default=float('nan')):8.3f}" for b in (self.levels, self.gradients)),
            f"{100 * self.inside:7.0f} %",
        ]
        return "  ".join(cells)


HEADER = (
    f"{'model':14s}{'plan':>8s}  {'placed':>11s}{'opaque':>6s}{'draws':>7s}"
    f"  {'level bits':>16s}  {'grad. bits':>16s}  {'in band':>9s}"
)


def survey(name: str, most: int) -> Row:
    """Plan, draw and compare one model."""
    torch.manual_seed(0)
    model, batch = ZOO[name]()
    start = time.perf_counter()
    report = anyinit.Report(anyinit.plan(model, batch, seed=0))
    seconds = time.perf_counter() - start
    ensemble = draw(model, batch, most)
    seen = _by_record(report, ensemble.levels)
    grads = _by_record(report, ensemble.gradients)
    predicted = {r.name: r for r in report.layers}
    return Row(
        name=name,
        seconds=seconds,
        weights=report.counts["tensors"]["total"],
        placed=report.counts["tensors"]["total"] - report.counts["tensors"]["not set"],
        opaque=len(report.opaque),
        draws=ensemble.draws,
        levels={n: bits(predicted[n].predicted_output, mean(v)) for n, v in seen.items()},
        gradients={n: bits(predicted[n].predicted_grad, mean(v)) for n, v in grads.items()},
        inside=_coverage(report, seen),
    )


def _by_record(report: anyinit.Report, measured: Mapping[str, list[float]]) -> dict[str, list[float]]:
    found = {r.name: [measured[n] for n in (r.name, *r.aliases) if n in measured] for r in report.layers}
    return {name: values[0] for name, values in found.items() if values}


def _coverage(report: anyinit.Report, seen: Mapping[str, list[float]]) -> float:
    hits = [
        record.output_band[0] <= level <= record.output_band[1]
        for record in report.layers
        if record.output_band is not None
        for level in seen.get(record.name, [])
    ]
    return sum(hits) / len(hits) if hits else float("nan")


def _median(distances: dict[str, float]) -> float:
    return statistics.median(distances.values()) if distances else float("nan")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(ZOO), default=list(ZOO), metavar="NAME")
    parser.add_argument("--draws", type=int, default=12, help="draws at most; fewer where levels are known to 0.1 bit")
    parser.add_argument("--worst", type=int, default=0, help="name the worst weights of each model")
    chosen = parser.parse_args()
    print(HEADER)
    rows: list[Row] = []
    failed: list[str] = []
    for name in chosen.models:
        try:
            rows.append(survey(name, chosen.draws))
        except Exception as error:  # noqa: BLE001  (one model must not end the survey)
            failed.append(name)
            print(f"{name:14s}  failed: {type(error).__name__}: {error}", flush=True)
            continue
        print(rows[-1], flush=True)
        for weight in sorted(rows[-1].levels, key=lambda n: -rows[-1].levels[n])[: chosen.worst]:
            print(f"    {weight}: level {rows[-1].levels[weight]:.3f} bits")
        for weight in sorted(rows[-1].gradients, key=lambda n: -rows[-1].gradients[n])[: chosen.worst]:
            print(f"    {weight}: gradient {rows[-1].gradients[weight]:.3f} bits")
    placed, weights = sum(r.placed for r in rows), sum(r.weights for r in rows)
    print(f"{len(rows)} of {len(chosen.models)} models; {placed} of {weights} parameters placed.")
    return int(bool(failed) or placed < weights)


if __name__ == "__main__":
    sys.exit(main())

"""Every model of the zoo: are all weights placed, and do the predictions hold over real draws?

    python benchmarks/zoo.py                             # all models of models.py
    python benchmarks/zoo.py --models gpt2 resnet50 --least 20   # enough draws to judge the bands too
    python benchmarks/zoo.py --slice hf. --shard 1/4     # names that begin so; the first quarter of them
    python benchmarks/zoo.py --file my_zoo.py            # builders of your own
    python benchmarks/zoo.py --table docs/zoo.md         # the same as a Markdown table
    python benchmarks/zoo.py --worst 5                   # also name the worst weights

Columns: seconds to plan; weights placed of all; operations without a rule; the distance in bits between the predicted
and the mean measured level at each weight's own output (median and worst, as they are and beyond two standard errors of
the measured mean); the same for gradients; the share of single draws inside their band and the band's width over the
observed 5 to 95 % range (median). The exit status is 1 if a weight was not placed or a model failed.

A file of builders holds a dictionary ``ZOO`` or ``REG``: name to builder, or to ``(group, builder)``; a builder
returns ``(model, batch)`` or ``(model, args, kwargs)``.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

import anyinit
from measure import LEAST, bits, draw, error_in_bits, mean

Case = tuple[nn.Module, Any, Callable[..., Any] | None]
NAN = float("nan")


@dataclass(frozen=True)
class Distances:
    """Bits between prediction and measured mean, by weight; and what of it two standard errors leave."""

    raw: dict[str, float]
    beyond: dict[str, float]

    @property
    def four(self) -> tuple[float, float, float, float]:
        """Median and worst, as they are and beyond two standard errors."""
        if not self.raw:
            return NAN, NAN, NAN, NAN
        middle = statistics.median(self.raw.values()), statistics.median(self.beyond.values())
        return middle[0], max(self.raw.values()), middle[1], max(self.beyond.values())


@dataclass(frozen=True)
class Row:
    """What the zoo says about one model."""

    name: str
    seconds: float
    weights: int
    placed: int
    unplaced: tuple[str, ...]
    opaque: int
    draws: int
    levels: Distances
    gradients: Distances
    inside: float
    width: float

    def cells(self) -> list[str]:
        """One text a column."""
        return [
            self.name,
            f"{self.seconds:.2f}",
            f"{self.placed}/{self.weights}",
            str(self.opaque),
            str(self.draws),
            *(f"{x:.3f}" for x in (*self.levels.four, *self.gradients.four)),
            f"{100 * self.inside:.0f} %",
            f"{self.width:.2f}",
        ]


COLUMNS = [
    "model", "plan, s", "placed", "opaque", "draws", "level: median", "worst", "median beyond", "worst beyond",
    "gradient: median", "worst", "median beyond", "worst beyond", "in band", "band / range",
]  # fmt: skip
WIDTHS = [36, 8, 10, 7, 6, 14, 8, 14, 13, 17, 8, 14, 13, 8, 13]


def line(cells: list[str]) -> str:
    """Cells in columns."""
    return " ".join(f"{c:{'<' if k == 0 else '>'}{w}}" for k, (c, w) in enumerate(zip(cells, WIDTHS, strict=True)))


def survey(name: str, case: Case, most: int, least: int = LEAST) -> Row:
    """Plan, draw and compare one model."""
    model, batch, forward = case
    extra = {} if forward is None else {"forward": forward}
    start = time.perf_counter()
    report = anyinit.Report(anyinit.plan(model, batch, seed=0, **extra))
    seconds = time.perf_counter() - start
    model, batch = with_memory(model, batch)
    ensemble = draw(model, batch, most, least, **extra)
    seen = _by_record(report, ensemble.levels)
    grads = _by_record(report, ensemble.gradients)
    predicted = {r.name: r for r in report.layers}
    counts = report.counts["tensors"]
    inside, width = _bands(report, seen)
    return Row(
        name=name,
        seconds=seconds,
        weights=counts["total"],
        placed=counts["total"] - counts["not set"],
        unplaced=tuple(f"{u.name}: {u.reason}" for u in report.unscaled),
        opaque=len(report.opaque),
        draws=ensemble.draws,
        levels=_distances({n: predicted[n].predicted_output for n in seen}, seen),
        gradients=_distances({n: predicted[n].predicted_grad for n in grads}, grads),
        inside=inside,
        width=width,
    )


def with_memory(model: nn.Module, batch: Any) -> tuple[nn.Module, Any]:
    """A model planned on the meta device gets memory before it is drawn, its batch standard normal numbers."""
    if not any(p.is_meta for p in model.parameters()):
        return model, batch
    tensors = batch if isinstance(batch, tuple) else (batch,)
    return model.to_empty(device="cpu"), tuple(torch.randn(t.shape) if t.is_meta else t for t in tensors)


def _distances(predicted: Mapping[str, float | None], seen: Mapping[str, list[float]]) -> Distances:
    raw = {n: bits(predicted[n], mean(v)) for n, v in seen.items()}
    slack = {n: 2 * error_in_bits(v) if len(v) > 1 else 0.0 for n, v in seen.items()}
    return Distances(raw, {n: max(raw[n] - slack[n], 0.0) for n in raw})


def _by_record(report: anyinit.Report, measured: Mapping[str, list[float]]) -> dict[str, list[float]]:
    found = {r.name: [measured[n] for n in (r.name, *r.aliases) if n in measured] for r in report.layers}
    return {name: values[0] for name, values in found.items() if values}


def _bands(report: anyinit.Report, seen: Mapping[str, list[float]]) -> tuple[float, float]:
    """Share of draws inside their band; median ratio of its width to the observed range, in logarithms."""
    hits: list[bool] = []
    ratios: list[float] = []
    for record in report.layers:
        levels = np.asarray(seen.get(record.name, []))
        if record.output_band is None or not levels.size:
            continue
        low, high = record.output_band
        hits += [bool(low <= level <= high) for level in levels]
        if levels.size >= 8 and levels.min() > 0 and low > 0:
            observed = np.diff(np.quantile(np.log(levels), [0.05, 0.95]))[0]
            ratios.append(float(np.log(high / low) / max(observed, 1e-6)))
    return (sum(hits) / len(hits) if hits else NAN), (statistics.median(ratios) if ratios else NAN)


def builders(file: str | None) -> dict[str, Callable[[], Case]]:
    """The zoo by name, from ``models.py`` or a file."""
    path = Path(file) if file else Path(__file__).parent / "models.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    zoo = getattr(module, "ZOO", None) or module.REG
    return {name: _case(entry[1] if isinstance(entry, tuple) else entry) for name, entry in zoo.items()}


def _case(build: Callable[[], Any]) -> Callable[[], Case]:
    def make() -> Case:
        model, batch, *rest = build()
        if not rest:
            return model, batch, None
        (kwargs,) = rest
        if not batch:
            return model, kwargs, None
        if not kwargs:
            return model, batch, None
        return model, batch, lambda m, b: m(*(b if isinstance(b, tuple) else (b,)), **kwargs)

    return make


def chosen_names(names: list[str], starts: list[str] | None, shard: str | None) -> list[str]:
    """Names that begin with one of ``starts``; of those part ``k`` of ``n`` (``k/n``, from 1)."""
    kept = [n for n in names if not starts or any(n.startswith(s) for s in starts)]
    if shard is None:
        return kept
    k, n = (int(x) for x in shard.split("/"))
    return kept[k - 1 :: n]


def write_table(rows: list[Row], path: str) -> None:
    """The rows as a Markdown page."""
    head = (__doc__ or "").split("Columns: ")[1].split(" The exit status")[0].replace("\n", " ")
    lines = ["# The zoo", "", f"Written by `benchmarks/zoo.py --table`. {head[0].upper()}{head[1:]}", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" + " ---: |" * (len(COLUMNS) - 1)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _details(row: Row, worst: int) -> None:
    for text in row.unplaced[:worst]:
        print(f"    not set: {text}")
    for word, found in (("level", row.levels), ("gradient", row.gradients)):
        for weight in sorted(found.raw, key=lambda n: -found.raw[n])[:worst]:
            print(f"    {weight}: {word} {found.raw[weight]:.3f} bits, {found.beyond[weight]:.3f} beyond two s.e.")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", metavar="NAME", help="exactly these")
    parser.add_argument("--slice", nargs="+", metavar="START", help="models whose names begin so")
    parser.add_argument("--shard", metavar="K/N", help="part K of N of the chosen models")
    parser.add_argument("--file", help="a file of builders in place of models.py")
    parser.add_argument("--draws", type=int, default=12, help="draws at most; fewer where levels are known to 0.1 bit")
    parser.add_argument("--least", type=int, default=LEAST, help="draws at least; bands need about twenty")
    parser.add_argument("--worst", type=int, default=0, help="name the worst weights of each model")
    parser.add_argument("--table", metavar="FILE", help="also write the rows as a Markdown page")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    zoo = builders(chosen.file)
    names = chosen.models or chosen_names(list(zoo), chosen.slice, chosen.shard)
    print(line(COLUMNS))
    rows: list[Row] = []
    failed: list[str] = []
    for name in names:
        torch.manual_seed(0)
        try:
            rows.append(survey(name, zoo[name](), max(chosen.draws, chosen.least), chosen.least))
        except Exception as error:  # noqa: BLE001  (one model must not end the survey)
            failed.append(name)
            print(f"{name:14s}  failed: {type(error).__name__}: {error}", flush=True)
            continue
        print(line(rows[-1].cells()), flush=True)
        _details(rows[-1], chosen.worst)
    placed, weights = sum(r.placed for r in rows), sum(r.weights for r in rows)
    print(f"{len(rows)} of {len(names)} models; {placed} of {weights} parameters placed.")
    if chosen.table:
        write_table(rows, chosen.table)
    return int(bool(failed) or placed < weights)


if __name__ == "__main__":
    sys.exit(main())

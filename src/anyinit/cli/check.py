"""``anyinit check``: the plan for a model, and its health."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import anyinit
from anyinit.cli import loading
from anyinit.errors import ConfigError

DTYPES = ("float16", "float32", "float64", "complex64", "int8", "int16", "int32", "int64", "uint8", "bool")


@dataclass(frozen=True, slots=True)
class Abstract:
    """Shape and type of an input that is to be made up."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass
class Checked:
    """What was found: the report of AnyInit's own weights, the diagnosis of the model, or both."""

    target: str
    inputs: str
    seed: int
    weights: str
    report: Any = None
    diagnosis: Any = None
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def text(self) -> str:
        """For people."""
        parts = [f"{self.target} on {self.inputs}: {self.weights}"]
        if self.report is not None:
            parts.append(str(self.report))
        if self.diagnosis is not None:
            parts.append(f"One run forward and back:\n\n{self.diagnosis}")
        count = len(self.findings)
        parts.append(f"In all: {count} finding{'s' * (count > 1)}." if count else "In all: healthy.")
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """For programs; the schema is on the page about the command line."""
        return {
            "target": self.target,
            "inputs": self.inputs,
            "weights": self.weights,
            "seed": self.seed,
            "healthy": not self.findings,
            "findings": self.findings,
            "report": None if self.report is None else self.report.to_dict(),
            "diagnosis": None if self.diagnosis is None else self.diagnosis.to_dict(),
        }


def add(commands: Any) -> None:
    """The command and its arguments."""
    parser = commands.add_parser("check", help="plan and health of a model", description=__doc__)
    parser.add_argument("target", help="path.py:name or package.module:name of a model, its class or a function")
    parser.add_argument("--input", action="append", metavar="[NAME=]SHAPE", help="such as 32,3,224,224; repeatable")
    parser.add_argument("--input-dtype", action="append", metavar="TYPE", help="of all inputs, or of each in turn")
    parser.add_argument("--batch", metavar="TARGET", help="real data in place of --input: an object or a function")
    parser.add_argument("--loss", metavar="TARGET", help="loss(model, batch), for the first step and first loss")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--as-is", action="store_true", help="diagnose the model's own weights, draw nothing")
    what.add_argument("--plan-only", action="store_true", help="predict only: nothing is drawn; meta devices will do")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> Checked:
    """Build, plan, draw and diagnose; the files on disk are only read."""
    if options.batch and options.input:
        raise ConfigError("Both --batch and --input were given", remedy="Leave one out.")
    spec = loading.data(options.batch) if options.batch else inputs(options.input, options.input_dtype)
    loss = loading.named(options.loss) if options.loss else None
    model, params = loading.model(options.target)
    shown = options.batch or ", ".join(options.input or ["an inferred input"])
    checked = Checked(options.target, shown, options.seed, "its own weights")
    if options.plan_only:
        checked.weights = "planned, not drawn"
        checked.report = anyinit.Report(anyinit.plan(model, spec, seed=options.seed, params=params))
    elif not options.as_is:
        checked.weights = f"weights drawn by AnyInit, seed {options.seed}"
        checked.report = anyinit.initialize(model, spec, seed=options.seed, params=params)
        params = checked.report.params
        model = model if params is not None else checked.report.model
    if not options.plan_only:
        checked.diagnosis = anyinit.diagnose(model, spec, loss, params=params)
    checked.findings = findings(checked.report, checked.diagnosis)
    return checked


def findings(report: Any, diagnosis: Any) -> list[dict[str, Any]]:
    """Findings of both, in one form."""
    found: list[dict[str, Any]] = []
    for f in report.findings if report is not None else ():
        found.append({"by": "report", "kind": f.kind, "where": [f.where], "text": str(f)})
    for t in diagnosis.findings if diagnosis is not None else ():
        found.append({"by": "diagnosis", "kind": t.kind, "where": list(t.where), "text": str(t)})
    return found


def inputs(shapes: list[str] | None, dtypes: list[str] | None) -> Any:
    """An ``input_spec`` from shapes as they are typed: one, a tuple, a dictionary of named ones, or None.

    Raises:
        ConfigError: no shape, no type, names on some of them, or another number of types.
    """
    if not shapes:
        if dtypes:
            raise ConfigError("--input-dtype without --input", value=dtypes[0], remedy="Add --input SHAPE.")
        return None
    kinds = list(map(_dtype, dtypes or []))
    if len(kinds) not in (0, 1, len(shapes)):
        remedy = "Give one type for all inputs, or one for each."
        raise ConfigError(f"{len(kinds)} types for {len(shapes)} inputs", value=", ".join(dtypes or []), remedy=remedy)
    kinds = kinds * len(shapes) if len(kinds) == 1 else kinds
    names = [text.rpartition("=")[0].strip() for text in shapes]
    sizes = [_shape(text.rpartition("=")[2]) for text in shapes]
    specs: list[Any] = [Abstract(s, k) for s, k in zip(sizes, kinds, strict=True)] if kinds else list(sizes)
    if any(names):
        if not all(names) or len(set(names)) < len(names):
            raise ConfigError(
                "Some inputs have a name, or share one", value=", ".join(shapes), remedy="Name all of them, or none."
            )
        return dict(zip(names, specs, strict=True))
    return specs[0] if len(specs) == 1 else tuple(specs)


def _shape(text: str) -> tuple[int, ...]:
    pieces = [p.strip() for p in text.strip().strip("()[]").split(",") if p.strip()]
    if not pieces or not all(p.isascii() and p.isdigit() and 0 < int(p) < 2**31 for p in pieces):
        remedy = "Write sizes with commas between them, the batch first: 32,3,224,224."
        raise ConfigError("This is no shape", value=text, remedy=remedy)
    return tuple(map(int, pieces))


def _dtype(text: str) -> np.dtype[Any]:
    if text not in DTYPES:
        raise ConfigError("There is no type of this name for an input", value=text, remedy=f"Use {', '.join(DTYPES)}.")
    return np.dtype(text)

"""``anyinit activation``: the profile of a named activation, or of one written as an expression."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import anyinit
from anyinit.cli.expression import parse

PICTURES = (".png", ".svg", ".pdf")


class Profiled:
    """The profile of what was typed."""

    def __init__(self, text: str, profile: Any) -> None:
        self.expression, self.profile = text, profile

    def text(self) -> str:
        """For people."""
        rows = self.profile.rows()
        width = max(len(label) for label, _ in rows)
        table = [f"{label.ljust(width)}  {value}" for label, value in rows]
        return "\n".join([self.expression, "", *table, "", self.profile.verdict])

    def to_dict(self) -> dict[str, Any]:
        """For programs; the schema is on the page about the command line."""
        p = self.profile
        at, level = p.moments(), p.diagnostics
        return {
            "expression": self.expression,
            "mean": at.mean,
            "second_moment": at.m2,
            "variance": at.variance,
            "squared_slope": at.grad2,
            "gains": {kind: _gain(p, kind) for kind in ("rms", "std", "grad")},
            "sigma_star": level.sigma_star,
            "reachable": None if level.reachable is None else list(level.reachable),
            "chi": p.chi,
            "chi_1": p.chi_1,
            "degree": p.homogeneous_degree,
            "kinks": list(p.kinks),
            "jumps": list(p.jumps),
            "verdict": p.verdict,
        }


def _gain(profile: Any, kind: str) -> float | None:
    try:
        return profile.gain(kind)
    except anyinit.ActivationError:
        return None


def add(commands: Any) -> None:
    """The command and its arguments."""
    parser = commands.add_parser("activation", help="profile of an activation", description=__doc__)
    parser.add_argument("expression", help="a name such as gelu, or a function of x: 'x*sigmoid(1.702*x)'")
    parser.add_argument("--picture", metavar="FILE", help="draw it to a .png, .svg or .pdf file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> Profiled:
    """Read and profile it."""
    text = " ".join(options.expression.split())
    named = text != "x" and text[:1].isalpha() and text.replace("-", "").replace("_", "").isalnum()
    done = Profiled(text, anyinit.activation_profile(text if named else parse(options.expression.strip())))
    if options.picture:
        _save(done.profile, Path(options.picture))
    return done


def _save(profile: Any, path: Path) -> None:
    if path.suffix.lower() not in PICTURES or not path.parent.is_dir():
        cause = "A picture cannot be written under this name"
        remedy = f"Name a file that ends in {', '.join(PICTURES)}, in a folder that exists."
        raise anyinit.ConfigError(cause, value=str(path), remedy=remedy)
    figure, _ = profile.plot()
    try:
        figure.savefig(path)
    except OSError as error:
        remedy = "Choose a place that can be written to."
        raise anyinit.ConfigError("The picture could not be written", value=str(error), remedy=remedy) from error

"""``anyinit activation``: the profile of a named activation, or of one written as an expression."""

from __future__ import annotations

import argparse
from typing import Any

import anyinit
from anyinit.cli.expression import parse


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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> Profiled:
    """Read and profile it."""
    text = " ".join(options.expression.split())
    named = text != "x" and text[:1].isalpha() and text.replace("-", "").replace("_", "").isalnum()
    return Profiled(text, anyinit.activation_profile(text if named else parse(options.expression.strip())))

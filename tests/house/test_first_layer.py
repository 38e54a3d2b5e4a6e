"""The page on first-layer biases is what its script makes of the runs, and its criteria are what they say."""

from __future__ import annotations

import math
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
bench = import_module("first_layer_bias")


def test_the_page_is_the_scripts_output():
    assert (ROOT / "docs" / "first_layer.md").read_text() == bench.page(bench.read(bench.DATA))


@pytest.mark.parametrize(("kind", "d"), [("uniform", 2), ("sphere", 3), ("normal", 16), ("one-hot", 8)])
def test_the_criteria_on_file_are_those_of_the_inputs(kind: str, d: int):
    stored = next(r for r in bench.read(bench.SEEN_BEFORE) if (r["kind"], r["d"]) == (kind, d))
    now = bench.seen(kind, d)
    assert {k: v for k, v in now.items() if k != "kind"} == pytest.approx(
        {k: v for k, v in stored.items() if k != "kind"}, rel=1e-4, abs=1e-6
    )


def test_criteria_have_their_closed_forms():
    x = np.random.default_rng(0).standard_normal((200_000, 5))
    assert bench.length(x) == pytest.approx(2 / 5, rel=0.02)
    assert bench.directions(x) == pytest.approx(5, rel=0.001)
    assert bench.mean_share(x + 1) == pytest.approx(0.5, rel=0.01)
    turned = np.array([[math.cos(a), math.sin(a)] for a in 0.1 * np.arange(20)])
    assert bench.nearest_angle(turned) == pytest.approx(0.1, rel=1e-6)
    assert bench.radial(turned * np.exp(np.arange(20))[:, None]) == pytest.approx(10, rel=1e-6)


def test_what_is_given_away_counts_the_wrong_side_only():
    case = ("uniform", 2, {}, {"relu": math.log(0.5), "tanh": math.log(1.05)})
    assert bench.judged([case], lambda _: True) == (2, 2, pytest.approx(math.log(1.05) / 2))
    assert bench.judged([case], lambda _: False) == (1, 2, pytest.approx(math.log(2) / 2))

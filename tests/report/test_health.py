from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from anyinit import Plan, Report, UnhealthyError
from anyinit._solve.plan import BY_REQUEST
from anyinit.report.diagnosis import outside
from sample_plans import UNHELD, dense, small


def test_a_plan_with_measurements_in_their_bands_is_healthy():
    report = Report(small())
    report.assert_healthy()
    assert report.healthy


@pytest.mark.parametrize("measured", [0.05, 20.0, math.inf, math.nan])
def test_a_measurement_far_outside_its_band_is_a_finding(measured: float):
    report = Report(Plan(0, (dense("fc.weight", 4, 4, measured=measured),)))
    with pytest.raises(UnhealthyError, match=r"fc\.weight"):
        report.assert_healthy()


def test_levels_at_the_own_output_are_judged_as_well():
    report = Report(Plan(0, (dense("fc.weight", 4, 4, measured_output=100.0),)))
    with pytest.raises(UnhealthyError, match="its own output"):
        report.assert_healthy()


def test_every_finding_is_listed_at_once():
    plan = replace(
        small(),
        stability=(UNHELD,),
        unscaled=(("gate", "its use is unknown"),),
        opaque=(("mystery::op", "block.1", "no rule"),),
    )
    with pytest.raises(UnhealthyError) as caught:
        Report(plan).assert_healthy()
    assert {f.kind for f in Report(plan).findings} == {"depth", "not set", "opaque"}
    for words in ("3 findings", "gate: not set", "triples any error", "mystery::op"):
        assert words in str(caught.value)


def test_a_held_path_and_a_parameter_left_alone_on_request_are_no_findings():
    plan = replace(small(), stability=(replace(UNHELD, held=True),), unscaled=(("gate", f"{BY_REQUEST} (skip)"),))
    Report(plan).assert_healthy()


def test_numbers_that_are_not_finite_are_findings_even_unmeasured():
    report = Report(Plan(0, (dense("fc.weight", 4, 4, level=math.inf),)))
    assert "not finite" in {f.kind for f in report.findings}


def test_a_healthy_network_of_fifty_layers_is_rarely_accused():
    sigma = 0.3
    rng = random.Random(0)
    band = (math.exp(-1.6449 * sigma), math.exp(1.6449 * sigma))
    accused = sum(any(outside(math.exp(rng.gauss(0, sigma)), band, 50) for _ in range(50)) for _ in range(2000))
    assert 0 < accused < 2000 * 0.02


def test_a_band_without_width_grants_rounding_only():
    assert not outside(1.01, (1.0, 1.0))
    assert outside(1.05, (1.0, 1.0))


def test_levels_of_zero_are_compared_without_logarithms():
    assert not outside(0.0, (0.0, 0.0))
    assert not outside(0.5, (0.0, 1.0))
    assert outside(0.5, (0.0, 0.1))
    assert outside(0.0, (0.5, 1.0))

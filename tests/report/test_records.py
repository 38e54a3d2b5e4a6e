from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from anyinit import ConfigError, Plan, Report
from sample_plans import constant, deep, dense, packed, small


def test_a_layer_is_a_weight_tensor_and_biases_and_gains_are_only_parameters():
    report = Report(small())
    assert [r.name for r in report.layers] == ["0.weight", "2.weight"]
    assert [r.name for r in report.parameters] == ["0.weight", "0.bias", "2.weight", "norm.weight"]


def test_a_record_carries_what_the_plan_says_of_the_weight():
    record = Report(small()).layers[0]
    assert (record.role, record.activation, record.path, record.fan) == ("weight", "relu", "add -> relu", 4)
    assert record.scale == pytest.approx(math.sqrt(0.5))
    assert (record.predicted, record.predicted_output, record.measured) == (1.0, 2.0, 1.1)
    assert record.band == (1 / 1.5, 1.5)


def test_the_scale_includes_the_measured_correction():
    weight = dense("w", 4, 2)
    part = weight.parts[0]
    weight = replace(weight, parts=(replace(part, draw=replace(part.draw, std=0.5, factor=1.2)),))
    assert Report(Plan(0, (weight,))).layers[0].scale == pytest.approx(0.6)


def test_a_packed_weight_carries_means_over_its_entries_and_the_parts_their_own_numbers():
    record = Report(Plan(0, (packed(),))).layers[0]
    assert [p.label for p in record.parts] == ["q", "k", "v"]
    assert record.predicted == pytest.approx((1 + 2 + 2 * 3) / 4)
    # parts are drawn independently: half-widths of logarithms add in squares, weighted by size and level
    bands, sizes = ((0.5, 1.5), (1.5, 2.5), (2.5, 3.5)), (1, 1, 2)
    middles = [math.sqrt(low * high) * n / 4 for (low, high), n in zip(bands, sizes, strict=True)]
    halves = [0.5 * math.log(high / low) for low, high in bands]
    half = math.hypot(*(m * h for m, h in zip(middles, halves, strict=True))) / sum(middles)
    assert record.band == pytest.approx((sum(middles) * math.exp(-half), sum(middles) * math.exp(half)))
    assert record.scale == pytest.approx(math.sqrt((0.01 + 0.04 + 2 * 0.09) / 4))


def test_part_sizes_follow_reshapes_permutations_and_strided_slices():
    from anyinit._solve.plan import Draw, Part
    from anyinit.report.records import part_size

    view = (("reshape", (2, 3, 4)), ("permute", (2, 0, 1)), ("slice", 0, 1, 4, 2))
    assert part_size((6, 4), Part(draw=Draw(view=view))) == 2 * 2 * 3


def test_counts_of_tensors_and_scalars_add_up_to_the_parameters():
    unset = replace(constant("scale", 5, 0.0, "opaque"), parts=())
    plan = replace(small(), weights=(*small().weights, unset), unscaled=(("scale", "its use is unknown"),))
    counts = Report(plan).counts
    sizes = {w.name: w.size for w in plan.weights}
    assert counts["scalars"]["total"] == sum(sizes.values())
    assert counts["tensors"] == {"drawn": 2, "constant": 2, "kept": 0, "not set": 1, "total": 5}
    assert counts["scalars"] == {"drawn": 32 + 16, "constant": 16, "kept": 0, "not set": 5, "total": 69}


@pytest.mark.parametrize("plan", [small(), deep(), Plan(1, (packed(),))], ids=["small", "deep", "packed"])
def test_a_report_survives_json(plan: Plan):
    report = Report(plan, model=object())
    assert Report.from_json(report.to_json()) == report
    data = json.loads(report.to_json())
    assert len(data["layers"]) == len(report.layers)
    assert Report.from_dict(data).plan.to_dict() == plan.to_dict()


def test_explaining_a_weight_tells_its_draw_its_levels_and_why():
    weight = dense("fc.weight", 8, 4, measured=1.3, why="keeps relu at unit level", chi=1.0, chi_1=1.0)
    told = Report(Plan(0, (weight,))).explain("fc.weight")
    for words in ("drawn normal", "0.7071", "fan 4 in, 8 out", "predicted 1", "measured 1.3", "relu at unit level"):
        assert words in told


def test_explaining_an_unknown_name_names_its_neighbours():
    with pytest.raises(ConfigError, match=r"'0\.weigth'.*Did you mean '0\.weight'"):
        Report(small()).explain("0.weigth")


def test_explaining_a_module_explains_every_parameter_in_it_and_no_other():
    weights = tuple(replace(small().weights[0], name=n) for n in ("a.fc.weight", "a.fc2.weight", "a.fc.bias"))
    report = Report(Plan(0, weights))
    told = report.explain("a.fc")
    assert str(told) == f"{report.explain('a.fc.weight')}\n\n{report.explain('a.fc.bias')}"
    assert "a.fc2" not in told


def test_explaining_a_parameter_that_is_not_set_gives_the_reason():
    plan = replace(small(), unscaled=(("head.gate", "never used in this run"),))
    assert str(Report(plan).explain("head.gate")) == "head.gate is not set: never used in this run"

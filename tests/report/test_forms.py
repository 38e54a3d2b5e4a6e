from __future__ import annotations

import re
from dataclasses import replace

import pytest

from anyinit import Plan, Report
from anyinit.report import rows
from sample_plans import UNHELD, deep, dense, packed, small

SMALL = """\
AnyInit: 4 tensors, 64 parameters (2 drawn, 2 constant); seed 7

weight    fan  draw    scale  feeds        predicted        5-95 %  measured  output  gradient
----------------------------------------------------------------------------------------------
0.weight    4  normal  0.707  add -> relu          1   0.667 - 1.5       1.1       2      0.01
2.weight    8  normal    0.5  add -> relu        0.5  0.333 - 0.75                 1      0.01
----------------------------------------------------------------------------------------------
Levels are second moments, means over draws. Predicted: where the target holds (after activation, pooling);
output: at the weight's own operation, bias included. *: corrected on the drawn network.

Also set: 1 bias = 0; 1 gain = 1.

Healthy (1 of 2 levels measured)."""


def test_the_text_of_a_small_report_is_this():
    assert str(Report(small())) == SMALL
    assert repr(Report(small())) == SMALL


def test_every_line_of_the_table_has_the_width_of_its_rule():
    lines = str(Report(deep())).splitlines()
    rules = [i for i, line in enumerate(lines) if set(line) == {"-"}]
    assert len(rules) == 2
    assert max(len(line) for line in lines[rules[0] - 1 : rules[1]]) == len(lines[rules[0]])


def test_equal_blocks_share_a_row_with_the_range_of_their_numbers():
    told = str(Report(deep()))
    assert "h.{0-11}.fc.weight (12)" in told
    assert "1..2.1" in told
    assert "h.3.fc.weight" not in told


def test_every_weight_has_its_row_on_request():
    told = Report(deep()).to_text(compact=False)
    assert all(f"h.{i}.fc.weight" in told for i in range(12))


def test_a_row_stands_for_as_many_weights_as_it_says():
    groups = rows.grouped(Report(deep()).layers)
    assert sum(map(len, groups)) == 25
    assert [len(g) for g in groups] == [1, 12, 12]


def test_blocks_that_are_not_neighbours_are_named_by_their_numbers():
    layers = Report(Plan(0, tuple(dense(f"{i}.weight", 4, 4) for i in range(0, 10, 2)))).layers
    assert rows.label(layers) == "{0,2,..,8}.weight (5)"
    assert rows.label(layers[:3]) == "{0,2,4}.weight (3)"
    assert rows.label(layers[:1]) == "0.weight"


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, ""), (0.0, "0"), (1.0, "1"), (0.12345, "0.123"), (1234.5, "1234"), (2e-9, "2.0e-09"), (3e7, "3.0e+07")],
)
def test_numbers_are_told_in_three_digits(value: float | None, told: str):
    assert rows.number(value) == told


def test_remarks_stand_below_the_table():
    plan = replace(
        small(),
        stability=(UNHELD,),
        unscaled=(("gate", "its use is unknown"),),
        opaque=(("mystery::op", "", "no rule"),),
        assumptions=("inputs are centred",),
        warnings=("look out",),
        notes=("recorded on real tensors",),
    )
    told = str(Report(plan))
    for words in ("triples any error", "gate: its use", "mystery::op at top level: no rule", "inputs are centred"):
        assert f"  - {words}" in told or words in told
    assert "look out" in told
    assert "recorded on real tensors" in told
    assert told.endswith("3 findings (1 of 2 levels measured).")


def test_long_lists_are_cut_with_their_remainder():
    plan = replace(small(), unscaled=tuple((f"p{i}", "unused") for i in range(30)))
    assert "and 18 more" in str(Report(plan))


def test_equal_remarks_are_told_once_with_their_number():
    told = str(Report(replace(small(), stability=(UNHELD,) * 8)))
    assert told.count("triples any error") == 1
    assert "(8 times)" in told


def test_a_corrected_draw_carries_a_star():
    weight = dense("w", 4, 4)
    part = weight.parts[0]
    corrected = replace(weight, parts=(replace(part, draw=replace(part.draw, factor=0.9)),))
    assert "normal*" in str(Report(Plan(0, (corrected,))))
    assert "normal*" not in str(Report(Plan(0, (weight,))))


def test_members_of_a_row_may_feed_different_places():
    weights = [dense(f"h.{i}.weight", 4, 4, path="add" if i < 29 else "norm") for i in range(30)]
    assert "h.{0-29}.weight (30)" in str(Report(Plan(0, tuple(weights))))
    assert "add / norm" in str(Report(Plan(0, tuple(weights))))


def test_markdown_is_one_table_with_equal_rows():
    lines = [line for line in Report(deep()).to_markdown().splitlines() if line.startswith("|")]
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    assert len(bars) == 1
    assert len(lines) == 2 + 3


def test_markdown_shows_names_as_they_are():
    told = Report(Plan(0, (dense("a_b|c", 2, 2),))).to_markdown()
    assert r"a\_b\|c" in told


def test_html_escapes_names():
    plan = Plan(0, (dense("<script>alert(1)</script>", 2, 2),), warnings=("<b>",))
    shown = Report(plan)._repr_html_()
    assert "<script>" not in shown
    assert "<b>:" not in shown
    assert "&lt;script&gt;" in shown
    assert "&lt;b&gt;" in shown


def test_html_tags_are_balanced():
    shown = Report(deep())._repr_html_()
    for tag in ("div", "table", "thead", "tbody", "tr", "td", "th", "p", "b"):
        assert shown.count(f"<{tag}>") + shown.count(f"<{tag} ") == shown.count(f"</{tag}>")


def test_an_empty_plan_has_a_report():
    told = str(Report(Plan(3, ())))
    assert told.startswith("AnyInit: 0 tensors")
    assert told.endswith("Nothing to initialize: the model has no parameters.")
    assert "seed 3" in told


def test_a_packed_weight_has_one_row_and_an_explanation_per_part():
    report = Report(Plan(0, (packed(),)))
    assert len(rows.table(report.layers)[0].cells) == 1
    assert [line for line in str(report.explain("attn.in_proj_weight")).splitlines() if line.endswith(":")] == [
        "  q:",
        "  k:",
        "  v:",
    ]

"""The plan as data: JSON gives it back exactly, a difference names the parameter and the field."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anyinit._solve.plan import Draw, Part, Plan, Stability, Weight

finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(max_size=8)
dims = st.lists(st.integers(0, 9), max_size=3).map(tuple)
maybe = st.none() | finite
band = st.none() | st.tuples(finite, finite)
steps = st.one_of(
    st.tuples(st.just("reshape"), dims),
    st.tuples(st.just("permute"), dims),
    st.tuples(st.just("slice"), st.integers(0, 3), st.integers(0, 9), st.integers(0, 9), st.integers(1, 3)),
)
draws = st.builds(
    Draw,
    view=st.lists(steps, max_size=3).map(tuple),
    groups=dims,
    outs=dims,
    ins=dims,
    distribution=st.sampled_from(["normal", "orthogonal", "constant", "keep"]),
    std=finite,
    value=finite,
    key=st.integers(0, 2**40),
    factor=finite,
    mirrored=st.sampled_from(["", "rows", "both"]),
)
parts = st.builds(
    Part,
    label=text,
    role=text,
    activation=text,
    path=text,
    fan=st.integers(0, 2**40),
    fan_out=st.integers(0, 2**40),
    draw=draws,
    target=maybe,
    predicted=maybe,
    band=band,
    predicted_output=maybe,
    output_band=band,
    predicted_grad=maybe,
    chi=maybe,
    chi_1=maybe,
    planned=maybe,
    measured=maybe,
    measured_output=maybe,
    measured_grad=maybe,
    why=text,
    flags=st.lists(text, max_size=2).map(tuple),
)
weights = st.builds(
    Weight,
    name=text,
    shape=dims,
    dtype=text,
    aliases=st.lists(text, max_size=2).map(tuple),
    parts=st.lists(parts, max_size=3).map(tuple),
)
stabilities = st.builds(
    Stability,
    kind=text,
    activation=text,
    layers=st.lists(text, max_size=3).map(tuple),
    depth=st.integers(0, 9),
    chi=finite,
    product=finite,
    held=st.booleans(),
    text=text,
)
words = st.lists(text, max_size=2).map(tuple)
plans = st.builds(
    Plan,
    seed=st.integers(0, 2**64),
    weights=st.lists(weights, max_size=3).map(tuple),
    stability=st.lists(stabilities, max_size=2).map(tuple),
    unscaled=st.lists(st.tuples(text, text), max_size=2).map(tuple),
    opaque=st.lists(st.tuples(text, text, text), max_size=2).map(tuple),
    assumptions=words,
    warnings=words,
    notes=words,
    options=st.lists(st.tuples(text, text), max_size=2).map(tuple),
)


@given(plans, st.sampled_from([None, 2]))
@settings(max_examples=80, deadline=None)
def test_json_gives_the_same_plan_back(plan: Plan, indent: int | None) -> None:
    back = Plan.from_json(plan.to_json(indent=indent))
    assert back == plan
    assert hash(back) == hash(plan)  # tuples all the way down
    assert json.loads(plan.to_json())["version"] == plan.version


@given(plans)
@settings(max_examples=40, deadline=None)
def test_a_plan_does_not_differ_from_itself_read_back(plan: Plan) -> None:
    unique = plan.with_weights(tuple({w.name: w for w in plan.weights}.values()))
    assert unique.diff(Plan.from_dict(unique.to_dict())) == []


def two_part_plan(**second: Any) -> Plan:
    q, k = (Part(label=n, draw=Draw(outs=(0,), ins=(1,), std=0.5, key=0)) for n in "qk")
    return Plan(0, (Weight("a", (4, 2), parts=(q, replace(k, draw=replace(k.draw, **second)))), Weight("b", (3,))))


def test_a_difference_names_parameter_part_field_and_both_values() -> None:
    assert two_part_plan().diff(two_part_plan(std=0.25, mirrored="rows")) == [
        ("a[k]", "std", 0.5, 0.25),
        ("a[k]", "mirrored", "", "rows"),
    ]


def test_predictions_are_no_difference_in_what_would_be_written() -> None:
    base = two_part_plan()
    first = base.weights[0]
    told = replace(first, parts=tuple(replace(p, predicted=2.0, why="told") for p in first.parts))
    assert base.diff(base.with_weights((told, base.weights[1]))) == []


def test_missing_reshaped_and_repacked_parameters_are_differences() -> None:
    base = two_part_plan()
    a, b = base.weights
    assert base.diff(base.with_weights((a,))) == [("b", "parameter", b, None)]
    assert base.with_weights((a,)).diff(base) == [("b", "parameter", None, b)]
    reshaped = replace(b, shape=(4,))
    assert base.diff(base.with_weights((a, reshaped))) == [("b", "parameter", b, reshaped)]
    merged = replace(a, parts=a.parts[:1])
    assert base.diff(base.with_weights((merged, b))) == [("a", "parameter", a, merged)]


def test_a_weight_counts_its_scalars() -> None:
    assert Weight("w", (4, 3, 2)).size == 24
    assert Weight("s", ()).size == 1

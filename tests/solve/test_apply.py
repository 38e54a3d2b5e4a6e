"""From a plan to arrays: the same bytes whatever the model held, parts in their places, kept entries kept."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from anyinit._core.layout import extract
from anyinit._core.sampling import draw
from anyinit._solve.apply import materialize, part_values, rematerialize, rescaled, work_dtype
from anyinit._solve.plan import Draw, Part, Plan, Weight
from anyinit.errors import PlanError

SHAPES = {"conv": (8, 4, 3, 3), "qkv": (12, 4), "half": (10, 4), "bias": (8,), "frozen": (3, 3)}


def matrix(key: int, std: float = 0.5, **more: object) -> Draw:
    return Draw(outs=(0,), ins=(1,), std=std, key=key, **more)  # type: ignore[arg-type]


def rows(start: int, stop: int) -> tuple[tuple[object, ...], ...]:
    return (("slice", 0, start, stop, 1),)


def plan(seed: int = 3) -> Plan:
    conv = Draw(outs=(0,), ins=(1, 2, 3), distribution="orthogonal", std=0.2, key=0, factor=1.7)
    qkv = tuple(
        Part(label=label, draw=matrix(10 + k, view=rows(4 * k, 4 * k + 4), std=0.1 * (k + 1)))
        for k, label in enumerate("qkv")
    )
    top = Part(label="top", draw=matrix(2, view=rows(0, 6), distribution="truncated_normal"))
    bias = Part(role="bias", draw=Draw(outs=(0,), distribution="constant", value=0.25))
    keep = Part(draw=Draw(outs=(0,), ins=(1,), distribution="keep"))
    parts = {"conv": (Part(draw=conv),), "qkv": qkv, "half": (top,), "bias": (bias,), "frozen": (keep,)}
    return Plan(seed, tuple(Weight(name, SHAPES[name], parts=parts[name]) for name in SHAPES))


class Held:
    """What a model holds, and what was asked for."""

    def __init__(self, fill: float) -> None:
        self.values = {n: np.full(s, fill, np.float32) for n, s in SHAPES.items()}
        self.asked: list[str] = []

    def __call__(self, names: Collection[str]) -> dict[str, np.ndarray]:
        self.asked += names
        return {n: self.values[n] for n in names}


def test_every_set_parameter_is_made_in_its_shape_and_type() -> None:
    made = materialize(plan(), Held(0.0))
    assert {n: a.shape for n, a in made.items()} == {n: SHAPES[n] for n in ("conv", "qkv", "half", "bias")}
    assert all(a.dtype == np.float32 and a.flags.c_contiguous for a in made.values())


def test_the_bytes_do_not_depend_on_what_the_model_held() -> None:
    one, two = materialize(plan(), Held(0.0)), materialize(plan(), Held(9.0))
    for name in ("conv", "qkv", "bias"):
        assert one[name].tobytes() == two[name].tobytes()
    assert one["half"][:6].tobytes() == two["half"][:6].tobytes()


def test_entries_no_part_covers_keep_what_the_model_held_and_only_those_are_read() -> None:
    held = Held(9.0)
    made = materialize(plan(), held)
    assert held.asked == ["half"]
    assert (made["half"][6:] == 9).all() and not (made["half"][:6] == 9).any()
    assert (held.values["half"] == 9).all()


def test_a_kept_part_of_a_packed_parameter_holds_the_old_values() -> None:
    base = plan()
    first, second, third = base.weights[1].parts
    kept = replace(second, draw=replace(second.draw, distribution="keep"))
    weights = (replace(base.weights[1], parts=(first, kept, third)),)
    held = Held(9.0)
    made = materialize(base.with_weights(weights), held)["qkv"]
    assert held.asked == ["qkv"]
    assert (made[4:8] == 9).all()
    whole = materialize(base, Held(0.0))["qkv"]
    assert made[:4].tobytes() == whole[:4].tobytes() and made[8:].tobytes() == whole[8:].tobytes()


def test_seeds_differ_and_the_same_seed_agrees() -> None:
    assert materialize(plan(3), Held(0))["conv"].tobytes() == materialize(plan(3), Held(0))["conv"].tobytes()
    assert materialize(plan(3), Held(0))["conv"].tobytes() != materialize(plan(4), Held(0))["conv"].tobytes()


def test_a_part_is_its_factor_times_its_draw_in_canonical_layout() -> None:
    made = materialize(plan(), Held(0.0))
    drawn = draw(3, 0, "", (1, 8, 36), "orthogonal", 0.2).astype(np.float64)
    np.testing.assert_array_equal(made["conv"].reshape(1, 8, 36), (drawn * 1.7).astype(np.float32))
    for k in range(3):
        expected = draw(3, 10 + k, "", (1, 4, 4), "normal", 0.1 * (k + 1))
        np.testing.assert_array_equal(made["qkv"][4 * k : 4 * k + 4], expected[0])
    assert (made["bias"] == np.float32(0.25)).all()


def test_transposed_storage_holds_the_same_canonical_weight() -> None:
    stored = Draw(outs=(1,), ins=(0,), std=0.5, key=4)
    other = Plan(3, (Weight("w", (5, 7), parts=(Part(draw=stored),)),))
    plain = Plan(3, (Weight("w", (7, 5), parts=(Part(draw=matrix(4)),)),))
    np.testing.assert_array_equal(materialize(other, Held(0))["w"].T, materialize(plain, Held(0))["w"])


def test_a_mean_follows_the_correction_factor() -> None:
    gain = Draw(outs=(0,), std=0.1, value=1.0, key=0, factor=2.0)
    made = materialize(Plan(0, (Weight("g", (4000,), parts=(Part(draw=gain),)),)), Held(0))["g"]
    assert made.mean() == pytest.approx(2.0, abs=0.02)
    assert made.std() == pytest.approx(0.2, rel=0.05)


def test_types_decide_the_precision_of_the_draw() -> None:
    expected = {
        "float32": np.float32,
        "bfloat16": np.float32,
        "float16": np.float32,
        "half": np.float32,
        "float8_e4m3fn": np.float32,
        "float64": np.float64,
        "double": np.float64,
        "complex64": np.complex64,
        "complex128": np.complex128,
    }
    for name, dtype in expected.items():
        values = materialize(plan(), Held(0), {"qkv": name})["qkv"]
        assert values.dtype == dtype
    double = materialize(plan(), Held(0), {"qkv": "float64"})["qkv"]
    assert (double != double.astype(np.float32)).all()


def test_a_plan_read_back_from_json_makes_the_same_bytes() -> None:
    one, two = materialize(plan(), Held(1.0)), materialize(Plan.from_json(plan().to_json()), Held(1.0))
    assert one.keys() == two.keys()
    assert all(one[n].tobytes() == two[n].tobytes() for n in one)


def corrected(base: Plan) -> Plan:
    """A factor on the convolution, one on a part of the packed weight, the rest as it was."""
    conv, qkv, *others = base.weights
    conv = replace(conv, parts=(replace(conv.parts[0], draw=replace(conv.parts[0].draw, factor=1 / 3)),))
    middle = replace(qkv.parts[1], draw=replace(qkv.parts[1].draw, factor=0.7))
    return base.with_weights((conv, replace(qkv, parts=(qkv.parts[0], middle, qkv.parts[2])), *others))


def test_remaking_after_a_correction_gives_the_bytes_of_making_anew() -> None:
    base = plan()
    conv = base.weights[0]
    uncorrected = replace(conv, parts=(replace(conv.parts[0], draw=replace(conv.parts[0].draw, factor=1.0)),))
    for before in (base, base.with_weights((uncorrected, *base.weights[1:])), plan(seed=4)):
        made = materialize(before, Held(1.0))
        for after in (base, corrected(base), before):
            fresh = materialize(after, Held(1.0))
            again = rematerialize(before, made, after, Held(1.0))
            assert list(again) == list(fresh)
            assert all(again[n].tobytes() == fresh[n].tobytes() for n in fresh)


def test_remaking_an_unchanged_plan_reads_and_copies_nothing() -> None:
    held = Held(1.0)
    made = materialize(plan(), held)
    held.asked.clear()
    again = rematerialize(plan(), made, plan(), held)
    assert held.asked == []
    assert all(again[n] is made[n] for n in made)


def test_progress_counts_every_parameter_once() -> None:
    calls: list[tuple[int, int, str]] = []
    materialize(plan(), Held(0.0), progress=lambda *call: calls.append(call))
    assert calls == [(1, 4, "conv"), (2, 4, "qkv"), (3, 4, "half"), (4, 4, "bias")]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("factor", [1.0, 1 / 3, 1.1])
def test_rescaling_a_drawn_network_gives_the_bytes_of_one_made_with_the_factor(factor: float, dtype: str) -> None:
    first = part_values(0, (50, 40), Part(draw=matrix(0, std=1 / 3)), dtype)
    made = part_values(0, (50, 40), Part(draw=matrix(0, std=1 / 3, factor=factor)), dtype)
    assert rescaled(first, factor).tobytes() == made.tobytes()
    assert made.dtype == dtype
    wide = first.astype(np.result_type(dtype, np.float64)) * factor
    np.testing.assert_array_equal(made, wide.astype(dtype))


def test_the_product_with_a_factor_is_not_taken_in_float32() -> None:
    values = part_values(0, (50, 40), Part(draw=matrix(0)), "float32")
    assert (rescaled(values, 1 / 3) != values * np.float32(1 / 3)).any()


def test_a_packed_weight_and_its_parts_held_separately_are_drawn_alike() -> None:
    packed = plan().weights[1]
    alone = tuple(
        Weight(p.label, (4, 4), parts=(replace(p, label="", draw=replace(p.draw, view=())),)) for p in packed.parts
    )
    made = materialize(plan().with_weights(alone), Held(0))
    np.testing.assert_array_equal(np.concatenate([made[n] for n in "qkv"]), materialize(plan(), Held(0))["qkv"])


def test_two_parts_with_one_key_are_refused() -> None:
    twin = Plan(0, tuple(Weight(n, (4, 4), parts=(Part(draw=matrix(1)),)) for n in ("a", "b")))
    with pytest.raises(PlanError, match=r"share a draw, of a and of b\. Got: 1\. Give every part its own key\."):
        materialize(twin, Held(0))


def test_overlapping_parts_are_refused() -> None:
    parts = (Part(label="a", draw=matrix(0, view=rows(0, 3))), Part(label="b", draw=matrix(1, view=rows(2, 4))))
    with pytest.raises(PlanError, match=r"Parts of w overlap\. Got: \['a', 'b'\]"):
        materialize(Plan(0, (Weight("w", (4, 4), parts=parts),)), Held(0))


def test_a_model_whose_parameter_has_another_shape_is_refused() -> None:
    with pytest.raises(PlanError, match=r"half has another shape than the plan\. Got: \(\(2, 2\), \(10, 4\)\)"):
        materialize(plan(), lambda names: {n: np.zeros((2, 2)) for n in names})


def test_integer_parameters_are_refused() -> None:
    with pytest.raises(PlanError, match=r"Parameter w has a type that cannot be drawn\. Got: int8\. Leave it out"):
        work_dtype("int8", "w")


def test_a_grouped_filter_is_orthogonal_within_each_group() -> None:
    how = Draw(
        view=(("reshape", (3, 4, 4, 5)),), groups=(0,), outs=(1,), ins=(2, 3), distribution="orthogonal", std=0.3
    )
    made = materialize(Plan(0, (Weight("w", (12, 4, 5), parts=(Part(draw=how),)),)), Held(0))["w"]
    groups = extract(made, how.view, how.groups, how.outs, how.ins) / (0.3 * 20**0.5)
    np.testing.assert_allclose(groups @ groups.swapaxes(1, 2), np.broadcast_to(np.eye(4), (3, 4, 4)), atol=1e-6)

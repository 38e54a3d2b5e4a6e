"""Canonical layout: writing and reading through views are inverse, layouts are permutations, fans are counted once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyinit._core.layout import assign, canonical_shape, extract, fans, is_plain, viewed_shape
from anyinit._core.sampling import draw
from anyinit.errors import PlanError

Case = tuple[tuple[int, ...], tuple[tuple[Any, ...], ...], tuple[tuple[int, ...], ...]]


def factorizations(draw_: st.DrawFn, size: int) -> tuple[int, ...]:
    out: list[int] = []
    while size > 1 and len(out) < 4:
        factor = draw_(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        out.append(factor)
        size //= factor
    return (*out, size)


@st.composite
def cases(draw_: st.DrawFn) -> Case:
    """A parameter shape, a valid chain of steps, and a split of the final dimensions into three."""
    shape = tuple(draw_(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    current, view = shape, []
    for _ in range(draw_(st.integers(0, 4))):
        kind = draw_(st.sampled_from(["reshape", "permute", "slice"]))
        if kind == "reshape":
            view.append(("reshape", factorizations(draw_, math.prod(current))))
        elif kind == "permute":
            view.append(("permute", tuple(draw_(st.permutations(range(len(current)))))))
        else:
            dim = draw_(st.integers(0, len(current) - 1))
            start = draw_(st.integers(0, current[dim] - 1))
            view.append(("slice", dim, start, draw_(st.integers(start + 1, current[dim])), draw_(st.integers(1, 3))))
        current = viewed_shape(shape, view)
    order = draw_(st.permutations(range(len(current))))
    a, b = sorted((draw_(st.integers(0, len(order))), draw_(st.integers(0, len(order)))))
    return shape, tuple(view), (tuple(order[:a]), tuple(order[a:b]), tuple(order[b:]))


def reference(array: np.ndarray, view: Any, split: Any) -> np.ndarray:
    """Places of the canonical entries, by the plainest means: flat numbers pushed through copies."""
    places = np.arange(array.size).reshape(array.shape)
    for step in view:
        if step[0] == "slice":
            places = places.take(range(*step[2:]), axis=step[1]).copy()
        else:
            places = (places.reshape(step[1]) if step[0] == "reshape" else places.transpose(step[1])).copy()
    return places.transpose(sum(split, ())).ravel()


@given(cases())
@settings(max_examples=300, deadline=None)
def test_what_is_assigned_is_extracted_and_nothing_else_is_touched(case: Case) -> None:
    shape, view, split = case
    target = -np.arange(1.0, 1 + math.prod(shape)).reshape(shape)
    before = target.copy()
    size = canonical_shape(shape, view, *split)
    values = np.arange(1.0, 1 + math.prod(size)).reshape(size)
    assign(target, view, *split, values)
    np.testing.assert_array_equal(extract(target, view, *split), values)
    places = reference(target, view, split)
    np.testing.assert_array_equal(target.ravel()[places], values.ravel())
    rest = np.setdiff1d(np.arange(target.size), places)
    np.testing.assert_array_equal(target.ravel()[rest], before.ravel()[rest])


@given(cases())
@settings(max_examples=100, deadline=None)
def test_extracting_and_assigning_back_changes_nothing(case: Case) -> None:
    shape, view, split = case
    target = np.random.default_rng(0).standard_normal(shape)
    before = target.copy()
    assign(target, view, *split, extract(target, view, *split).copy())
    assert target.tobytes() == before.tobytes()


def test_a_reshape_that_must_copy_still_writes_through() -> None:
    """Rows of a transposed matrix merged: NumPy has no view of that."""
    target = np.zeros((4, 6))
    view = (("permute", (1, 0)), ("reshape", (24,)))
    assert not np.may_share_memory(target.T.reshape(24), target)
    assign(target, view, (), (0,), (), np.arange(24.0).reshape(1, 24, 1))
    np.testing.assert_array_equal(target, np.arange(24.0).reshape(6, 4).T)


def test_oihw_and_hwio_hold_permutations_of_the_same_canonical_weight() -> None:
    out, inp, h, w = 8, 5, 3, 2
    values = draw(0, 0, "", (1, out, inp * h * w))
    oihw, hwio = np.zeros((out, inp, h, w), np.float32), np.zeros((h, w, inp, out), np.float32)
    assign(oihw, (), (), (0,), (1, 2, 3), values)
    assign(hwio, (), (), (3,), (2, 0, 1), values)
    assert hwio.transpose(3, 2, 0, 1).tobytes() == oihw.tobytes()


def test_a_packed_query_key_value_weight_is_three_matrices_in_either_framework() -> None:
    width = 6
    rng = np.random.default_rng(0)
    parts = rng.standard_normal((3, 1, width, width))
    rows, cols = np.zeros((3 * width, width)), np.zeros((width, 3 * width))  # torch Linear, GPT-2's Conv1D
    for k in range(3):
        assign(rows, (("slice", 0, k * width, (k + 1) * width, 1),), (), (0,), (1,), parts[k])
        assign(cols, (("slice", 1, k * width, (k + 1) * width, 1),), (), (1,), (0,), parts[k])
    np.testing.assert_array_equal(rows, parts.reshape(3 * width, width))
    np.testing.assert_array_equal(cols, rows.T)


def test_grouped_filters_and_stacked_experts_become_groups() -> None:
    assert canonical_shape((12, 3, 5), (("reshape", (4, 3, 3, 5)),), (0,), (1,), (2, 3)) == (4, 3, 15)
    assert canonical_shape((8, 16, 32), (), (0,), (2,), (1,)) == (8, 32, 16)


def test_only_the_whole_parameter_in_stored_order_is_plain() -> None:
    assert is_plain((), (), (0,), (1, 2))
    assert not is_plain((), (), (1,), (0,))
    assert not is_plain((("slice", 0, 0, 1, 1),), (), (0,), (1,))


@pytest.mark.parametrize(
    ("shape", "view", "split", "message"),
    [
        ((4, 6), (("reshape", (5, 5)),), ((), (0,), (1,)), r"does not fit a parameter\. Got: \(\(4, 6\)"),
        ((4, 6), (("permute", (0, 0)),), ((), (0,), (1,)), "does not fit"),
        ((4, 6), (("slice", 1, 2, 7, 1),), ((), (0,), (1,)), "does not fit"),
        ((4, 6), (("slice", 2, 0, 1, 1),), ((), (0,), (1,)), "does not fit"),
        ((4, 6), (("flip", 0),), ((), (0,), (1,)), "does not fit"),
        ((4, 6), (), ((), (0,), ()), "name every dimension of the view once"),
        ((4, 6), (), ((0,), (0,), (1,)), "name every dimension"),
    ],
)
def test_views_that_do_not_fit_are_refused(shape: Any, view: Any, split: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        canonical_shape(shape, view, *split)


def test_values_of_another_shape_are_refused_and_the_target_stays() -> None:
    target = np.ones((4, 6))
    with pytest.raises(PlanError, match=r"Values do not fit the part\. Got: \(\(1, 6, 4\), \(1, 4, 6\)\)"):
        assign(target, (), (), (0,), (1,), np.zeros((1, 6, 4)))
    assert (target == 1).all()


def test_fans_count_the_terms_of_one_output_and_one_gradient() -> None:
    assert fans(64, 32) == (32, 64)
    assert fans(64, 32, taps=9) == (288, 576)
    assert fans(64, 32, taps=9, stride=4) == (288, 144)
    assert fans(64, 32, taps=16, spread=4) == (128, 1024)  # transposed 4x4, stride 2


@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (4, 2), (6, 3)])
def test_strided_fans_agree_with_counting_the_entries_of_the_unrolled_matrix(taps: int, stride: int) -> None:
    """One channel on a long line, away from the ends: nonzeros per row and column of the operator."""
    length = 60
    steps = (length - taps) // stride + 1
    operator = np.zeros((steps, length))
    for o in range(steps):
        operator[o, o * stride : o * stride + taps] = 1
    middle = slice(taps, (steps - 1) * stride)
    fan_in, fan_out = fans(1, 1, taps=taps, stride=stride)
    assert operator.sum(axis=1).mean() == fan_in
    assert operator.sum(axis=0)[middle].mean() == pytest.approx(fan_out, rel=0.02)
    assert fans(1, 1, taps=taps, spread=stride) == (fan_out, fan_in)

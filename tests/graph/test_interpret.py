"""The vocabulary on numbers: pull-backs are derivatives, and shapes are those announced."""

from __future__ import annotations

import numpy as np
import pytest

from anyinit._graph import ops
from anyinit._graph.graph import Builder, Leaf
from anyinit._graph.interpret import MEANING, apply, output_shape, run
from anyinit._graph.pullback import MOVERS, PULLBACK, pull_back
from anyinit.errors import AnyInitError
from rule_rows import ROWS, Row

KNOWN = [row for row in ROWS if row.meaning is None]


def drawn(row: Row) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [spec.draw(rng, 1)[0] for spec in row.inputs]


def value(row: Row, xs: list[np.ndarray]) -> np.ndarray:
    return apply(row.op, xs, output_shape(row.op, xs), np.random.default_rng(2))


@pytest.mark.parametrize("row", KNOWN, ids=lambda r: r.name)
def test_the_output_has_the_announced_shape(row: Row):
    xs = drawn(row)
    assert value(row, xs).shape == output_shape(row.op, xs)


@pytest.mark.parametrize("row", [r for r in KNOWN if r.inputs and r.kind != "int"], ids=lambda r: r.name)
def test_a_pull_back_is_the_derivative_along_any_direction(row: Row):
    rng = np.random.default_rng(4)
    xs = drawn(row)
    y = value(row, xs)
    g = rng.standard_normal(y.shape) + (1j * rng.standard_normal(y.shape) if np.iscomplexobj(y) else 0)
    for i, gradient in enumerate(pull_back(row.op, xs, y, g)):
        if gradient is None:
            assert np.asarray(xs[i]).dtype.kind != "f" or row.kind == "bool"
            continue
        if xs[i].dtype.kind != "f" or (row.op == ops.Pointwise("where", (None, None, None)) and i == 0):
            continue
        direction, h = rng.standard_normal(xs[i].shape), 1e-7
        ends = [value(row, [*xs[:i], xs[i] + s * h * direction, *xs[i + 1 :]]) for s in (1, -1)]
        slope = float(np.real(np.vdot(g, ends[0] - ends[1]))) / (2 * h)
        assert float(np.sum(gradient * direction)) == pytest.approx(slope, rel=1e-5, abs=1e-4)


def test_every_operation_but_the_unknown_one_has_a_meaning_and_a_pull_back():
    assert set(ops.VOCABULARY) - set(MEANING) == {ops.Opaque}
    assert set(ops.VOCABULARY) - set(PULLBACK) - set(MOVERS) == {ops.Opaque}


def test_an_unknown_operation_is_refused():
    with pytest.raises(AnyInitError, match="no meaning in NumPy"):
        apply(ops.Opaque("mystery"), [np.zeros(2)], (2,))


def test_a_graph_runs_from_named_leaves():
    b = Builder()
    x = b.leaf(Leaf("input", "x"), (2, 3))
    w = b.leaf(Leaf("param", "w"), (4, 3))
    z = b.add(ops.Contract((0, 1), (2, 1), (0, 2)), (x, w), (2, 4))
    y = b.add(ops.Pointwise("relu", (None,)), (z,), (2, 4))
    given = {"x": np.arange(6.0).reshape(2, 3), "w": np.linspace(-1, 1, 12).reshape(4, 3)}
    values = run(b.finish((y,)), given)
    assert values[y] == pytest.approx(np.maximum(given["x"] @ given["w"].T, 0))


def test_windows_of_a_transposed_convolution_spread_their_input():
    op = ops.Contract((0,), (1,), (2,), (ops.Window(0, 1, 2, 2, 1, 1, 1, 1, 2),))
    x, w = np.array([1.0, 10.0]), np.array([2.0, 3.0])
    # 0 [1 0 10] 0 seen through two taps
    assert apply(op, [x, w], output_shape(op, [x, w])) == pytest.approx([3, 2, 30, 20])


def test_interpolation_is_exact_on_a_line():
    x = 2.0 * np.arange(8) + 1
    expected = 2 * ((np.arange(16) + 0.5) / 2 - 0.5) + 1
    inner = slice(4, 12)  # beyond, edges are repeated
    assert apply(ops.Resize((0,), (16,), "linear"), [x], (16,))[inner] == pytest.approx(expected[inner])
    assert apply(ops.Resize((0,), (4,)), [x], (4,)) == pytest.approx(x[::2])

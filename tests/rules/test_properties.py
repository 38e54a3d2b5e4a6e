"""Laws that hold whatever is drawn: tables, linear rules, scalings, and small random graphs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyinit._core.field import GRID
from anyinit._core.tables import Layout, Table, align, build, collapse, conform, gather_down, separate, simplify, single
from anyinit._graph import ops
from anyinit._graph.interpret import apply, output_shape
from anyinit._rules import ADJOINT, FORWARD
from anyinit._rules.base import Site
from anyinit._rules.pointwise import as_source, slopes
from anyinit._rules.structure import divisible, reshape_layout
from anyinit.testing import Field, Weights, draw_table, pair_moments
from rule_rows import ROWS, Row

FIXED = settings(max_examples=60, deadline=None, derandomize=True)

sizes = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """A few dimensions of one or two factors; some factors share a group."""
    dims = []
    for _ in range(draw(st.integers(1, 3))):
        factors = draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=2))
        dims.append([(n, draw(st.integers(0, 3))) for n in factors])
    return build(dims)[0]


def a_table(layout: Layout, seed: int) -> Table:
    """A table that some field has: positive components of every subset of groups."""
    rng = np.random.default_rng(seed)
    masks = np.arange(1 << layout.groups)
    parts = rng.exponential(size=masks.size)
    return np.array([parts[(masks & m) == 0].sum() for m in masks])


def whole(layout: Layout, table: Table) -> float:
    """Second moment of the sum of all entries."""
    return layout.size**2 * float(layout.pairs @ table)


@FIXED
@given(layouts(), layouts(), st.integers(0, 99))
def test_a_table_re_expressed_keeps_its_level_and_its_sum(one: Layout, two: Layout, seed: int):
    target = single(one.shape)
    table = a_table(one, seed)
    other = conform(one, table, target)
    assert other[0] == pytest.approx(table[0])
    assert whole(target, other) == pytest.approx(whole(one, table))
    if two.shape == one.shape:
        assert whole(two, conform(one, table, two)) == pytest.approx(whole(one, table))


@FIXED
@given(layouts(), st.integers(0, 99))
def test_a_refinement_loses_nothing(layout: Layout, seed: int):
    table = a_table(layout, seed)
    fine = Layout(tuple(tuple((n, 10 * d + i) for i, (n, _) in enumerate(dim)) for d, dim in enumerate(layout.dims)))
    fine = build(fine.dims)[0]
    assert conform(fine, conform(layout, table, fine), layout) == pytest.approx(table)


@FIXED
@given(layouts(), st.integers(0, 99))
def test_groups_that_are_merged_are_those_the_table_does_not_tell_apart(layout: Layout, seed: int):
    twin = Layout(tuple((*dim, (2, layout.groups)) for dim in layout.dims[:1]) + layout.dims[1:])
    table = a_table(layout, seed)
    doubled = np.concatenate([table, table[np.arange(table.size) * 0 + table.size - 1]])
    fewer, (kept,) = simplify(twin, [doubled], limit=7)
    assert fewer.groups <= twin.groups
    assert kept[0] == pytest.approx(table[0])


@FIXED
@given(sizes, st.integers(0, 99), st.data())
def test_a_sum_over_broadcast_axes_keeps_the_sum_of_everything(shape: list[int], seed: int, data: st.DataObject):
    big = separate(shape)
    kept = [n if data.draw(st.booleans()) else 1 for n in shape]
    small = separate(kept)
    table = a_table(big, seed)
    assert whole(small, gather_down(big, table, small)) == pytest.approx(whole(big, table))


@FIXED
@given(layouts(), st.data())
def test_reshaping_there_and_back_changes_no_table(layout: Layout, data: st.DataObject):
    table = a_table(layout, 1)
    factors = [n for dim in layout.dims for n, _ in dim]
    cuts = [i + 1 for i in range(len(factors) - 1) if data.draw(st.booleans())]
    shape = [math.prod(part) for part in np.split(factors, cuts)]
    assert divisible(layout, shape) is layout
    there, masks = reshape_layout(layout, shape)
    moved = table if masks is None else table[masks]
    back, masks = reshape_layout(there, layout.shape)
    assert conform(back, moved if masks is None else moved[masks], layout) == pytest.approx(table)


@FIXED
@given(layouts(), st.data())
def test_a_reshape_that_divides_nothing_keeps_level_and_sum(layout: Layout, data: st.DataObject):
    n = layout.size
    first = data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
    shape = [first, n // first]
    merged = divisible(layout, shape)
    table = conform(layout, a_table(layout, 2), merged)
    there, masks = reshape_layout(merged, shape)
    moved = table if masks is None else table[masks]
    assert there.shape == tuple(shape)
    assert moved[0] == pytest.approx(a_table(layout, 2)[0])
    assert whole(there, moved) == pytest.approx(whole(layout, a_table(layout, 2)))


@FIXED
@given(st.permutations(range(3)), st.integers(0, 99))
def test_a_permutation_and_its_inverse_change_no_table(order: list[int], seed: int):
    x = Field((2, 3, 4), {(0, 1, 2): 1.0, (0,): 0.5, (1, 2): 0.3}, mean=seed / 50).signal("x")
    there = FORWARD[ops.Permute](ops.Permute(tuple(order)), (x,), Site(1, tuple(x.layout.shape[i] for i in order)))
    back = FORWARD[ops.Permute](ops.Permute(tuple(np.argsort(order))), (there,), Site(2, x.layout.shape))
    assert conform(back.layout, back.cov, x.layout) == pytest.approx(x.cov)


def test_aligned_layouts_see_a_broadcast_axis_as_one_entry():
    layout, (a, b) = align([separate((4, 5)), separate((5,))], (4, 5))
    assert layout.groups == 2
    assert list(a) == [0, 1, 2, 3]
    assert list(b) == [0, 0, 1, 1]
    assert collapse(layout, np.array([4.0, 3.0, 2.0, 1.0]), b, 1) == pytest.approx([(4 + 3 * 3) / 4, (2 + 3) / 4])


LINEAR = (
    ops.Reshape, ops.Permute, ops.Expand, ops.Repeat, ops.Slice, ops.Shuffle, ops.Unfold, ops.Triangle, ops.Resize,
)  # fmt: skip


def is_linear(row: Row) -> bool:
    match row.op:
        case ops.Reduce(kind):
            return kind in ("sum", "mean")
        case ops.Pool(kind):
            return kind == "avg"
        case ops.Cumulate(_, kind):
            return kind == "sum"
        case ops.Pad(_, _, value):
            return value == 0
        case _:
            return isinstance(row.op, LINEAR)


def applied(row: Row, scale: float = 1.0):
    specs = [scaled(s, scale) for s in row.inputs]
    signals = tuple(as_source(s.signal(i), i) for i, s in enumerate(specs))
    shape = output_shape(row.op, [s.draw(np.random.default_rng(0), 1)[0] for s in specs])
    return signals, FORWARD[type(row.op)](row.op, signals, Site(9, shape, row.kind, tuple(range(len(specs)))))


def scaled(spec, c: float):
    if c == 1.0 or not isinstance(spec, Field):
        return spec
    parts = {k: v * c * c for k, v in spec.parts.items()}
    return Field(spec.shape, parts, spec.mean * c, spec.factors, spec.groups, spec.centred, spec.through)


@pytest.mark.parametrize("row", [r for r in ROWS if is_linear(r)], ids=lambda r: r.name)
def test_a_linear_rule_and_its_adjoint_agree_on_every_inner_product(row: Row):
    """``E (g . Mx)^2 = E (M'g . x)^2``: both sides are sums over pairs of a product of two tables."""
    (x,), y = applied(row)
    grad, _ = draw_table(y.layout, np.random.default_rng(0), 1)
    (back,) = ADJOINT[type(row.op)](row.op, (x,), y, grad)
    assert back is not None
    forward_side, backward_side = whole(y.layout, grad * y.cov), whole(x.layout, back * x.cov)
    assert forward_side == pytest.approx(backward_side, rel=0.05 if row.allow else 1e-5)


def is_homogeneous(row: Row) -> bool:
    """Whether scaling the only input scales the output."""
    if len(row.inputs) != 1 or not isinstance(row.inputs[0], Field) or row.inputs[0].through not in (None, "relu"):
        return False
    match row.op:
        case ops.Pointwise(name):
            return name in ("relu", "abs")
        case ops.Reduce(kind):
            return kind in ("sum", "mean", "max", "min", "norm", "std")
        case _:
            return is_linear(row) or isinstance(row.op, ops.Pool | ops.Sort | ops.Dropout)


HOMOGENEOUS = [row for row in ROWS if is_homogeneous(row)]


@pytest.mark.parametrize("row", HOMOGENEOUS, ids=lambda r: r.name)
@given(st.sampled_from([1e-3, 0.1, 7.0, 1e3]))
@settings(max_examples=4, deadline=None, derandomize=True)
def test_inputs_times_c_give_an_output_times_c(row: Row, c: float):
    _, one = applied(row)
    _, other = applied(row, c)
    assert other.cov == pytest.approx(c * c * one.cov, rel=1e-6, abs=1e-9 * c * c * one.m2)
    assert other.mean == pytest.approx(c * one.mean, rel=1e-6, abs=1e-9 * c * math.sqrt(one.m2))


def without_epsilon(row: Row) -> bool:
    """Norms that epsilon does not enter; of two entries, nothing but epsilon lets a gradient pass."""
    op = row.op
    return isinstance(op, ops.Normalize) and op.eps < 0.1 and math.prod(row.inputs[0].shape[d] for d in op.dims) > 2


@pytest.mark.parametrize("row", filter(without_epsilon, ROWS), ids=lambda r: r.name)
@given(st.sampled_from([3.0, 30.0, 1e3]))
@settings(max_examples=3, deadline=None, derandomize=True)
def test_a_norm_forgets_the_scale_of_its_input(row: Row, c: float):
    (x,), one = applied(row)
    (big,), other = applied(row, c)
    assert other.cov == pytest.approx(one.cov, rel=1e-4, abs=1e-4)
    grad, _ = draw_table(one.layout, np.random.default_rng(0), 1)
    small, large = (ADJOINT[ops.Normalize](row.op, (s,), o, grad)[0] for s, o in ((x, one), (big, other)))
    assert large * c * c == pytest.approx(small, rel=1e-4, abs=1e-4 * small[0])


# --- random graphs ----------------------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[ops.Op, tuple[int, ...] | None]]:
    """Operations on a value of shape (5, 4, 16); the second entry is the shape of a fresh weight, if any."""
    steps: list[tuple[ops.Op, tuple[int, ...] | None]] = []
    for _ in range(draw(st.integers(2, 4))):
        kind = draw(st.sampled_from(["curve", "linear", "mix", "gate", "pool", "norm", "move", "bias"]))
        steps.append({
            "curve": (ops.Pointwise(draw(st.sampled_from(["relu", "tanh", "gelu", "sin"])), (None,)), None),
            "linear": (ops.Contract((0, 1, 2), (3, 2), (0, 1, 3)), (16, 16)),
            "mix": (ops.Contract((0, 1, 2), (3, 1), (0, 3, 2)), (4, 4)),
            "gate": (ops.Pointwise("mul", (None, None)), (4, 16)),
            "pool": (ops.Pool("avg", (ops.PoolWindow(1, 3, 1, 1, 1),)), None),
            "norm": (ops.Normalize((2,), 1e-6), None),
            "move": (ops.Shuffle((2,)), None),
            "bias": (ops.Pointwise("add", (None, None)), (16,)),
        }[kind])  # fmt: skip
    return steps


@given(chains(), st.integers(0, 1000))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_a_short_random_network_is_predicted_from_its_input(steps: list, seed: int):
    """Level, mean and pairs after up to four operations, against the interpreter; 8 % of the level covers what
    sixteen units leave to chance and to order 1/n."""
    shape, draws = (5, 4, 16), 300
    rng = np.random.default_rng(seed)
    spec = Field(shape, {(0, 1, 2): 1.0, (0, 2): 0.3, (1, 2): 0.2}, mean=0.2)
    signal, values = as_source(spec.signal("x"), 0), spec.draw(rng, draws)
    for i, (op, size) in enumerate(steps):
        extra = [] if size is None else [Weights(size, 0.3 if len(size) == 2 and size[0] == size[1] else 1.0)]
        others = [w.draw(rng, draws) for w in extra]
        inputs = (signal, *(as_source(w.signal(("w", i)), 100 + i) for w in extra))
        signal = FORWARD[type(op)](op, inputs, Site(200 + i, shape, "float", tuple(range(len(inputs)))))
        signal = signal if isinstance(op, ops.Pointwise) and signal.sources else as_source(signal, 200 + i)
        values = np.array([apply(op, [values[r], *(o[r] for o in others)], shape) for r in range(draws)])
    pairs = pair_moments(values, signal.layout)
    error = pairs.std(0) / math.sqrt(draws)
    allowed = 5 * error + 0.08 * pairs[:, 0].mean()
    assert np.all(np.abs(pairs.mean(0) - signal.cov) < allowed), (
        steps,
        pairs.mean(0),
        signal.cov,
    )
    means = values.reshape(draws, -1).mean(1)
    assert abs(means.mean() - signal.mean) < 5 * means.std() / math.sqrt(draws) + 0.05 * math.sqrt(pairs[:, 0].mean())


@pytest.mark.parametrize("width", [0.1, 1.0, 1.5, 2.5])
def test_a_large_tail_of_the_operand_does_not_blunt_the_slope_where_the_operand_is(width: float):
    x = np.cosh(width * GRID)
    (slope,) = slopes(ops.Pointwise("log", (None,)), [x])
    near = np.abs(GRID) < 4
    np.testing.assert_allclose(slope[near], 1 / x[near], rtol=1e-5)

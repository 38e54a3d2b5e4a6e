"""Every rule against drawn arrays, field by field and gradient by gradient."""

from __future__ import annotations

from collections import Counter

import pytest

from anyinit._core.field import gaussian
from anyinit._graph.ops import VOCABULARY, Op, Pointwise, Reduce
from anyinit._rules import ADJOINT, FORWARD
from anyinit.testing import Field, check_rule
from rule_rows import ROWS, Row


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_a_rule_predicts_every_statistic_of_what_is_drawn(row: Row):
    check_rule(row.op, row.inputs, kind=row.kind, meaning=row.meaning, pull=row.pull, **row.allow)


@pytest.mark.parametrize("row", [r for r in ROWS if r.allow], ids=lambda r: r.name)
def test_a_row_that_allows_an_error_says_why(row: Row):
    assert len(row.why.split()) >= 4


@pytest.mark.parametrize("op", VOCABULARY, ids=lambda o: o.__name__)
def test_an_operation_has_a_rule_forward_and_back_and_a_row(op: type[Op]):
    assert op in FORWARD
    assert op in ADJOINT
    assert any(isinstance(row.op, op) for row in ROWS)


def test_no_two_rows_have_one_name():
    assert [n for n, times in Counter(row.name for row in ROWS).items() if times > 1] == []


def test_most_rows_allow_no_error():
    assert sum(not row.allow for row in ROWS) > 0.6 * len(ROWS)


RELU = Pointwise("relu", (None,))
HALF = Field((6, 8), {(0, 1): 0.5, (0,): 1.0})


def off_by(factor: float, of: str):
    """The relu rule with one field changed."""

    def rule(op, inputs, site):
        out = FORWARD_RELU(op, inputs, site)
        if of == "nodes":
            return out.but(nodes=out.nodes * factor)
        if of == "corr":
            return out.but(corr=tuple(c * [1, *[factor] * (len(c) - 1)] for c in out.corr))
        return out.but(noise={k: v * factor for k, v in out.noise.items()})

    return rule


FORWARD_RELU = FORWARD[Pointwise]


@pytest.mark.parametrize("of", ["nodes", "corr", "noise"])
def test_a_rule_that_is_twenty_percent_off_in_one_field_is_caught(monkeypatch: pytest.MonkeyPatch, of: str):
    monkeypatch.setitem(FORWARD, Pointwise, off_by(0.8, of))
    with pytest.raises(AssertionError, match="miss"):
        check_rule(RELU, [HALF], draws=1600)


def test_a_gradient_rule_that_forgets_pairs_is_caught(monkeypatch: pytest.MonkeyPatch):
    whole = ADJOINT[Reduce]
    monkeypatch.setitem(ADJOINT, Reduce, lambda *args: tuple(t * (1, 0, 1, 1)[: t.size] for t in whole(*args)))
    with pytest.raises(AssertionError, match=r"-> G0\[0\]"):
        check_rule(Reduce("sum", (1,), True), [HALF])


def test_a_field_has_the_statistics_that_it_draws():
    spec = Field((5, 6), {(0, 1): 1.0, (1,): 0.5, (): 0.3}, mean=0.2, centred=(1,))
    signal = spec.signal("x")
    assert signal.cov == pytest.approx([1.5 * 5 / 6 + 0.34, 0.5 * 5 / 6 + 0.34, -0.25 + 0.34, -0.5 / 6 + 0.34])
    assert gaussian(signal.layout, 0.2, signal.cov, "y").m2 == pytest.approx(signal.m2)

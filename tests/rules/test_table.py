"""Every rule against drawn arrays, field by field and gradient by gradient."""

from __future__ import annotations

import pytest

from anyinit.testing import check_rule
from rule_rows import ROWS, Row


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_a_rule_predicts_every_statistic_of_what_is_drawn(row: Row):
    check_rule(row.op, row.inputs, **row.allow)


@pytest.mark.parametrize("row", [r for r in ROWS if r.allow], ids=lambda r: r.name)
def test_a_row_that_allows_an_error_says_why(row: Row):
    assert len(row.why.split()) >= 4

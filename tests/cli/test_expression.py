"""Expressions: what they mean, and that nothing else than the grammar gets through."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anyinit
from anyinit.cli import expression
from anyinit.cli.expression import ExpressionError, parse

X = np.linspace(-3, 3, 41)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("x*sigmoid(1.702*x)", lambda x: x / (1 + np.exp(-1.702 * x))),
        ("max(x, 0)**3", lambda x: np.maximum(x, 0) ** 3),
        ("where(x > 0, x, 0.01*x)", lambda x: np.where(x > 0, x, 0.01 * x)),
        ("-x**2", lambda x: -(x**2)),
        ("2**-3**2*x", lambda x: 2.0**-9 * x),
        ("x - 1 - 2", lambda x: x - 3),
        ("x/2/4*3", lambda x: x / 2 / 4 * 3),
        ("1 - -x", lambda x: 1 + x),
        ("(x < 1)*x", lambda x: (x < 1) * x),
        ("e*x + pi", lambda x: np.e * x + np.pi),
        ("leaky_relu(x, negative_slope=0.2)", lambda x: np.where(x > 0, x, 0.2 * x)),
        ("leaky_relu(negative_slope=1/5)", lambda x: np.where(x > 0, x, 0.2 * x)),
        ("swish(x)", lambda x: x / (1 + np.exp(-x))),
        ("1.5e-1*x + .5", lambda x: 0.15 * x + 0.5),
    ],
)  # fmt: skip
def test_an_expression_means_what_it_says(text: str, meaning: object):
    assert parse(text)(X) == pytest.approx(meaning(X), abs=1e-14)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("__import__('os')", 12, "has no meaning here"),
        ("__import__(os)", 12, "no function 'os'"),
        ("x.__class__", 2, "'.' has no meaning"),
        ("x[0]", 2, r"'\[' has no meaning"),
        ("lambda x: x", 9, "':' has no meaning"),
        ("9**9**9**9", 8, "an exponent beyond 32"),
        ("x**33", 4, "an exponent beyond 32"),
        ("x**-33", 4, "an exponent beyond 32"),
        ("x**(0/0)", 6, "an exponent beyond 32"),
        ("x**x", 4, "an exponent with x"),
        ("(" * 10_000 + "x" + ")" * 10_000, 401, "longer than 400"),
        ("(" * 100 + "x" + ")" * 100, 33, "nested deeper than 32"),
        ("-" * 100 + "x", 33, "nested deeper than 32"),
        ("x+1" * 100, 4, "a name directly behind a number"),
        ("1e10*x", 1, "a number beyond 1e\\+09"),
        ("1" * 25 + "*x", 1, "more than 24 characters"),
        ("x·2", 2, "'·' has no meaning"),
        ("σ(x)", 1, "'σ' has no meaning"),
        ("１*x", 1, "'１' has no meaning"),
        ("x\n+1", 2, "has no meaning"),
        ("\u202ex", 1, "has no meaning"),
        ("2x", 2, "a name directly behind a number"),
        ("x y", 3, "nothing can follow"),
        ("x==1", 2, "= is no comparison"),
        ("0<x<1", 4, "comparisons cannot be chained"),
        ("x+", 3, "it ends where"),
        ("", 1, "it ends where"),
        ("*x", 1, "where a number, x or a function"),
        ("clip(x,-1", 10, "is missing"),
        ("clip(x,-1)", 1, "takes 3 arguments, not 2"),
        ("gelu(x,2)", 1, "takes 1 argument, not 2"),
        ("(x", 3, "to close the parenthesis"),
        ("x(2)", 1, "x is no function"),
        ("1+2", 2, "no x in it"),
        ("exp", 1, "without its argument"),
        ("gelu(x, foo=3)", 1, "no parameter 'foo'"),
        ("elu(x, alpha=x)", 14, "is no number"),
    ],
)
def test_anything_else_is_refused_where_it_stands(text: str, column: int, words: str):
    with pytest.raises(ExpressionError, match=words) as caught:
        parse(text)
    assert caught.value.column == column
    shown, mark = caught.value.marked.split("\n")
    assert len(shown) <= 72 and shown.isprintable()
    if column <= len(text) and text[column - 1].isprintable():
        assert shown[mark.index("^")] == text[column - 1]


def test_more_than_200_terms_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expression, "LENGTH", 4000)
    parse("x" + "+x" * 200)
    with pytest.raises(ExpressionError, match="more than 200 terms"):
        parse("x" + "+x" * 201)


@given(st.text(max_size=60))
def test_any_text_is_a_function_or_an_error_of_this_library(text: str):
    try:
        read = parse(text)
    except ExpressionError as error:
        column = error.column
    else:
        column = 1
        assert read(X).shape == X.shape
    assert 1 <= column <= len(text) + 1


@given(st.text("x0129.+-*/()<>,e ", max_size=24))
def test_what_python_reads_too_has_the_same_value(text: str):
    try:
        ours = parse(text)(X)
    except ExpressionError:
        return
    tree = ast.parse(text.strip(), mode="eval")
    with np.errstate(all="ignore"):
        try:
            theirs = eval(compile(tree, "test", "eval"), {"x": X, "e": np.e})
        except (ZeroDivisionError, OverflowError):
            return
    assert np.asarray(ours) == pytest.approx(np.broadcast_to(np.asarray(theirs, float), X.shape), nan_ok=True)


def test_a_misspelt_function_is_answered_with_its_neighbour():
    with pytest.raises(ExpressionError, match="Did you mean 'sigmoid'"):
        parse("x*sgmoid(x)")


def test_an_expression_has_a_profile_under_its_own_name():
    profile = anyinit.activation_profile(parse("x*sigmoid(1.702*x)"))
    assert profile.label == "x*sigmoid(1.702*x)"
    assert profile.moments().m2 == pytest.approx(anyinit.activation_profile("quick_gelu").moments().m2, rel=1e-12)

"""A function of ``x`` written as text, by a grammar of its own: nothing in it is ever executed as Python.

::

    expression := sum [("<" | "<=" | ">" | ">=") sum]
    sum        := product {("+" | "-") product}
    product    := unary {("*" | "/") unary}
    unary      := ("-" | "+") unary | power
    power      := atom ["**" unary]                      the exponent is a constant of at most EXPONENT
    atom       := number | "x" | "pi" | "e" | "(" expression ")" | name "(" [argument {"," argument}] ")"
    argument   := expression | name "=" sum              a parameter of an activation, a constant

Names are those of ``FUNCTIONS`` and of every activation; an activation without an argument is taken at ``x``. Length,
depth, number of terms, exponents and literals are bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import anyinit
from anyinit.errors import ActivationError, ConfigError, near

Array = NDArray[np.float64]
LENGTH, DEPTH, TERMS, DIGITS = 400, 32, 200, 24
EXPONENT, LARGEST = 32.0, 1e9

CONSTANTS = {"pi": math.pi, "e": math.e}
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "exp": (1, np.exp), "expm1": (1, np.expm1), "log": (1, np.log), "log1p": (1, np.log1p), "sqrt": (1, np.sqrt),
    "sin": (1, np.sin), "cos": (1, np.cos), "tan": (1, np.tan), "atan": (1, np.arctan), "sinh": (1, np.sinh),
    "cosh": (1, np.cosh), "tanh": (1, np.tanh), "asinh": (1, np.arcsinh), "abs": (1, np.abs), "sign": (1, np.sign),
    "floor": (1, np.floor), "ceil": (1, np.ceil), "max": (2, np.maximum), "min": (2, np.minimum), "clip": (3, np.clip),
    "where": (3, lambda c, a, b: np.where(np.asarray(c) != 0, a, b)),
}  # fmt: skip
"""Number of arguments and meaning."""

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<sign>\*\*|<=|>=|[-+*/<>(),=])|(?P<blank>[ \t]+)"
)
_HINTS = {
    "^": "A power is written **.",
    ".": "Attributes do not exist here; functions are called by their bare names.",
    "[": "Only x, numbers and functions of them.",
    "'": "Text does not exist here.",
    '"': "Text does not exist here.",
    "×": "A product is written *.",
    "·": "A product is written *.",
}


class ExpressionError(ActivationError):
    """An expression that cannot be read; ``column`` counts from 1, ``marked`` shows the place."""

    def __init__(self, cause: str, text: str, at: int, remedy: str = "") -> None:
        self.column = at + 1
        start = max(0, at - 40)
        shown = "".join(c if c.isprintable() else "?" for c in text[start : start + 72])
        self.marked = f"{shown}\n{' ' * (at - start)}^"
        super().__init__(
            f"The expression cannot be read at column {self.column}: {cause}", value=repr(shown), remedy=remedy
        )


@dataclass(frozen=True, slots=True)
class Term:
    """A part that was read: its value at ``x``, and its number where it has no ``x`` in it."""

    at: int
    value: Callable[[Array], Any]
    constant: float | None = None


class Token(NamedTuple):
    """``kind``: ``number``, ``name``, ``sign`` or ``end``; ``at``: place of its first character."""

    kind: str
    text: str
    at: int


def parse(text: str) -> Callable[[Array], Array]:
    """The function that ``text`` describes, named after it.

    Raises:
        ExpressionError: it is not of the grammar, or beyond its bounds; the message points at the place.
    """
    if len(text) > LENGTH:
        raise ExpressionError(f"longer than {LENGTH} characters", text, LENGTH, "Write it shorter.")
    read = _Reader(text, _tokens(text))
    whole = read.whole()

    def function(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(whole.value(x), np.float64), np.shape(x))

    function.__name__ = function.__qualname__ = " ".join(text.split())
    return function


def _tokens(text: str) -> list[Token]:
    found, at = list[Token](), 0
    while at < len(text):
        m = _TOKEN.match(text, at)
        if m is None:
            raise ExpressionError(f"{text[at]!r} has no meaning here", text, at, _HINTS.get(text[at], ""))
        if m.lastgroup != "blank":
            found.append(Token(str(m.lastgroup), m.group(), at))
        at = m.end()
    return [*found, Token("end", "", len(text))]


class _Reader:
    """Recursive descent, one method for each line of the grammar."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text, self._tokens, self._next = text, tokens, 0
        self._depth = self._terms = 0

    def whole(self) -> Term:
        """The expression to its end."""
        found = self._expression()
        if self._now.kind != "end":
            begins = self._now.kind in {"name", "number"} or self._now.text == "("
            hint = f"Did you mean * before {self._now.text}?" if begins else ""
            raise self._stuck("nothing can follow here", hint)
        if found.constant is not None:
            raise ExpressionError("no x in it", self._text, found.at, "An activation is a function of x.")
        return found

    @property
    def _now(self) -> Token:
        return self._tokens[self._next]

    def _take(self, *signs: str) -> Token | None:
        if self._now.kind == "sign" and self._now.text in signs:
            self._next += 1
            return self._tokens[self._next - 1]
        return None

    def _need(self, sign: str, after: str) -> None:
        if self._take(sign) is None:
            raise self._stuck(f"{sign} is missing {after}")

    def _stuck(self, cause: str, remedy: str = "") -> ExpressionError:
        return ExpressionError(cause, self._text, self._now.at, remedy)

    def _made(self, at: int, fn: Callable[..., Any], *parts: Term) -> Term:
        """A function of parts; a number where all of them are numbers."""
        self._terms += 1
        if self._terms > TERMS:
            raise ExpressionError(f"more than {TERMS} terms", self._text, at, "Write it shorter.")
        values = [p.value for p in parts]
        if parts and all(p.constant is not None for p in parts):
            with np.errstate(all="ignore"):
                number = float(fn(*(np.float64(p.constant) for p in parts)))
            return Term(at, lambda x: number, number)
        return Term(at, lambda x: fn(*(v(x) for v in values)))

    def _expression(self) -> Term:
        left = self._sum()
        if sign := self._take("<", "<=", ">", ">="):
            compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[sign.text]
            left = self._made(sign.at, lambda a, b: np.asarray(compare(a, b), np.float64), left, self._sum())
        if self._now.text in {"<", "<=", ">", ">="}:
            raise self._stuck("comparisons cannot be chained", "Use where() twice, or a product of two comparisons.")
        if self._now.text == "=":
            raise self._stuck("= is no comparison", "Only <, <=, > and >= compare.")
        return left

    def _sum(self) -> Term:
        left = self._product()
        while sign := self._take("+", "-"):
            left = self._made(sign.at, np.add if sign.text == "+" else np.subtract, left, self._product())
        return left

    def _product(self) -> Term:
        left = self._unary()
        while sign := self._take("*", "/"):
            left = self._made(sign.at, np.multiply if sign.text == "*" else np.divide, left, self._unary())
        return left

    def _unary(self) -> Term:
        self._depth += 1
        if self._depth > DEPTH:
            raise self._stuck(f"nested deeper than {DEPTH}", "Write it with fewer parentheses.")
        sign = self._take("-", "+")
        found = self._power() if sign is None else self._made(sign.at, _signs[sign.text], self._unary())
        self._depth -= 1
        return found

    def _power(self) -> Term:
        base = self._atom()
        sign = self._take("**")
        if sign is None:
            return base
        exponent = self._unary()
        if exponent.constant is None:
            raise ExpressionError("an exponent with x in it", self._text, exponent.at, "Write a**b as exp(b*log(a)).")
        if not abs(exponent.constant) <= EXPONENT:
            cause = f"an exponent beyond {EXPONENT:g}"
            raise ExpressionError(
                cause, self._text, exponent.at, f"Exponents lie between -{EXPONENT:g} and {EXPONENT:g}."
            )
        return self._made(sign.at, np.power, base, exponent)

    def _atom(self) -> Term:
        token = self._now
        if token.kind == "end":
            raise self._stuck("it ends where a number, x or a function should stand")
        self._next += 1
        if token.kind == "number":
            return self._number(token)
        if token.kind == "name":
            return self._call(token) if self._take("(") else self._variable(token)
        if token.text == "(":
            inside = self._expression()
            self._need(")", "to close the parenthesis")
            return inside
        raise ExpressionError(f"{token.text} where a number, x or a function should stand", self._text, token.at)

    def _number(self, token: Token) -> Term:
        value = float(token.text) if len(token.text) <= DIGITS else math.inf
        if not value <= LARGEST:
            cause = f"a number beyond {LARGEST:g} or of more than {DIGITS} characters"
            raise ExpressionError(cause, self._text, token.at, "Write a smaller one.")
        if self._now.kind == "name" and self._now.at == token.at + len(token.text):
            raise self._stuck("a name directly behind a number", f"Write {token.text}*{self._now.text}.")
        return Term(token.at, lambda x: value, value)

    def _variable(self, token: Token) -> Term:
        if token.text == "x":
            return Term(token.at, lambda x: x)
        if token.text in CONSTANTS:
            value = CONSTANTS[token.text]
            return Term(token.at, lambda x: value, value)
        if token.text in FUNCTIONS or token.text in anyinit.registered_activations():
            raise ExpressionError(
                f"the function {token.text} without its argument", self._text, token.at, f"Write {token.text}(x)."
            )
        raise self._unknown(token)

    def _call(self, token: Token) -> Term:
        parts, named = list[Term](), dict[str, float]()
        while not self._take(")"):
            if parts or named:
                self._need(",", "between arguments, or ) behind them")
            after = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
            if self._now.kind == "name" and after.text == "=":
                self._parameter(named)
            else:
                parts.append(self._expression())
        if token.text in FUNCTIONS and not named:
            count, fn = FUNCTIONS[token.text]
        else:
            count, fn = 1, self._activation(token, named)
            parts = parts or [Term(token.at, lambda x: x)]
        if len(parts) != count:
            cause = f"{token.text} takes {count} argument{'s' * (count > 1)}, not {len(parts)}"
            raise ExpressionError(cause, self._text, token.at)
        return self._made(token.at, fn, *parts)

    def _parameter(self, named: dict[str, float]) -> None:
        name = self._now.text
        self._next += 2
        value = self._sum()
        if value.constant is None:
            raise ExpressionError(f"the parameter {name} is no number", self._text, value.at)
        named[name] = value.constant

    def _activation(self, token: Token, named: dict[str, float]) -> Callable[..., Any]:
        if token.text in {"x", *CONSTANTS}:
            raise ExpressionError(f"{token.text} is no function", self._text, token.at, f"Write {token.text}*(...).")
        try:
            return anyinit.activation_profile(token.text, **named)
        except ActivationError:
            raise
        except ConfigError as error:
            if not named:
                raise self._unknown(token) from None
            raise ExpressionError(error.cause.rstrip("."), self._text, token.at, error.remedy) from None

    def _unknown(self, token: Token) -> ExpressionError:
        known = {*FUNCTIONS, *anyinit.registered_activations()}
        return ExpressionError(f"there is no function {token.text!r}", self._text, token.at, near(token.text, known))


_signs: dict[str, Callable[..., Any]] = {"-": np.negative, "+": np.positive}

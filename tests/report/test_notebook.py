"""What a notebook shows: one look, escaped names, nothing that a dark page would hide."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

import anyinit
from anyinit import Plan, Report
from anyinit._health.facts import Facts, LayerFacts, WeightFacts
from anyinit._health.view import Diagnosis
from anyinit._solve.plan import Part, Weight

EVIL = "<script>alert(1)</script>$x$\"'&"


def plan() -> Plan:
    part = Part(role=EVIL, activation=EVIL, path=EVIL, fan=4, predicted=1.0, predicted_output=1.0, why=EVIL)
    weight = Weight(EVIL, (4, 4), parts=(part,))
    told = ((EVIL, EVIL),)
    return Plan(0, (weight,), unscaled=told, opaque=((EVIL, EVIL, EVIL),), warnings=(EVIL,), notes=(EVIL,))


def diagnosis() -> Diagnosis:
    layer = LayerFacts(EVIL, EVIL, 4, 1e20, 0.0, 3.0, 1.0, None, 0.5, None, None, None, 2.0, None)
    weight = WeightFacts(EVIL, (4, 4), "weight", True, 0.0, 0.0, 1.0, True, 0.0)
    return Diagnosis.of(Facts(layers=[layer], weights=[weight], notes=[EVIL], samples=8))


def profile() -> Any:
    def act(x: Any) -> Any:
        return x * x

    act.__name__ = EVIL
    return anyinit.activation_profile(act)


VIEWS = {
    "report": lambda: Report(plan()),
    "plan": plan,
    "diagnosis": diagnosis,
    "profile": profile,
    "propagation": lambda: anyinit.propagate({EVIL: "tanh"}, width=16, depth=3),
}


class Read(HTMLParser):
    """Tags that are open at the end, every tag, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.tags, self.text = list[str](), list[str](), ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_escapes_every_name_and_closes_every_tag(name: str):
    read = Read()
    read.feed(VIEWS[name]()._repr_html_())
    read.close()
    assert not read.open
    assert set(read.tags) <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert EVIL in read.text or EVIL.lower() in read.text


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_sets_no_colour_of_text_or_ground_and_is_no_mathematics(name: str):
    shown = VIEWS[name]()._repr_html_()
    styles = ";".join(re.findall(r'style="([^"]*)"', shown))
    assert styles
    assert {s.partition(":")[0] for s in styles.split(";") if s} <= {
        "border-left", "border-bottom", "border-collapse", "padding-left", "padding", "overflow-x", "text-align",
    }  # fmt: skip
    assert shown.startswith('<div class="tex2jax_ignore mathjax_ignore"')


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_bars_are_seen_on_white_and_on_black():
    from anyinit import _notebook

    for colour in (_notebook.HEALTHY, _notebook.FINDINGS):
        level = luminance(colour)
        assert min(1.05 / (level + 0.05), (level + 0.05) / 0.05) >= 3  # WCAG 2.1, 1.4.11


def test_the_bar_says_what_the_words_say():
    from anyinit import _notebook

    assert _notebook.HEALTHY in Report(Plan(0, ()))._repr_html_()
    assert _notebook.FINDINGS in Report(plan())._repr_html_()
    assert _notebook.FINDINGS in diagnosis()._repr_html_()
    assert diagnosis().findings


def test_a_plan_shows_what_its_report_shows():
    assert plan()._repr_html_() == Report(plan())._repr_html_()

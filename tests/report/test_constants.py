"""Well-known constants: values by quadrature against closed forms, names, and the error for unknown ones."""

from __future__ import annotations

import math

import pytest

import anyinit
from anyinit.report.constants import CONSTANTS

CLOSED = {
    "2/fan_in": 2.0, "1/fan_in": 1.0, "2/(fan_in+fan_out)": 2.0, "1.5335": 1.5335304412, "1.7009": 1.7009262434,
    "1.6765": 1.6765324703, "1.7872": 1.7871872221, "1.2708": 1.2708434179, "5/3": 5 / 3, "1.7159": 1.7159,
    "1/sqrt(2L)": 24**-0.5, "6/n": 2.0, "30": 30 / math.sqrt(3), "0.02": 0.02, "selu": 1.0, "sqrt(5)": 1 / 3,
    "0.8796": 0.8796256610342398, "1/sqrt(d_k)": 0.125, "1.3270": 1.3270096607, "1.702": 1.7017,
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_has_its_value_its_factors_multiply_to_it_and_its_source_and_condition_are_named(name: str):
    told = anyinit.explain(name)
    assert told.value == pytest.approx(CLOSED[name], rel=1e-9 if name != "1.702" else 3e-4)
    assert told.product == pytest.approx(told.value, rel=1e-9)
    assert told.source and told.condition and told.formula
    for view in (str(told), told.to_markdown(), told._repr_html_()):
        assert f"{told.value:.5g}" in view


def test_every_constant_has_other_names_and_none_has_two_meanings():
    names = [n for key, (_, aliases, _) in CONSTANTS.items() for n in (key, *aliases)]
    assert len(names) == len(set(names))
    for key, (_, aliases, _) in CONSTANTS.items():
        for alias in aliases:
            assert anyinit.explain(alias.upper()).title == anyinit.explain(key).title


def test_a_number_finds_the_constant_of_that_value():
    assert "gelu" in anyinit.explain(1.5335).title
    assert "std" in anyinit.explain("1.70093").title
    assert "sigmoid" in anyinit.explain(1.702).title
    assert "tanh" in anyinit.explain(5 / 3).title


def test_the_arguments_of_sine_layers_settle_where_the_closed_form_says():
    q = next(t.value for t in anyinit.explain("6/n").terms if t.symbol == "q*")
    assert q == pytest.approx(1 - math.exp(-2 * q), abs=1e-9)


def test_five_thirds_is_no_gain_of_tanh_and_its_gradients_grow():
    values = {t.symbol: t.value for t in anyinit.explain("5/3").terms}
    assert values["rms gain"] == pytest.approx(1.5925374197)
    assert values["grad gain"] == pytest.approx(1.4674135916)
    assert values["chi_1"] > 1.05


@pytest.mark.parametrize("unknown", ["3/fan_in", 9.81])
def test_an_unknown_constant_is_refused_with_the_names_that_are_known(unknown: object):
    with pytest.raises(anyinit.ConfigError, match=r"[12]/fan_in"):
        anyinit.explain(unknown)

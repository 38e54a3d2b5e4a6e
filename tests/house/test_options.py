"""Every option is checked before anything else happens."""

from __future__ import annotations

import math
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyinit import ConfigError
from anyinit._options import MODES, Options, parse, resolve_seed

BATCH = np.ones((2, 3))


def test_a_mode_name_may_stand_in_second_place():
    first, spec = parse("empirical", BATCH, seed=0)
    second, same = parse(BATCH, "empirical", seed=0)
    assert first == second
    assert spec is BATCH
    assert same is BATCH


def test_a_mode_name_alone_leaves_the_input_to_be_inferred():
    options, spec = parse("empirical", seed=0)
    assert options.mode == "empirical"
    assert spec is None


def test_a_shape_is_no_mode():
    assert parse((8, 3), seed=0)[1] == (8, 3)


def test_the_defaults_are_the_documented_ones():
    options, spec = parse(seed=3)
    assert options == Options(seed=3)
    assert spec is None
    assert options.pairs() == ()


@pytest.mark.parametrize("option", ["mode", "target", "distribution", "residual", "bias", "correct"])
@pytest.mark.parametrize("value", ["nonsense", 3.5j, object(), ["auto"]], ids=["word", "number", "object", "list"])
def test_an_unknown_value_is_refused_with_what_is_known(option: str, value: object):
    with pytest.raises(ConfigError, match=f"Unknown value of {option}"):
        parse(**{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "typed", "meant"),
    [
        ("mode", "empiricall", "empirical"),
        ("distribution", "ortogonal", "orthogonal"),
        ("distribution", "Normal", "normal"),
        ("distribution", "trunc_normal", "truncated_normal"),
        ("target", "units", "unit"),
        ("correct", "allways", "always"),
    ],
)
def test_a_misspelt_value_is_answered_with_its_neighbour(option: str, typed: str, meant: str):
    with pytest.raises(ConfigError, match=f"Did you mean .*'{meant}'"):
        parse(**{option: typed})  # type: ignore[arg-type]


def test_a_misspelt_mode_in_second_place_is_answered_too():
    with pytest.raises(ConfigError, match="Did you mean 'empirical'"):
        parse("emprical", BATCH)


def test_two_modes_and_no_input_are_refused():
    with pytest.raises(ConfigError, match="Two mode names"):
        parse("analytic", "empirical")


@pytest.mark.parametrize("seed", [True, False, -1, 1.0, math.nan, "0", 2**64, [0], np.float64(3), np.bool_(1)])
def test_what_is_no_seed_is_refused(seed: object):
    with pytest.raises(ConfigError, match="seed"):
        parse(seed=seed)


@given(st.integers(0, 2**64 - 1))
def test_an_integer_seed_stands_for_itself(seed: int):
    assert resolve_seed(seed) == (seed, "given")


def test_a_numpy_integer_is_a_seed_and_becomes_a_python_integer():
    number, _ = resolve_seed(np.int32(7))
    assert number == 7
    assert type(number) is int


def test_no_seed_takes_fresh_entropy_and_says_so():
    drawn = {resolve_seed(None) for _ in range(20)}
    assert len(drawn) == 20
    assert {origin for _, origin in drawn} == {"fresh entropy"}


def test_the_words_of_a_raw_key_are_the_seed():
    assert resolve_seed(np.array([0, 42], np.uint32)) == (42, "from a JAX key")
    assert resolve_seed(np.array([1, 0], np.uint32))[0] == 2**32


def test_a_batch_of_keys_is_no_seed():
    with pytest.raises(ConfigError, match="seed"):
        resolve_seed(np.zeros((3, 2), np.uint32))


@pytest.mark.parametrize("gain", [0, -1, -0.5, math.inf, math.nan, "2", True, None])
def test_a_gain_that_is_not_positive_is_refused(gain: object):
    with pytest.raises(ConfigError, match="gain of 'fc' must be a positive finite number"):
        parse(gains={"fc": gain})


def test_a_single_gain_is_meant_for_every_weight():
    assert parse(gains=2, seed=0)[0].gain("anything") == 2.0
    with pytest.raises(ConfigError, match="gains"):
        parse(gains=-2)


def test_gains_multiply_where_several_patterns_match():
    options, _ = parse(gains={"*": 2, "head": 3}, seed=0)
    assert options.gain("head.weight") == 6.0
    assert options.gain("body.weight") == 2.0


def test_only_and_skip_choose_parameters_by_name_module_or_pattern():
    options, _ = parse(only=["blocks", "head.*"], skip="*.bias", seed=0)
    assert options.selects("blocks.0.fc.weight")
    assert options.selects("head.weight")
    assert not options.selects("blocks.0.fc.bias")
    assert not options.selects("stem.weight")
    assert not options.selects("blocksy.weight")


def test_an_alias_may_be_named_instead():
    options, _ = parse(skip="lm_head.weight", seed=0)
    assert not options.selects("wte.weight", "lm_head.weight")


def test_patterns_that_match_nothing_can_be_reported():
    options, _ = parse(only=["blocks"], skip=["haed.*"], seed=0)
    assert options.unmatched(["blocks.0.weight"]) == ["haed.*"]


@pytest.mark.parametrize("value", [3, [3], [""], {"a": 1}])
@pytest.mark.parametrize("option", ["only", "skip"])
def test_patterns_are_names(option: str, value: object):
    with pytest.raises(ConfigError, match=option):
        parse(**{option: value})  # type: ignore[arg-type]


def test_later_overrides_win():
    options, _ = parse(overrides={"*": {"std": 0.02}, "head": {"std": 0.01, "distribution": "normal"}}, seed=0)
    assert options.override("head.weight") == {"std": 0.01, "distribution": "normal"}
    assert options.override("body.weight") == {"std": 0.02}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([1], "maps names to fields"),
        ({"w": 3}, "must be a dictionary"),
        ({"w": {"sdt": 1}}, "Did you mean 'std'"),
        ({"w": {"std": -1}}, "non-negative"),
        ({"w": {"std": True}}, "non-negative"),
        ({"w": {"value": math.inf}}, "finite"),
        ({"w": {"distribution": "auto"}}, "Unknown value of distribution of 'w'"),
    ],
)
def test_an_override_that_means_nothing_is_refused(overrides: object, words: str):
    with pytest.raises(ConfigError, match=words):
        parse(overrides=overrides)


@pytest.mark.parametrize(
    ("option", "value"),
    [("forward", 3), ("rollback", 1), ("scheme", "he"), ("scheme", ("he_normal", 2)), ("bias", "one")],
)
def test_other_options_are_checked_as_well(option: str, value: object):
    with pytest.raises(ConfigError, match=option):
        parse(**{option: value})  # type: ignore[arg-type]


def test_correction_takes_words_and_booleans():
    assert parse(correct=True, seed=0)[0].correct == "always"
    assert parse(correct=False, seed=0)[0].correct == "never"


def test_a_number_is_a_target_level():
    assert parse(seed=0)[0].level == 1.0
    options, _ = parse(target=2, seed=0)
    assert (options.target, options.level) == ("level", 2.0)


@pytest.mark.parametrize("target", [0, -1.0, math.inf, math.nan, True, None])
def test_a_target_that_is_no_level_is_refused(target: object):
    with pytest.raises(ConfigError, match="target"):
        parse(target=target)


def test_mirrored_draws_can_be_switched_off_and_nothing_else():
    assert parse(mirror=False, seed=0)[0].mirror is False
    with pytest.raises(ConfigError, match="mirror"):
        parse(mirror="no")


def test_options_that_differ_from_their_defaults_are_kept_as_text():
    def loss(model: object, batch: object) -> None: ...

    options, _ = parse(mode="empirical", forward=loss, skip="head", seed=5)
    assert dict(options.pairs()) == {"mode": "empirical", "skip": "('head',)", "forward": "loss"}


def test_options_cannot_be_changed():
    with pytest.raises(AttributeError):
        parse(seed=0)[0].mode = MODES[1]  # type: ignore[misc]


def test_a_generator_is_not_advanced_by_a_call_that_is_refused(monkeypatch: pytest.MonkeyPatch):
    draws: list[object] = []

    def randint(low: int, high: int, shape: object, **where: object) -> int:
        draws.append(where)
        return 11

    class Generator:
        device = "cpu"

        def initial_seed(self) -> int:
            return 0

    Generator.__module__ = "pretend_torch"
    monkeypatch.setitem(__import__("sys").modules, "pretend_torch", types.SimpleNamespace(randint=randint))
    with pytest.raises(ConfigError):
        parse(target="nonsense", seed=Generator())
    assert not draws
    assert parse(seed=Generator())[0].seed == 11
    assert len(draws) == 1

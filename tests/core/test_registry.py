"""Names for activations: registered, found, misspelt, replaced, forgotten."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

from anyinit._core import registry
from anyinit._core.named import BUILTINS
from anyinit._core.profile import activation_profile
from anyinit._core.registry import register_activation, registered_activations, resolve, unregister_activation
from anyinit.errors import ActivationError, ConfigError

X = np.linspace(-4.0, 4.0, 41)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def cube(x: np.ndarray) -> np.ndarray:
    return x**3


def test_it_registers_bare_with_arguments_and_as_a_call() -> None:
    @register_activation
    def Quartic(x: np.ndarray) -> np.ndarray:
        return x**4

    @register_activation(name="quintic")
    def whatever(x: np.ndarray) -> np.ndarray:
        return x**5

    assert register_activation(cube) is cube
    register_activation(lambda x: np.maximum(x, 0) ** 3, name="relu3")
    assert {"quartic", "quintic", "cube", "relu3"} <= set(registered_activations())
    assert activation_profile("Quartic").homogeneous_degree == 4.0
    assert activation_profile("relu3").moments().m2 == pytest.approx(7.5, rel=1e-12)
    assert Quartic(2.0) == 16.0
    assert whatever(2.0) == 32.0


def test_a_plain_class_is_constructed_with_the_parameters() -> None:
    @register_activation
    class Scaled:
        def __init__(self, factor: float = 2.0) -> None:
            self.factor = factor

        def __call__(self, x: np.ndarray) -> np.ndarray:
            return self.factor * x

    assert activation_profile("scaled").moments().m2 == pytest.approx(4.0)
    assert activation_profile("scaled", factor=3.0).moments().m2 == pytest.approx(9.0)
    with pytest.raises(ActivationError, match="cannot be constructed"):
        activation_profile("scaled", slope=1.0)


def test_parameters_of_a_function_are_bound() -> None:
    register_activation(lambda x, a=1.0: a * np.tanh(x), name="scaled tanh")
    tanh = activation_profile("tanh").moments().m2
    assert activation_profile("scaled tanh", a=2.0).moments().m2 == pytest.approx(4 * tanh)
    assert activation_profile("scaled tanh").moments().m2 == pytest.approx(tanh)


def test_the_same_name_is_refused_unless_overwritten_and_the_same_object_is_not() -> None:
    register_activation(cube)
    register_activation(cube)
    with pytest.raises(ConfigError, match=r"exists already.*cube.*overwrite=True"):
        register_activation(np.square, name="cube")
    register_activation(np.square, name="cube", overwrite=True)
    assert activation_profile("cube").homogeneous_degree == 2.0


def test_a_built_in_name_can_be_replaced_and_comes_back() -> None:
    with pytest.raises(ConfigError, match="exists already"):
        register_activation(cube, name="gelu")
    register_activation(cube, name="gelu", overwrite=True)
    assert activation_profile("gelu").homogeneous_degree == 3.0
    unregister_activation("gelu")
    assert activation_profile("gelu").moments().m2 == pytest.approx(0.4252214826, abs=1e-10)


def test_forgetting_what_was_never_registered_is_an_error_with_near_matches() -> None:
    register_activation(cube)
    with pytest.raises(ConfigError, match="Did you mean cube"):
        unregister_activation("cub")
    with pytest.raises(ConfigError, match="No activation was registered"):
        unregister_activation("relu")
    unregister_activation("CUBE")
    assert "cube" not in registered_activations()


@pytest.mark.parametrize(("wrong", "near"), [("relo", "relu"), ("leaky_rellu", "leaky_relu"), ("sgmoid", "sigmoid")])
def test_a_misspelt_name_lists_near_matches(wrong: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"no activation of this name.*{wrong}.*Did you mean.*{near}"):
        activation_profile(wrong)


def test_an_unknown_or_unusable_parameter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"leaky_relu has no parameter 'slope'.*It takes negative_slope"):
        activation_profile("leaky_relu", slope=0.2)
    with pytest.raises(ConfigError, match="not a number"):
        activation_profile("leaky_relu", negative_slope="steep")


@pytest.mark.parametrize("wrong", [None, 3, ["relu"]])
def test_what_is_neither_a_name_nor_callable_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="An activation is"):
        activation_profile(wrong)


@pytest.mark.parametrize("wrong", ["", "   ", 3])
def test_an_unusable_name_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="non-empty string"):
        register_activation(cube, name=wrong)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_what_has_no_name_of_its_own_needs_one_and_what_cannot_be_called_is_refused() -> None:
    for nameless in (lambda x: x, functools.partial(np.maximum, 0.0)):
        with pytest.raises(ConfigError, match="has no name of its own"):
            register_activation(nameless)
    with pytest.raises(ConfigError, match="must be a function or a class"):
        register_activation(5)


SPELLINGS = {
    "leaky_relu": ("LeakyReLU", "leaky-relu", "lrelu"), "silu": ("swish", "SiLU"), "identity": ("linear",),
    "gelu_tanh": ("gelu_new", "GELU-tanh"), "hard_sigmoid": ("hardsigmoid",), "hardswish": ("hard_swish", "Hardswish"),
    "hardtanh": ("hard_tanh",), "log_sigmoid": ("LogSigmoid",), "sin": ("sine",), "exp": ("exponential",),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_spellings_of_frameworks_mean_the_same(name: str) -> None:
    for spelling in SPELLINGS[name]:
        assert activation_profile(spelling) is activation_profile(name)


def test_the_approximate_argument_of_gelu_is_understood() -> None:
    assert activation_profile("gelu", approximate="tanh") is activation_profile("gelu_tanh")
    assert activation_profile("gelu", approximate="none") is activation_profile("gelu")


@pytest.mark.parametrize("builtin", BUILTINS, ids=lambda b: b.name)
def test_every_built_in_activation_has_a_profile(builtin: registry.Builtin) -> None:
    profile = activation_profile(builtin.name)
    values = profile(X)
    assert values.shape == X.shape
    assert np.isfinite(values).all()
    level = profile.moments()
    assert 0 < level.m2 < np.inf
    assert level.error < 1e-9


def test_parameters_of_built_in_activations_change_them() -> None:
    assert resolve("leaky_relu", {"negative_slope": 0.5}).fn(np.array([-2.0])) == -1.0
    assert resolve("elu", {"alpha": 2.0}).fn(np.array([-np.log(2.0)])) == pytest.approx(-1.0)
    assert resolve("hardtanh", {"min_val": -3.0}).fn(np.array([-2.0])) == -2.0
    assert resolve("sin", {"omega": 30.0}).fn(np.array([0.1])) == pytest.approx(np.sin(3.0))
    assert resolve("snake", {"a": 2.0}).fn(np.array([0.5])) == pytest.approx(0.5 + np.sin(1.0) ** 2 / 2)


def test_an_in_place_function_does_not_spoil_its_argument() -> None:
    def in_place(x: np.ndarray) -> np.ndarray:
        np.maximum(x, 0.0, out=x)
        return x

    assert activation_profile(in_place).moments().m2 == pytest.approx(0.5, rel=1e-12)


def test_naming_and_profiling_loads_no_framework() -> None:
    code = (
        "import sys; from anyinit._core.profile import activation_profile as p;"
        "from anyinit._core.registry import register_activation as r;"
        "r(lambda x: x**3, name='c'); p('c').chi; p('gelu').chi; p('tanh').diagnostics;"
        "print(sorted({'torch','jax','tensorflow','keras','matplotlib','scipy.optimize'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Names for activations, and one way to call any of them: with a float64 NumPy array.

Frameworks are never imported here. A framework's class or function is recognised by the module it comes
from, and converted by ``anyinit._frameworks.<framework>.activation``, loaded on first evaluation.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from anyinit._core.named import BUILTINS, Builtin
from anyinit._core.probe import Guard
from anyinit.errors import ActivationError, ConfigError

Array = NDArray[np.float64]
T = TypeVar("T")

_ADAPTERS = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "equinox": "jax", "flax": "jax", "haiku": "jax"}


@dataclass(frozen=True, slots=True)
class Resolved:
    """An activation ready to be evaluated.

    name: how reports call it. fn: float64 array to array. guard: restores the random state around the checks.
    key: identity for caches; ``None`` when the object may change under the same identity.
    """

    name: str
    fn: Callable[[Array], Any]
    guard: Guard
    key: tuple[Any, ...] | None
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


_registered: dict[str, Any] = {}


@overload
def register_activation(fn_or_class: T, *, name: str | None = None, overwrite: bool = False) -> T: ...
@overload
def register_activation(
    fn_or_class: None = None, *, name: str | None = None, overwrite: bool = False
) -> Callable[[T], T]: ...


def register_activation(fn_or_class: Any = None, *, name: str | None = None, overwrite: bool = False) -> Any:
    """Give an activation a name that every function of this library accepts.

    Works bare (``@register_activation``), with arguments (``@register_activation(name="mine")``) and as a plain
    call. The object is returned unchanged, so it can decorate.

    Args:
        fn_or_class: an elementwise function of a NumPy array, of a tensor of any framework, or a module class
            (constructed with the parameters given to ``activation_profile``).
        name: defaults to the lowercase name of the function or class.
        overwrite: replace an activation of the same name.
    Raises:
        ConfigError: not callable, no usable name, or the name is taken.

    A function is evaluated, and refused when it is random, not elementwise or NaN, when its profile is first needed.
    """
    if fn_or_class is None:
        return lambda target: register_activation(target, name=name, overwrite=overwrite)
    if not callable(fn_or_class):
        raise ConfigError(
            "An activation must be a function or a class",
            value=fn_or_class,
            remedy="Use register_activation(fn, name='...').",
        )
    chosen = _canonical(_default_name(fn_or_class) if name is None else name)
    taken = chosen in _names() and _registered.get(chosen) is not fn_or_class
    if taken and not overwrite:
        raise ConfigError(
            "An activation of this name exists already",
            value=chosen,
            remedy="Choose another name, or pass overwrite=True.",
        )
    _registered[chosen] = fn_or_class
    return fn_or_class


def unregister_activation(name: str) -> None:
    """Forget a registered activation; a built-in one that it replaced comes back.

    Raises:
        ConfigError: no activation was registered under this name.
    """
    chosen = _canonical(name)
    if chosen not in _registered:
        raise _unknown(name, "No activation was registered under this name", sorted(_registered))
    del _registered[chosen]


def registered_activations() -> tuple[str, ...]:
    """All names that can be used, built in and registered, sorted; aliases are left out."""
    return tuple(sorted({b.name for b in BUILTINS} | set(_registered)))


def resolve(activation: Any, params: Mapping[str, Any] | None = None) -> Resolved:
    """Find an activation by name, or take a callable as it is, and bind its parameters.

    Args:
        activation: a name, a function, a module or a module class.
        params: keyword parameters (``negative_slope=0.2``).
    Raises:
        ConfigError: unknown name or parameter; near matches are listed.
    """
    given = dict(params or {})
    if isinstance(activation, str):
        chosen = _canonical(activation)
        if chosen in _registered:
            return _foreign(_registered[chosen], given, chosen)
        builtin = _aliases().get(_squeezed(chosen))
        if builtin is None:
            raise _unknown(activation, "There is no activation of this name", sorted(_names()))
        return _bound(builtin, given)
    if not callable(activation):
        raise ConfigError(
            "An activation is a name, a function, a module or a module class", value=type(activation).__name__
        )
    return _foreign(activation, given, _label(activation))


def _bound(builtin: Builtin, given: dict[str, Any]) -> Resolved:
    if builtin.name == "gelu" and given.get("approximate") in ("none", "tanh"):
        tanh = given.pop("approximate") == "tanh"
        builtin = _aliases()["gelutanh"] if tanh else builtin
    stray = sorted(set(given) - set(builtin.defaults))
    if stray:
        raise ConfigError(
            f"The activation {builtin.name} has no parameter {stray[0]!r}",
            value=", ".join(f"{k}={v!r}" for k, v in given.items()),
            remedy=f"It takes {', '.join(builtin.defaults) or 'none'}.",
        )
    try:
        values = {k: float(given.get(k, v)) for k, v in builtin.defaults.items()}
    except (TypeError, ValueError) as error:
        raise ConfigError(f"A parameter of {builtin.name} is not a number", value=given) from error
    arguments = tuple(values.values())
    shown = {k: v for k, v in values.items() if k in given}
    return Resolved(builtin.name, lambda x: builtin.fn(x, *arguments), preserved, (builtin.name, *arguments), shown)


def _foreign(target: Any, params: dict[str, Any], name: str) -> Resolved:
    module_object = not isinstance(target, type) and not hasattr(target, "__name__")
    try:
        key = None if module_object else (target, *sorted(params.items()))
        hash(key)
    except TypeError:
        key = None
    return Resolved(name, _Foreign(target, params, name), preserved, key, params)


class _Foreign:
    """Calls a user's object; finds out on the first call which framework it speaks."""

    def __init__(self, target: Any, params: Mapping[str, Any], name: str) -> None:
        self._target, self._params, self._name = target, params, name
        self._call: Callable[[Array], Any] | None = None

    def __call__(self, x: Array) -> Any:
        if self._call is None:
            self._call = self._choose(x)
        return self._call(x)

    def _choose(self, x: Array) -> Callable[[Array], Any]:
        framework = _framework(self._target)
        if framework is not None:
            return self._converted(framework)
        made = self._constructed(self._target) if isinstance(self._target, type) else self._target
        rest = {} if isinstance(self._target, type) else dict(self._params)

        def plain(a: Array) -> Any:
            return made(a.copy(), **rest)

        try:
            with np.errstate(all="ignore"):
                out = plain(x)
        except Exception as error:  # noqa: BLE001 (whatever a user's function raises on arrays)
            return self._try_frameworks(x, error)
        framework = _framework(out)
        return plain if framework is None else self._converted(framework)

    def _converted(self, framework: str) -> Callable[[Array], Any]:
        adapter = _adapter(framework, self._name)
        if not isinstance(self._target, type):
            return adapter.evaluator(self._target, self._params)
        return self._constructed(lambda **params: adapter.evaluator(self._target, params))

    def _constructed(self, make: Callable[..., Any]) -> Any:
        try:
            return make(**self._params)
        except Exception as error:
            raise ActivationError(
                f"The activation class {self._name} cannot be constructed with these parameters",
                value=f"{dict(self._params)}: {type(error).__name__}: {error}",
                remedy="Pass what its constructor needs to activation_profile(name, parameter=value).",
            ) from error

    def _try_frameworks(self, x: Array, refused: Exception) -> Callable[[Array], Any]:
        """A function that NumPy arrays do not suit: written for a framework that is loaded already."""
        for framework in ("torch", "jax"):
            if framework not in sys.modules:
                continue
            call = self._converted(framework)
            try:
                call(x)
            except Exception as error:  # noqa: BLE001
                refused.add_note(f"with {framework}: {type(error).__name__}: {error}")
                continue
            return call
        raise refused


def _framework(target: Any) -> str | None:
    """The adapter for an object, by the modules its class and its class's ancestors come from."""
    kind = target if isinstance(target, type) else type(target)
    for ancestor in kind.__mro__:
        root = ancestor.__module__.partition(".")[0]
        if root in _ADAPTERS:
            return _ADAPTERS[root]
    return None


def _adapter(framework: str, name: str) -> Any:
    try:
        return importlib.import_module(f"anyinit._frameworks.{framework}.activation")
    except ImportError as error:
        raise ActivationError(
            f"The activation {name} needs {framework}, which cannot be imported",
            value=str(error),
            remedy=f"Install anyinit[{framework}], or register the function written with NumPy.",
        ) from error


@contextmanager
def preserved() -> Generator[None]:
    """Restore the global random state of NumPy and of every framework that is loaded."""
    state = np.random.get_state()
    with ExitStack() as stack:
        for framework in ("torch", "jax"):
            if framework in sys.modules:
                stack.enter_context(_adapter(framework, "guard").preserved())
        try:
            yield
        finally:
            np.random.set_state(state)


def _canonical(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError("The name of an activation must be a non-empty string", value=name)
    return name.strip().lower()


def _squeezed(name: str) -> str:
    return "".join(c for c in name.lower() if c not in "-_ ")


def _aliases() -> dict[str, Builtin]:
    return {_squeezed(name): b for b in BUILTINS for name in (b.name, *b.aliases)}


def _names() -> set[str]:
    return {name for b in BUILTINS for name in (b.name, *b.aliases)} | set(_registered)


def _default_name(target: Any) -> str:
    name = getattr(target, "__name__", None)
    if name is None and not hasattr(type(target), "__wrapped__"):
        name = type(target).__name__
    if not name or name == "<lambda>" or name == "partial":
        raise ConfigError(
            "This activation has no name of its own", value=target, remedy="Pass register_activation(fn, name='...')."
        )
    return str(name)


def _label(target: Any) -> str:
    name = getattr(target, "__name__", None) or type(target).__name__
    return "function" if name in ("<lambda>", "partial") else str(name).lower()


def _unknown(name: str, cause: str, known: list[str]) -> ConfigError:
    close = difflib.get_close_matches(name.lower(), known, n=4, cutoff=0.5)
    hint = f"Did you mean {', '.join(close)}?" if close else f"Known: {', '.join(known) or 'none'}."
    return ConfigError(cause, value=name, remedy=f"{hint} register_activation adds one.")

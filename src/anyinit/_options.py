"""The options of one call, checked in full before a model is touched."""

from __future__ import annotations

import math
import numbers
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, cast

from anyinit.errors import ConfigError, near

MODES = ("analytic", "empirical")
TARGETS = ("auto", "unit", "critical")
DISTRIBUTIONS = ("auto", "normal", "truncated_normal", "uniform", "orthogonal")
RESIDUALS = ("auto", "share", "none")
BIASES = ("auto", "zero", "keep")
CORRECTIONS = ("auto", "always", "never")
SCHEMES = (
    "zeros", "constant", "normal", "xavier_uniform", "xavier_normal", "he_uniform", "he_normal", "lecun_normal",
    "orthogonal", "lsuv", "framework", "gpt2",
)  # fmt: skip
NUMBERED = ("constant", "normal")
ROLES = ("weight", "shared weight", "recurrent", "tied table", "table", "position table", "position", "token")
OVERRIDES = ("distribution", "std", "value")
SEED_LIMIT = 2**64

Pairs = tuple[tuple[str, float], ...]
Pattern = str | Callable[[str], Any]
"""A name, a shell-style pattern, a module (until its names are known) or a predicate of a name."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller asked for; every field is valid once this object exists.

    mode: ``analytic`` (from theory alone) or ``empirical`` (from the caller's batches).
    target: ``unit`` asks for a second moment of 1 after every activation, ``level`` (the caller gave a number) for
        ``level``; ``critical`` puts every layer on the edge of chaos; ``auto`` leaves the choice to the solver.
    mirror: whether plain chains may be drawn in sign pairs.
    distribution: of the entries of a weight; ``auto`` chooses per weight. A dictionary from roles (``weight``,
        ``recurrent``, ``table`` and so on) chooses for these alone. roles: that choice.
    residual: ``share`` gives each of the N branches of a stream 1/N of its second moment, ``none`` treats a
        branch as any other layer, ``auto`` shares.
    scheme: a textbook scheme by name in place of the solver's choice; ``amount`` is the number given with it.
    bias: ``zero``, ``keep`` (leave as they are), ``auto`` or ``value`` (the number ``bias_value`` everywhere).
    overrides: ``(pattern, ((field, value), ...))``: fields ``distribution``, ``std``, ``value`` and ``scheme`` that win
        over the plan.
    gains: ``(pattern, factor)``: factors multiplied onto the solved standard deviations.
    only, skip: shell-style patterns on parameter names, modules of the model, or predicates of a parameter's name;
        a parameter is set if it matches ``only`` and not ``skip``.
    forward: ``forward(model, batch)`` recorded in place of ``model(batch)``.
    correct: ``auto`` runs the drawn network once and corrects it where theory expects its noise to grow.
    certify: whether the drawn network is run and differentiated once more for the certificates of the report.
    seed: a non-negative integer below 2**64; ``seed_from`` says in words where it came from.
    rollback: whether a failure half-way restores every parameter.
    """

    mode: str = "analytic"
    target: str = "auto"
    level: float = 1.0
    mirror: bool = True
    distribution: str = "auto"
    roles: tuple[tuple[str, str], ...] = ()
    residual: str = "auto"
    scheme: str | None = None
    amount: float | None = None
    bias: str = "auto"
    bias_value: float | None = None
    overrides: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    gains: Pairs = ()
    only: tuple[Pattern, ...] = ()
    skip: tuple[Pattern, ...] = ()
    forward: Callable[[Any, Any], Any] | None = field(default=None, repr=False)
    correct: str = "auto"
    certify: bool = False
    seed: int = 0
    seed_from: str = "given"
    rollback: bool = True

    def selects(self, *names: str) -> bool:
        """Whether a parameter known under any of ``names`` is to be set."""
        wanted = not self.only or any(_matches(p, n) for p in self.only for n in names)
        return wanted and not any(_matches(p, n) for p in self.skip for n in names)

    def gain(self, *names: str) -> float:
        """Product of the factors of every gain pattern that matches one of ``names``; 1 without any."""
        return math.prod(factor for pattern, factor in self.gains if any(_matches(pattern, n) for n in names))

    def override(self, *names: str) -> dict[str, Any]:
        """Overridden fields of a parameter; a later pattern wins over an earlier one."""
        found: dict[str, Any] = {}
        for pattern, chosen in self.overrides:
            if any(_matches(pattern, n) for n in names):
                found.update(chosen)
        return found

    def unmatched(self, names: Iterable[str]) -> list[Pattern]:
        """Patterns of ``only``, ``skip``, ``gains`` and ``overrides`` that match none of ``names``."""
        known = list(names)
        patterns = (*self.only, *self.skip, *(p for p, _ in self.gains), *(p for p, _ in self.overrides))
        return [p for p in patterns if not any(_matches(p, n) for n in known)]

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Options that differ from their defaults, as text for the plan."""
        out: list[tuple[str, str]] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default and f.name not in {"seed", "seed_from"}:
                if f.name in {"only", "skip"}:
                    value = tuple(map(label, value))
                out.append((f.name, label(value) if f.name == "forward" else str(value)))
        return tuple(out)


def parse(
    input_spec: Any = None,
    mode: Any = "analytic",
    *,
    target: Any = "auto",
    mirror: Any = True,
    distribution: Any = "auto",
    residual: Any = "auto",
    scheme: Any = None,
    bias: Any = None,
    overrides: Any = None,
    gains: Any = None,
    only: Any = None,
    skip: Any = None,
    forward: Any = None,
    correct: Any = "auto",
    certify: Any = False,
    seed: Any = None,
    rollback: Any = True,
) -> tuple[Options, Any]:
    """Checked options and the input specification.

    ``parse("empirical", batch)`` and ``parse(batch, "empirical")`` mean the same. The seed is resolved last, so that
    a generator handed in is only advanced by a call that is otherwise valid.

    Raises:
        ConfigError: naming the option, its value and the values it may take.
    """
    if isinstance(input_spec, str):
        swap = mode == "analytic" if isinstance(mode, str) else True
        if not swap:
            raise ConfigError("Two mode names were given and no input.", value=f"{input_spec!r} and {mode!r}")
        _one_of("mode", input_spec, MODES)
        input_spec, mode = (None if isinstance(mode, str) else mode), input_spec
    if forward is not None and not callable(forward):
        raise ConfigError("forward is not callable.", value=forward, remedy="Pass a function forward(model, batch).")
    if not isinstance(mirror, bool):
        raise ConfigError("mirror must be True or False.", value=mirror)
    if not isinstance(rollback, bool):
        raise ConfigError("rollback must be True or False.", value=rollback)
    if not isinstance(certify, bool):
        raise ConfigError("certify must be True or False.", value=certify)
    correct = {True: "always", False: "never"}.get(correct, correct) if isinstance(correct, bool) else correct
    named, level = _target(target)
    textbook, amount = _scheme("scheme", scheme)
    biased, bias_value = _bias(bias)
    mode = _one_of("mode", mode, MODES)
    if textbook is not None and textbook != "lsuv" and mode == "empirical":
        remedy = "A textbook scheme fixes every scale beforehand; use scheme='lsuv', or leave scheme out."
        raise ConfigError("Nothing is left to measure.", value=f"scheme={textbook!r}, mode='empirical'", remedy=remedy)
    checked = Options(
        mode="empirical" if textbook == "lsuv" else mode,
        target=named,
        level=level,
        mirror=mirror,
        distribution="auto"
        if isinstance(distribution, Mapping)
        else _one_of("distribution", distribution, DISTRIBUTIONS),
        roles=_by_role(cast("Mapping[Any, Any]", distribution)) if isinstance(distribution, Mapping) else (),
        residual=_one_of("residual", residual, RESIDUALS),
        scheme=textbook,
        amount=amount,
        bias=biased,
        bias_value=bias_value,
        overrides=_overrides(overrides),
        gains=_gains(gains),
        only=_selectors("only", only),
        skip=_selectors("skip", skip),
        forward=forward,
        correct=_one_of("correct", correct, CORRECTIONS),
        certify=certify,
        rollback=rollback,
    )
    number, origin = resolve_seed(seed)
    return replace(checked, seed=number, seed_from=origin), input_spec


def resolve_seed(seed: Any) -> tuple[int, str]:
    """The integer a seed stands for and where it came from.

    An integer stands for itself; ``None`` takes fresh entropy; a ``torch.Generator`` gives one draw (and advances, as
    with every function it is handed to); a JAX key gives its own bits.
    """
    if seed is None:
        return secrets.randbits(48), "fresh entropy"
    if isinstance(seed, numbers.Integral) and not isinstance(seed, bool):
        if not 0 <= int(seed) < SEED_LIMIT:
            raise ConfigError("A seed lies between 0 and 2**64 - 1.", value=int(seed), remedy="Pass such a number.")
        return int(seed), "given"
    framework = sys.modules.get(type(seed).__module__.partition(".")[0].replace("jaxlib", "jax"))
    if hasattr(seed, "initial_seed") and framework is not None:
        drawn = framework.randint(0, 2**63 - 1, (), generator=seed, device=seed.device)
        return int(drawn), "drawn from a torch.Generator"
    if "key<" in str(getattr(seed, "dtype", "")) and framework is not None:
        seed = framework.random.key_data(seed)
    if str(getattr(seed, "dtype", "")) == "uint32" and getattr(seed, "ndim", 0) == 1:
        value = 0
        for word in seed:
            value = (value << 32) | int(word)
        return value % SEED_LIMIT, "from a JAX key"
    remedy = "Pass a non-negative integer, a torch.Generator, a JAX key, or None for fresh entropy."
    raise ConfigError("The seed is of no use.", value=f"{seed!r} ({type(seed).__name__})", remedy=remedy)


def _by_role(chosen: Mapping[Any, Any]) -> tuple[tuple[str, str], ...]:
    """Distributions by the role of a weight."""
    return tuple(
        (_one_of("a role in distribution", role, ROLES), _one_of("distribution", kind, DISTRIBUTIONS))
        for role, kind in chosen.items()
    )


def _one_of(option: str, value: Any, known: Sequence[str]) -> str:
    if isinstance(value, str) and value in known:
        return value
    remedy = near(value, known) if isinstance(value, str) else "Choose one of " + ", ".join(map(repr, known)) + "."
    raise ConfigError(f"Unknown value of {option}.", value=repr(value), remedy=remedy)


def _target(value: Any) -> tuple[str, float]:
    """Name of the target and the level it stands for."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return "level", _number("target", value, positive=True)
    return _one_of("target", value, TARGETS), 1.0


def _scheme(option: str, value: Any) -> tuple[str | None, float | None]:
    """Name of a scheme and the number given with it, as in ``("normal", 0.02)``."""
    if value is None:
        return None, None
    pair: tuple[Any, ...] = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    name = _one_of(option, pair[0] if pair else value, SCHEMES)
    if len(pair) == 1:
        return name, None
    if len(pair) != 2 or name not in NUMBERED:
        remedy = "A number goes with " + " and ".join(map(repr, NUMBERED)) + f" only, as in {option}=('normal', 0.02)."
        raise ConfigError(f"{option} is a name, or a name and a number.", value=value, remedy=remedy)
    return name, _number(f"The number of {name!r}", pair[1], signed=name == "constant")


def _bias(value: Any) -> tuple[str, float | None]:
    """The rule for biases, and the value of all of them if a number was given."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return "value", _number("bias", value, signed=True)
    return _one_of("bias", "auto" if value is None else value, BIASES), None


def label(pattern: Any) -> str:
    """A pattern, predicate or function as text."""
    return pattern if isinstance(pattern, str) else str(getattr(pattern, "__name__", type(pattern).__name__))


def _selectors(option: str, value: Any) -> tuple[Pattern, ...]:
    """Patterns, modules and predicates."""
    if callable(value):
        return (value,)
    if value is None or isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        return _patterns(option, value)
    out: list[Pattern] = []
    for one in value:
        out += [one] if callable(one) else _patterns(option, [one])
    return tuple(out)


def _patterns(option: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, Iterable) or isinstance(found, Mapping):
        raise ConfigError(f"{option} takes a parameter name or a list of them.", value=value)
    patterns: tuple[Any, ...] = tuple(found)
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern:
            remedy = "Use names as named_parameters() gives them; * and ? stand for any text."
            shown = repr(pattern) if isinstance(pattern, (str, int, float)) else type(pattern).__name__
            raise ConfigError(f"{option} takes parameter names or patterns.", value=shown, remedy=remedy)
    return patterns


def _number(option: str, value: Any, *, positive: bool = False, signed: bool = False) -> float:
    fits = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(float(value))
    if fits and (signed or float(value) > 0 or (not positive and float(value) == 0)):
        return float(value)
    kind = "finite number" if signed else "positive finite number" if positive else "non-negative finite number"
    raise ConfigError(f"{option} must be a {kind}.", value=repr(value))


def _gains(value: Any) -> Pairs:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        return (("*", _number("gains", value, positive=True)),)
    patterns = _patterns("gains", list(value))
    return tuple((p, _number(f"The gain of {p!r}", value[p], positive=True)) for p in patterns)


def _overrides(value: Any) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        example = "{'head.weight': {'std': 0.01}}"
        raise ConfigError("overrides maps names to fields.", value=value, remedy=f"For example {example}.")
    return tuple((p, _fields(p, value[p])) for p in _patterns("overrides", list(value)))


def _fields(pattern: str, chosen: Any) -> tuple[tuple[str, Any], ...]:
    if isinstance(chosen, (str, tuple, list)):
        name, amount = _scheme(f"The scheme of {pattern!r}", chosen)
        if name in {"lsuv", "framework"}:
            remedy = "These are of a whole model; pass scheme= instead."
            raise ConfigError(f"{pattern!r} cannot have this scheme alone.", value=name, remedy=remedy)
        return ("scheme", name), ("amount", amount)
    if not isinstance(chosen, Mapping):
        remedy = "Pass fields, as {'std': 0.01}, or the name of a scheme."
        raise ConfigError(f"The override of {pattern!r} must be a dictionary or a name.", value=chosen, remedy=remedy)
    out: list[tuple[str, Any]] = []
    for name, value in chosen.items():
        _one_of(f"a field of the override of {pattern!r}", name, OVERRIDES)
        if name == "distribution":
            out.append((name, _one_of(f"{name} of {pattern!r}", value, (*DISTRIBUTIONS[1:], "constant", "keep"))))
        else:
            out.append((name, _number(f"{name} of {pattern!r}", value, signed=name == "value")))
    _together(pattern, dict(out))
    return tuple(out)


def optimizer(value: Any) -> tuple[str, float]:
    """Name and learning rate of an optimizer.

    Raises:
        ConfigError: it is not ``("sgd", rate)`` or ``("adam", rate)``.
    """
    if not isinstance(value, (tuple, list)) or len(pair := tuple(value)) != 2:  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        raise ConfigError("optimizer is a name and a learning rate.", value=value, remedy="For example ('adam', 1e-3).")
    name, rate = pair  # pyright: ignore[reportUnknownVariableType]
    return _one_of("optimizer", name, ("sgd", "adam")), _number("The learning rate", rate, positive=True)


def _together(pattern: str, chosen: Mapping[str, Any]) -> None:
    """Fields that mean nothing beside each other."""
    kind, where = chosen.get("distribution"), f"the override of {pattern!r}"
    if kind == "keep" and len(chosen) > 1:
        raise ConfigError(f"In {where}, 'keep' stands alone.", value=dict(chosen))
    if kind == "constant" and ("value" not in chosen or "std" in chosen):
        raise ConfigError(f"In {where}, 'constant' takes a value and no standard deviation.", value=dict(chosen))
    if kind not in {None, "constant"} and "value" in chosen and "std" not in chosen:
        remedy = "Give std too, or only value for a constant."
        raise ConfigError(f"In {where}, a random draw about a value needs a std.", value=dict(chosen), remedy=remedy)


def _matches(pattern: Pattern, name: str) -> bool:
    """Shell-style match, a module path that contains the parameter, or what a predicate says."""
    if callable(pattern):
        try:
            return bool(pattern(name))
        except Exception as error:
            remedy = "A predicate takes a parameter's name and says whether it is meant."
            raise ConfigError(f"{label(pattern)} failed on {name}.", value=repr(error), remedy=remedy) from error
    return fnmatchcase(name, pattern) or name.startswith(pattern + ".")

"""The plan: what will be written to every parameter and every prediction, as plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from html import escape
from typing import Any, ClassVar

from anyinit.errors import PlanError

VERSION = 1
BY_REQUEST = "left alone at the caller's request"
BY_DESIGN = "kept on purpose"
"""Start of the reason in ``Plan.unscaled`` of a parameter the caller asked not to set; no finding."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How one part of one parameter is made.

    The parameter is viewed through ``view`` (steps ``("reshape", shape)``, ``("permute", order)``,
    ``("slice", dim, start, stop, step)``), its dimensions are ordered ``groups + outs + ins`` and
    each group is an ``(n_out, n_in)`` matrix: the canonical layout every framework shares.

    distribution: ``normal``, ``truncated_normal``, ``uniform``, ``orthogonal``, ``constant`` or ``keep``.
    std: standard deviation of the entries (orthogonal: of the equivalent entries); of ``|w|`` if complex.
    value: the constant of ``constant``, the mean otherwise.
    key: position of the weight in the canonical graph, which with the seed fixes the draw.
    factor: correction measured on the drawn network, multiplied onto the draw.
    """

    view: tuple[tuple[Any, ...], ...] = ()
    groups: tuple[int, ...] = ()
    outs: tuple[int, ...] = ()
    ins: tuple[int, ...] = ()
    distribution: str = "normal"
    std: float = 0.0
    value: float = 0.0
    key: int = 0
    factor: float = 1.0
    mirrored: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """One factor ``value ** power`` of a number; a power of zero stands beside it and is not multiplied."""

    symbol: str
    value: float
    power: float
    meaning: str = ""


def product(terms: Iterable[Term]) -> float:
    """What the factors multiply to."""
    return math.prod(t.value**t.power for t in terms)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a parameter (the whole of most): its role, draw and predictions.

    All levels are second moments, means over draws; ``band`` and ``output_band`` hold the 5 and
    95 % quantiles of a single draw. ``None`` where a quantity does not exist for the role. ``terms``
    multiply to ``draw.std``, corrections left out; ``source`` says whose formula that is.
    """

    label: str = ""
    role: str = "weight"
    activation: str = ""
    path: str = ""
    fan: int = 0
    fan_out: int = 0
    draw: Draw = field(default_factory=Draw)
    target: float | None = None
    predicted: float | None = None
    band: tuple[float, float] | None = None
    predicted_output: float | None = None
    output_band: tuple[float, float] | None = None
    predicted_grad: float | None = None
    chi: float | None = None
    chi_1: float | None = None
    planned: float | None = None
    measured: float | None = None
    measured_output: float | None = None
    measured_grad: float | None = None
    why: str = ""
    flags: tuple[str, ...] = ()
    terms: tuple[Term, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter tensor of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    aliases: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def size(self) -> int:
        """Number of scalars."""
        count = 1
        for n in self.shape:
            count *= n
        return count


@dataclass(frozen=True, slots=True)
class Stability:
    """What the product of slopes along one un-normalized path means.

    kind: ``level`` (chi), ``gradient`` (chi_1) or ``vanishing gradient`` (1/chi_1).
    """

    kind: str
    activation: str
    layers: tuple[str, ...]
    depth: int
    chi: float
    product: float
    held: bool
    text: str = ""

    def advice(self) -> str:
        """What it means and what to do, in plain words; empty when nothing needs doing."""
        return self.text


LINES = {
    "gradient ratio": 4.0,
    "forward spread": 3.0,
    "feature rank": 1.2,
    "kernel condition": 4.0,
}
"""Where a certificate passes: at most these decades, at least this rank."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """One number measured at the starting point that says something about training; its line is in ``LINES``."""

    name: str
    value: float

    @property
    def line(self) -> float | None:
        """Where it passes; None for a number that is only stated."""
        return LINES.get(self.name)

    @property
    def passed(self) -> bool:
        """Whether it lies on the good side of its line."""
        if self.line is None:
            return True
        return self.value >= self.line if self.name == "feature rank" else self.value <= self.line

    def __str__(self) -> str:
        unit = "" if self.name in {"feature rank", "angle"} else " decades"
        side = "at least" if self.name == "feature rank" else "at most"
        told = "" if self.line is None else f" ({'passes' if self.passed else 'FAILS'}: {side} {self.line:g})"
        return f"{self.name} {self.value:.3g}{unit}{told}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything :func:`anyinit.initialize` will do to a model, and what it predicts.

    unscaled: ``(parameter, reason)`` of every parameter that is not set.
    opaque: ``(operation, where, why)`` of operations without a rule.
    """

    seed: int
    weights: tuple[Weight, ...]
    stability: tuple[Stability, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    unscaled: tuple[tuple[str, str], ...] = ()
    opaque: tuple[tuple[str, str, str], ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    version: int = VERSION

    _apply: ClassVar[Callable[..., Any] | None] = None  # handed down by the public functions
    _html: ClassVar[Callable[[Plan], str] | None] = None  # handed down by the report
    _explain: ClassVar[Callable[..., Any] | None] = None

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dictionaries and lists."""
        return asdict(self)

    def to_json(self, *, indent: int | None = None) -> str:
        """JSON text; floats round-trip exactly."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """Inverse of :meth:`to_dict`."""
        weights = tuple(_weight(w) for w in data["weights"])
        stability = tuple(Stability(**_tupled(s)) for s in data["stability"])
        certificates = tuple(Certificate(**c) for c in data.get("certificates", ()))
        rest = {k: _tuple(v) for k, v in data.items() if k not in {"weights", "stability", "certificates"}}
        return cls(weights=weights, stability=stability, certificates=certificates, **rest)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Inverse of :meth:`to_json`."""
        return cls.from_dict(json.loads(text))

    def apply(self, model: Any, input_spec: Any = None, **options: Any) -> Any:
        """Write the plan to a model with the same parameters; see :func:`anyinit.apply`."""
        if Plan._apply is None:
            raise PlanError("Nothing can apply a plan yet", remedy="Import anyinit first.")
        return Plan._apply(self, model, input_spec, **options)

    def explain(self, name: str) -> Any:
        """Why a parameter, or every parameter of a module, gets its scale; see :meth:`anyinit.Report.explain`."""
        if Plan._explain is None:
            raise PlanError("Nothing can explain a plan yet", remedy="Import anyinit.Report first.")
        return Plan._explain(self, name)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>" if Plan._html is None else Plan._html(self)

    def diff(self, other: Plan) -> list[tuple[str, str, Any, Any]]:
        """``(parameter, field, mine, theirs)`` for every difference in what would be written."""
        mine, theirs = ({w.name: w for w in p.weights} for p in (self, other))
        out: list[tuple[str, str, Any, Any]] = []
        for name in sorted(set(mine) | set(theirs)):
            a, b = mine.get(name), theirs.get(name)
            if a is None or b is None or len(a.parts) != len(b.parts) or a.shape != b.shape:
                out.append((name, "parameter", a, b))
                continue
            for x, y in zip(a.parts, b.parts, strict=True):
                label = f"[{x.label}]" if x.label else ""
                for f in fields(Draw):
                    u, v = getattr(x.draw, f.name), getattr(y.draw, f.name)
                    if u != v:
                        out.append((name + label, f.name, u, v))
        return out

    def with_weights(self, weights: tuple[Weight, ...]) -> Plan:
        """The same plan with other weights."""
        return replace(self, weights=weights)


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, (list, tuple)) else value


def _tupled(data: dict[str, Any]) -> dict[str, Any]:
    return {k: _tuple(v) for k, v in data.items()}


def _without(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    return _tupled({k: v for k, v in data.items() if k not in keys})


def _weight(data: dict[str, Any]) -> Weight:
    parts = tuple(
        Part(
            draw=Draw(**_tupled(p["draw"])),
            terms=tuple(Term(**t) for t in p.get("terms", ())),
            **_without(p, "draw", "terms"),
        )
        for p in data["parts"]
    )
    return Weight(parts=parts, **_without(data, "parts"))

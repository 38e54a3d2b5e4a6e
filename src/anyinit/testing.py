"""Public kit: check a statistics rule against many drawn arrays.

A rule says what an operation does to the statistics of its inputs. :func:`check_rule` draws inputs that have
exactly the statistics it is told, runs the operation on the numbers, and compares every field of the rule's
result with what came out; then it draws output gradients, pulls them back and compares every input gradient.

    from anyinit.testing import Field, check_rule
    check_rule(Reduce("mean", (1,), False), [Field((6, 8), {(0, 1): 1.0, (0,): 0.3}, mean=0.2)])

A rule for an operation outside the vocabulary is checked by passing its meaning on numbers and the pull-back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._core.field import Signal, constant, expect, gaussian, measured
from anyinit._core.pointwise import FUNCTIONS
from anyinit._core.tables import Layout, Table, build, collapse, separate, single
from anyinit._graph.interpret import apply, output_shape
from anyinit._graph.ops import Op
from anyinit._graph.pullback import pull_back
from anyinit._rules import ADJOINT, FORWARD
from anyinit._rules.base import Site
from anyinit._rules.pointwise import as_source

Array = NDArray[Any]
FLOOR = 1e-6  # agreement asked for where nothing is random, in units of the entry


@dataclass(frozen=True)
class Field:
    """A Gaussian field: the sum of independent components, each varying along some axes only.

    Args:
        shape: of the value.
        parts: axes a component varies along -> its variance; it is constant along the other axes.
            ``{(0, 1): 1.0, (1,): 0.5}`` is an independent part plus one that all rows share.
        mean: added to every entry.
        factors: each dimension as sizes of its factors, slowest first, where it has several; axes are then
            numbered over all factors. Default: one factor for each dimension.
        groups: the axis group of each factor (factors of a group are never told apart); default one each.
            ``parts`` and ``centred`` name groups.
        centred: groups along which the entries of every component that varies along them sum to zero.
        through: elementwise function applied to the field, or its name.
    """

    shape: tuple[int, ...]
    parts: Mapping[tuple[int, ...], float]
    mean: float = 0.0
    factors: tuple[tuple[int, ...], ...] | None = None
    groups: tuple[int, ...] | None = None
    centred: tuple[int, ...] = ()
    through: str | Callable[[Array], Array] | None = None

    def _axes(self) -> list[list[tuple[int, int]]]:
        dims = self.factors or tuple((n,) for n in self.shape)
        flat = [n for dim in dims for n in dim]
        numbers = iter(self.groups or range(len(flat)))
        return [[(n, next(numbers)) for n in dim] for dim in dims]

    def _function(self) -> Callable[[Array], Array]:
        return FUNCTIONS[self.through] if isinstance(self.through, str) else self.through or np.asarray

    def signal(self, key: Hashable) -> Signal:
        """The statistics that :meth:`draw` has."""
        layout, keys = build(self._axes())
        sizes = dict(zip(keys, layout.sizes, strict=True))
        table = np.full(1 << layout.groups, self.mean**2)
        for axes, variance in self.parts.items():
            part = np.full(table.size, variance)
            for bit, g in enumerate(keys):
                if g in axes:
                    share = 1 / sizes[g] if g in self.centred else 0.0
                    part *= np.where(np.arange(table.size) >> bit & 1, -share, 1 - share)
            table += part
        out = gaussian(layout, self.mean, table, key)
        return out if self.through is None else out.but(nodes=np.asarray(self._function()(out.nodes), dtype=np.float64))

    def draw(self, rng: np.random.Generator, draws: int) -> Array:
        """``draws`` independent fields, first dimension ``draws``."""
        flat = [f for dim in self._axes() for f in dim]
        total = np.full((draws, *(n for n, _ in flat)), self.mean)
        for axes, variance in self.parts.items():
            part = rng.standard_normal((draws, *(n if g in axes else 1 for n, g in flat)))
            for c in self.centred:
                if c in axes:
                    part = part - part.mean(tuple(i + 1 for i, (_, g) in enumerate(flat) if g == c), keepdims=True)
            total = total + math.sqrt(variance) * part
        total = total.reshape(draws, *self.shape)
        return total if self.through is None else self._function()(total)


@dataclass(frozen=True)
class Weights:
    """Independent zero-mean normal entries of one standard deviation: a freshly drawn weight."""

    shape: tuple[int, ...]
    std: float = 1.0

    def signal(self, key: Hashable) -> Signal:
        """One axis group: entries differ or they do not."""
        layout = single(self.shape)
        return gaussian(layout, 0.0, np.where(np.arange(1 << layout.groups) == 0, self.std**2, 0.0), key)

    def draw(self, rng: np.random.Generator, draws: int) -> Array:
        """``draws`` independent weights."""
        return self.std * rng.standard_normal((draws, *self.shape))


@dataclass(frozen=True)
class Constant:
    """The same number everywhere."""

    shape: tuple[int, ...]
    value: float

    def signal(self, key: Hashable) -> Signal:
        """No latent field."""
        return constant(separate(self.shape), self.value)

    def draw(self, rng: np.random.Generator, draws: int) -> Array:
        """Repeated."""
        return np.full((draws, *self.shape), self.value)


@dataclass(frozen=True, eq=False)
class Known:
    """Numbers known before the run: a mask, positions, a batch given by the caller."""

    data: Array

    def signal(self, key: Hashable) -> Signal:
        """Measured, with the data beside it."""
        return measured(self.data, key)

    def draw(self, rng: np.random.Generator, draws: int) -> Array:
        """Repeated."""
        return np.broadcast_to(self.data, (draws, *self.data.shape))


@dataclass(frozen=True)
class Ids:
    """Integers below ``rows``, uniform, unknown before the run."""

    shape: tuple[int, ...]
    rows: int

    def signal(self, key: Hashable) -> Signal:
        """Nothing is known but the shape."""
        return constant(separate(self.shape), 0.0)

    def draw(self, rng: np.random.Generator, draws: int) -> Array:
        """Fresh integers in every draw."""
        return rng.integers(0, self.rows, (draws, *self.shape))


Spec = Field | Weights | Constant | Known | Ids


@dataclass(frozen=True, slots=True)
class Entry:
    """One number of a rule's result beside its estimate: ``|predicted - measured| <= tolerance``."""

    what: str
    predicted: float
    measured: float
    error: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the difference is within the tolerance; false for NaN."""
        return bool(abs(self.predicted - self.measured) <= self.tolerance)


@dataclass
class Comparison:
    """All entries of one check; printable."""

    title: str
    entries: list[Entry] = field(default_factory=list[Entry])

    @property
    def misses(self) -> list[Entry]:
        """Entries outside their tolerance."""
        return [e for e in self.entries if not e.holds]

    def add(self, what: str, predicted: float, samples: Array, allowed: float) -> None:
        """Compare with the mean of one number per draw; ``allowed`` is the model error, absolute."""
        mean, error = float(np.mean(samples)), float(np.std(samples)) / math.sqrt(len(samples))
        self.entries.append(Entry(what, float(predicted), mean, error, 4 * error + allowed + 1e-9 * abs(mean)))

    def __str__(self) -> str:
        lines = [self.title]
        for e in self.entries:
            mark = "  " if e.holds else "->"
            lines.append(f"{mark} {e.what:28} rule {e.predicted:12.6g}  drawn {e.measured:12.6g} +- {e.error:.2g}")
        return "\n".join(lines)


def pair_moments(values: Array, layout: Layout) -> Array:
    """``E[x_i x_j]`` by mask, averaged over the pairs of one draw that differ exactly in the mask's groups.

    Args:
        values: ``(draws, *shape)``, real or complex. layout: of one draw.

    Returns:
        ``(draws, 2**groups)``.
    """
    factors = [f for dim in layout.dims for f in dim]
    x = values.reshape(len(values), *(n for n, _ in factors))
    masks = np.arange(1 << len(factors))
    out = np.empty((len(values), masks.size))
    for mask in masks:
        axes = tuple(i + 1 for i in range(len(factors)) if mask >> i & 1)
        part = x.mean(axes) if axes else x
        out[:, mask] = np.mean(np.abs(part.reshape(len(values), -1)) ** 2, axis=1)
    for i, (n, _) in enumerate(factors):
        low = masks[(masks >> i & 1) == 0]
        out[:, low | 1 << i] = (n * out[:, low | 1 << i] - out[:, low]) / (n - 1)
    fine = Layout(tuple(((n, i),) for i, (n, _) in enumerate(factors)))
    onto = np.array([sum({1 << g for i, (_, g) in enumerate(factors) if mask >> i & 1}) for mask in masks])
    return np.array([collapse(fine, row, onto, layout.groups) for row in out])


def draw_table(layout: Layout, rng: np.random.Generator, draws: int) -> tuple[Table, Array]:
    """A random-effects field over every axis group of a layout: its table and ``draws`` fields.

    Unit variance varies along all groups, half of it along all but one for each group, 0.2 along none.
    """
    everything = tuple(range(layout.groups))
    parts = {everything: 1.0}
    for g in everything:
        rest = tuple(k for k in everything if k != g)
        parts[rest] = parts.get(rest, 0.0) + 0.5
    parts[()] = parts.get((), 0.0) + 0.2
    sizes = tuple(tuple(n for n, _ in dim) for dim in layout.dims)
    groups = tuple(g for dim in layout.dims for _, g in dim)
    source = Field(layout.shape, parts, factors=sizes, groups=groups)
    masks = np.arange(1 << layout.groups)
    table = sum(v * ((masks & sum(1 << g for g in t)) == 0) for t, v in parts.items())
    return np.asarray(table, dtype=np.float64), source.draw(rng, draws)


Meaning = Callable[..., Array]


def check_rule(
    op: Op,
    inputs: Sequence[Spec],
    *,
    error: float = 0.0,
    fourth: float | None = None,
    noise: float = 0.05,
    level: float = 0.1,
    back: float = 0.0,
    draws: int = 400,
    seed: int = 0,
    kind: str = "float",
    meaning: Meaning | None = None,
    pull: Callable[..., Sequence[Array | None]] | None = None,
) -> Comparison:
    """Compare an operation's rules with ``draws`` drawn arrays, field by field.

    Every entry must agree within four standard errors plus a stated model error.

    Args:
        op: the operation; its rules are looked up in the registry.
        inputs: statistics of its operands.
        error: model error allowed in mean (in units of the root of the second moment) and in every pair second
            moment (in units of the second moment).
        fourth: relative model error allowed in the fourth moment; default ``error``.
        noise: error allowed in the log-level sensitivity to each input's level.
        level: error allowed in the relative standard deviation of the level of one draw.
        back: model error allowed in every entry of an input's gradient table, in units of its first entry.
        draws, seed: of the Monte Carlo estimate.
        kind: kind of the output (``float``, ``complex``, ``int``, ``bool``).
        meaning: ``(op, arrays, rng) -> array`` for an operation outside the vocabulary.
        pull: ``(op, arrays, output, grad) -> arrays`` for such an operation's pull-back.

    Returns:
        The comparison, printable.

    Raises:
        AssertionError: an entry misses; the message lists all of them.
    """
    rng = np.random.default_rng(seed)
    signals = tuple(as_source(s.signal(("in", i)).but(noise={i: 1.0}), i) for i, s in enumerate(inputs))
    drawn = [s.draw(rng, draws) for s in inputs]
    shape = None if meaning is None else np.shape(meaning(op, [d[0] for d in drawn], rng))
    shape = output_shape(op, [d[0] for d in drawn]) if shape is None else shape
    chance = int(rng.integers(1 << 62))

    def evaluate(arrays: Sequence[Array], scale: Mapping[int, float] | None = None) -> Array:
        fresh = np.random.default_rng(chance)
        outs: list[Array] = []
        for r in range(draws):
            xs = [a[r] * math.sqrt(scale[i]) if scale and i in scale else a[r] for i, a in enumerate(arrays)]
            outs.append(meaning(op, xs, fresh) if meaning else apply(op, xs, shape, fresh))
        return np.array(outs)

    y = evaluate(drawn)
    out = FORWARD[type(op)](op, signals, Site(1000, shape, kind, tuple(range(len(inputs)))))
    comparison = Comparison(f"{op} on {', '.join(type(s).__name__ + str(s.signal(0).layout.shape) for s in inputs)}")
    _compare_forward(comparison, out, y, shape, error, error if fourth is None else fourth, level)
    _compare_noise(comparison, out, inputs, y, lambda scale: evaluate(drawn, scale), noise)
    _compare_back(comparison, op, signals, out, drawn, y, rng, back, pull or pull_back)
    assert not comparison.misses, f"{len(comparison.misses)} entries miss\n{comparison}"
    return comparison


def _compare_forward(
    to: Comparison, out: Signal, y: Array, shape: tuple[int, ...], error: float, fourth: float, level: float
) -> None:
    assert out.layout.shape == shape, f"layout of shape {out.layout.shape} for an output of shape {shape}"
    flat = np.abs(y).reshape(len(y), -1) if np.iscomplexobj(y) else y.reshape(len(y), -1)
    scale = float(np.mean(flat**2))
    if out.equal is not None:
        _compare_equal(to, out.equal, y, out.layout, error)
        if not out.keys:
            return
    if out.data is not None:
        to.add("data", float(np.sum(np.asarray(out.data, dtype=np.float64))), flat.sum(1), 0.0)
    if not np.iscomplexobj(y):
        to.add("mean", out.mean, flat.mean(1), (error + FLOOR) * math.sqrt(scale))
    to.add("m2", out.m2, (flat**2).mean(1), (error + FLOOR) * scale)
    to.add("m4", float(_fourth(out)), (flat**4).mean(1), (fourth + FLOOR) * float(np.mean(flat**4)))
    predicted = out.cov
    for mask, column in enumerate(pair_moments(y, out.layout).T):
        to.add(f"C[{_names(mask, out.layout)}]", float(predicted[mask]), column, (error + FLOOR) * scale)
    levels = (flat**2).mean(1) / max(scale, 1e-300)
    wide, expected = float(np.std(levels)), math.sqrt(out.fluctuation())
    to.entries.append(
        Entry("level of one draw", expected, wide, wide / math.sqrt(len(y)), level + 6 * wide / math.sqrt(len(y)))
    )
    if out.plug is not None:
        to.add("plug", out.plug, flat.mean(1), error * math.sqrt(scale))


def _compare_equal(to: Comparison, equal: Table, y: Array, layout: Layout, error: float) -> None:
    """Probability that two integers are equal, by mask."""
    found = sum(pair_moments((y == v).astype(np.float64), layout) for v in np.unique(y))
    for mask, column in enumerate(np.asarray(found).T):
        to.add(f"equal[{_names(mask, layout)}]", float(equal[mask]), column, error)


def _names(mask: int, layout: Layout) -> str:
    """The groups of a mask by the dimensions they stand in."""
    found = [f"{d}" for d, dim in enumerate(layout.dims) for _, g in dim if mask >> g & 1]
    return ",".join(found)


def _fourth(out: Signal) -> float:
    return expect(out.nodes**4)


def _compare_noise(
    to: Comparison,
    out: Signal,
    inputs: Sequence[Spec],
    y: Array,
    scaled: Callable[[dict[int, float]], Array],
    error: float,
) -> None:
    """Slope of the log level in the log level of each input, by scaling it by 2 % each way."""
    flat = np.abs(y.reshape(len(y), -1)) ** 2
    if out.m2 <= 0 or out.equal is not None or float(flat.mean()) == 0:
        return
    for i, spec in enumerate(inputs):
        if isinstance(spec, Known | Ids | Constant):
            continue
        up, down = (np.abs(scaled({i: f}).reshape(len(y), -1)) ** 2 for f in (1.02, 1 / 1.02))
        slope = (up.mean(1) - down.mean(1)) / (2 * math.log(1.02) * float(flat.mean()))
        to.add(f"slope in input {i}", out.noise.get(i, 0.0), slope, error)


def _compare_back(
    to: Comparison, op: Op, signals: tuple[Signal, ...], out: Signal, drawn: Sequence[Array], y: Array,
    rng: np.random.Generator, error: float, pull: Callable[..., Sequence[Array | None]],
) -> None:  # fmt: skip
    if y.dtype.kind not in "fc" or out.equal is not None:
        return
    table, grads = draw_table(out.layout, rng, len(y))
    if np.iscomplexobj(y):
        grads = (grads + 1j * draw_table(out.layout, rng, len(y))[1]) / math.sqrt(2)
    predicted = ADJOINT[type(op)](op, signals, out, table)
    if not signals:
        assert predicted == ()
        return
    pulled = [pull(op, [a[r] for a in drawn], y[r], grads[r]) for r in range(len(y))]
    for i, (x, got) in enumerate(zip(signals, predicted, strict=True)):
        if pulled[0][i] is None or drawn[i].dtype.kind not in "fc":
            assert got is None or not np.any(got), f"input {i} takes no gradient, the rule gives it {got}"
            continue
        back = np.array([p[i] for p in pulled])
        level = float(np.mean(np.abs(back) ** 2))
        table_of = np.zeros(1 << x.layout.groups) if got is None else got
        for mask, column in enumerate(pair_moments(back, x.layout).T):
            to.add(f"G{i}[{_names(mask, x.layout)}]", float(table_of[mask]), column, (error + FLOOR) * level)


__all__ = [
    "Comparison",
    "Constant",
    "Entry",
    "Field",
    "Ids",
    "Known",
    "Weights",
    "check_rule",
    "draw_table",
    "pair_moments",
]

"""Norms and angles of pairs of inputs, layer by layer: the study's deep plain net, and any recorded model."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from anyinit._core.pointwise import FUNCTIONS
from anyinit._core.profile import Profile, activation_profile
from anyinit._graph.graph import Builder, Leaf
from anyinit._graph.ops import Contract, Pointwise
from anyinit._graph.rewrite import canonical
from anyinit._graph.runtime import Runtime
from anyinit._solve.analytic import Solver
from anyinit._solve.angles import Spread
from anyinit._solve.apply import materialize
from anyinit._solve.build import build
from anyinit._solve.propagate import Z95, Walk
from anyinit.errors import ConfigError

Array = NDArray[np.float64]
INPUTS = 5
"""Numbers per input of the study's net."""


@dataclass
class Curves:
    """One net: names of ``layers``; norms and cosines of shape (layer, pair); their bands (layer, pair, 2).
    Predictions are NaN where there are none: bands of cosines are known for nets of independent Gaussian weights."""

    title: str
    layers: list[str]
    norm: Array
    cosine: Array
    predicted_norm: Array
    predicted_cosine: Array
    norm_band: Array
    cosine_band: Array
    gain: float | None = None
    chi: float = math.nan
    chi_1: float = math.nan


def _measure(h: Any) -> tuple[Array, Array]:
    """Mean norm and cosine of each pair of consecutive rows of ``h``, with everything behind the first axis
    flattened."""
    x = np.asarray(h, np.float64)
    x = x.reshape(x.shape[0] // 2, 2, -1)
    norms = np.linalg.norm(x, axis=2)
    with np.errstate(all="ignore"):
        return norms.mean(axis=1), np.sum(x[:, 0] * x[:, 1], axis=1) / (norms[:, 0] * norms[:, 1])


def nets(target: Any, gain: Any, width: int, depth: int, pairs: int, seed: int) -> list[Curves]:
    """The curves of one activation, of several, or of a mapping of titles to them; see :func:`anyinit.propagate`.

    Raises:
        ConfigError: a size below one, or a target without a gain. ActivationError: no elementwise function.
    """
    for name, value in (("width", width), ("depth", depth), ("pairs", pairs)):
        if value < 1:
            raise ConfigError(f"The {name} of the net is at least one", value=value)
    several = target if isinstance(target, (list, tuple, Mapping)) else [target]
    titled = several if isinstance(several, Mapping) else None
    found: list[Curves] = []
    for key in cast("Iterable[Any]", several):
        if isinstance(gain, Mapping) and key not in gain:
            raise ConfigError("A net has no gain", value=key, remedy="Name every target in gain.")
        factor = cast("Mapping[Any, Any]", gain)[key] if isinstance(gain, Mapping) else gain
        profile = activation_profile(key if titled is None else titled[key])
        if factor == "anyinit":
            curves = solved_net(profile, width, depth, pairs, seed)
        else:
            number = profile.gain(cast(Any, factor)) if isinstance(factor, str) else float(factor)
            curves = gaussian_net(profile, number, width, depth, pairs, seed)
        found.append(curves if titled is None else replace(curves, title=str(key)))
    return found


def inputs(pairs: int, rng: np.random.Generator) -> Array:
    """``2 * pairs`` random directions in five dimensions."""
    data = rng.standard_normal((2 * pairs, INPUTS))
    return data / np.linalg.norm(data, axis=1, keepdims=True)


def gaussian_net(profile: Profile, gain: float, width: int, depth: int, pairs: int, seed: int) -> Curves:
    """``depth`` layers ``h -> W (gain f(h))``, ``W ~ N(0, 1 / width)`` anew in every layer, behind a first layer
    uniform in ``+-1 / sqrt 5``: the level starts at 1/15.

    Predictions are the infinite-width maps started from that level: ``q -> gain^2 E f(sqrt q z)^2`` and
    ``c -> E f(u) f(v) / E f^2`` (Poole et al. 2016); the band is log-normal with
    ``Var log q -> chi^2 Var log q + (E f^4 / (E f^2)^2 - 1) / width`` and ``2 / width`` of the layer's own draw.
    """
    rng = np.random.default_rng(seed)
    x = inputs(pairs, rng)
    h = (x @ rng.uniform(-1, 1, (INPUTS, width)) / math.sqrt(INPUTS)).astype(np.float32)
    rows = [_measure(h)]
    for _ in range(depth):
        w = rng.standard_normal((width, width), np.float32)
        with np.errstate(all="ignore"):
            h = np.asarray(gain * profile(h), np.float32) @ w / np.float32(math.sqrt(width))
        rows.append(_measure(h))
    cosines = np.sum(x[::2] * x[1::2], axis=1)
    norm, cosine, band, angles = _theory(profile, gain, width, depth, cosines)
    at = profile.moments(0.0, 1.0)
    return Curves(
        profile.label, [str(k) for k in range(depth + 1)], np.array([r[0] for r in rows]),
        np.array([r[1] for r in rows]), norm, cosine, band, angles, gain, profile.level_slope(1.0), gain**2 * at.grad2,
    )  # fmt: skip


def _theory(profile: Profile, gain: float, width: int, depth: int, cosines: Array) -> tuple[Array, Array, Array, Array]:
    """Norms, cosines, bands of the norm and of the cosine for layers 0 to ``depth``; NaN from where a level leaves the
    range of numbers."""
    pairs = cosines.size
    norm, cosine = np.full((depth + 1, pairs), np.nan), np.full((depth + 1, pairs), np.nan)
    band, angles = np.full((depth + 1, pairs, 2), np.nan), np.full((depth + 1, pairs, 2), np.nan)
    spreads = [Spread(width) for _ in range(pairs)]
    q, c, v = 1.0 / (3 * INPUTS), cosines, 0.0
    for layer in range(depth + 1):
        s2 = v + 2.0 / width
        norm[layer], cosine[layer] = math.sqrt(q * width), c
        middle, s = math.log(q * width) - s2 / 2, math.sqrt(s2)
        band[layer] = math.exp((middle - Z95 * s) / 2), math.exp((middle + Z95 * s) / 2)
        angles[layer] = [s.band(float(x), Z95) for s, x in zip(spreads, c, strict=True)]
        at = profile.moments(0.0, q)
        if not 1e-30 < at.m2 * gain**2 < 1e30:
            break
        for s, x in zip(spreads, c, strict=True):
            s.step(profile, q, float(x))
        coefficients = profile.hermite(64, variance=q) ** 2
        rest = max(at.m2 - float(coefficients.sum()), 0.0)  # of degrees above 64: seen at cosines near one only
        c = np.clip((np.polynomial.polynomial.polyval(c, coefficients) + rest * np.abs(c) ** 128) / at.m2, -1, 1)
        v = profile.level_slope(q) ** 2 * v + (at.m4 / at.m2**2 - 1) / width
        q = gain**2 * at.m2
    return norm, cosine, band, angles


@contextmanager
def _operation(profile: Profile) -> Generator[str]:
    """The activation as an elementwise operation of the graph, for as long as the context lasts."""
    name = f"activation:{uuid.uuid4().hex}"
    function: Callable[..., Any] = lambda x: profile(x)  # noqa: E731
    FUNCTIONS[name] = function
    try:
        yield name
    finally:
        del FUNCTIONS[name]


def solved_net(profile: Profile, width: int, depth: int, pairs: int, seed: int) -> Curves:
    """The same net without gains, initialized by the solver as a recorded model of this shape would be.

    Predictions are those of the plan, made before the draw, for the first pair.
    """
    x = inputs(pairs, np.random.default_rng(seed))
    with _operation(profile) as fn:
        made = Builder()
        h, shape = made.leaf(Leaf("input", "input.0"), (2, INPUTS)), (2, width)
        outputs: list[int] = []
        for k in range(depth + 1):
            into = INPUTS if k == 0 else width
            w = made.leaf(Leaf("param", f"{k}.weight", trainable=True), (width, into))
            h = made.add(
                Contract((0, 1), (2, 1), (0, 2)),
                ((h if k == 0 else made.add(Pointwise(fn, (None,)), (h,), shape)), w),
                shape,
            )
            outputs.append(h)
        graph = canonical(made.finish((h,)))
        walk = Walk(graph, lambda i, leaf: solver.param(i, leaf), {"input.0": x[:2]})
        solver = Solver(graph, walk, lambda name: np.zeros(0))
        solver.solve()
        weights = materialize(build(solver, seed, {}), lambda names: {})
    rows: list[tuple[Array, Array]] = []
    state = x
    for k in range(depth + 1):
        state = np.asarray(state if k == 0 else profile(state)) @ weights[f"{k}.weight"].T
        rows.append(_measure(state))
    curves = Curves(
        profile.label, [str(k) for k in range(depth + 1)], np.array([r[0] for r in rows]),
        np.array([r[1] for r in rows]), *_predicted(walk, outputs, pairs),
    )  # fmt: skip
    return curves


def _predicted(walk: Walk, outputs: list[int], pairs: int) -> tuple[Array, Array, Array, Array]:
    """Norms, cosines and bands (none of the cosine) from signals of values whose first axis is the batch; first
    column only."""
    n = len(outputs)
    norm, cosine, band = np.full((n, pairs), np.nan), np.full((n, pairs), np.nan), np.full((n, pairs, 2), np.nan)
    for row, value in enumerate(outputs):
        if value not in walk.signals:
            continue
        signal = walk.signals[value]
        size = math.prod(walk.graph.values[value].shape[1:])
        if not 0 < signal.m2 < math.inf:
            continue
        norm[row, 0] = math.sqrt(signal.m2 * size)
        mask = sum(1 << g for _, g in signal.layout.dims[0])
        cosine[row, 0] = float(np.clip(signal.cov[mask] / signal.m2, -1, 1))
        band[row, 0] = np.sqrt(np.array(walk.band(signal)) * size)
    return norm, cosine, band, np.full_like(band, np.nan)


def _biased(solver: Solver, value: int) -> int:
    """The value behind the bias that is added to a contraction, else the contraction itself."""
    readers = solver.uses.consumers.get(value, ())
    if len(readers) == 1:
        node = solver.graph.nodes[readers[0]]
        others = [i for i in node.inputs if i != value]
        if isinstance(node.op, Pointwise) and node.op.fn == "add" and any(i in solver.uses.origin for i in others):
            return node.output
    return value


def of_model(solver: Solver, runtime: Runtime, title: str) -> Curves:
    """Norms and cosines of consecutive samples at the output of every weight's operation (its bias included),
    on the model's own weights."""
    graph = solver.graph
    samples = next(
        (
            graph.values[i].shape[0]
            for i, leaf in graph.leaves.items()
            if leaf.role == "input" and graph.values[i].shape
        ),
        0,
    )
    first = graph.observable if graph.observable is not None else len(graph.values)
    places: dict[int, str] = {}
    for node in graph.nodes:
        shape = graph.values[node.output].shape
        leaves = [solver.uses.origin[i][0] for i in node.inputs if i in solver.uses.origin]
        if isinstance(node.op, Contract) and leaves and shape and shape[0] == samples and node.output < first:
            places[_biased(solver, node.output)] = graph.leaves[leaves[0]].name
    pairs = samples // 2
    seen: dict[int, tuple[Array, Array]] = {}

    def visit(value: int, array: Any) -> None:
        seen.setdefault(value, _measure(array[: 2 * pairs]))

    if pairs:
        runtime.run({}, list(places), visit)
    kept = [i for i in places if i in seen]
    if not kept:
        raise ConfigError(
            "There is no pair of samples to follow",
            value=f"{samples} samples, {len(places)} layers with the samples on their first axis",
            remedy="Pass a batch of at least two samples, with the samples along the first axis.",
        )
    predicted = _predicted(solver.walk, kept, 1)
    return Curves(
        title, [places[i] for i in kept], np.array([seen[i][0] for i in kept]), np.array([seen[i][1] for i in kept]),
        *predicted,
    )  # fmt: skip

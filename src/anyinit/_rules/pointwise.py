"""Elementwise operations: one NumPy call on the nodes of at most two latent fields.

A region of elementwise operations with the same sources is thereby evaluated as one function, with
no list of activations. Derivatives with respect to the region's sources are carried along (forward
mode, central differences of each operation in float64), so the adjoint of the whole region is
``E[f'(x_i) f'(x_j)]`` by mask (Schoenholz et al. 2017, chi_1).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from anyinit._core.field import (
    GRID,
    WEIGHT,
    WEIGHT2,
    Nodes,
    Signal,
    Source,
    constant,
    correlation_for,
    expect,
    gaussian,
    materialize,
    pair_table,
    quantiles,
)
from anyinit._core.pointwise import FUNCTIONS
from anyinit._core.tables import Layout, Masks, Table, align, conform, gather_down, simplify
from anyinit._graph.ops import Op, Pointwise
from anyinit._rules.base import Inputs, Site, adjoint, forward, inherited, lineage
from anyinit._rules.masks import masked

_LINEAR = {"add": (1.0, 1.0), "sub": (1.0, -1.0)}


def evaluate(op: Pointwise, operands: list[Nodes]) -> Nodes:
    """The operation on node arrays (scalars filled in)."""
    it = iter(operands)
    args = [next(it) if a is None else np.asarray(a) for a in op.args]
    with np.errstate(all="ignore"):
        if op.fn == "where":
            return _chosen(*args)
        return np.asarray(FUNCTIONS[op.fn](*args), dtype=np.float64)


def _chosen(condition: Nodes, yes: Nodes, no: Nodes) -> Nodes:
    """Selection, linear in a condition whose nodes were moved off 0 and 1 to make its share of ones exact."""
    between = np.asarray(condition * yes + (1 - condition) * no, dtype=np.float64)
    return np.where(condition == 1, yes, np.where(condition == 0, no, between))


def slopes(op: Pointwise, operands: list[Nodes]) -> list[Nodes]:
    """Partial derivative with respect to each tensor operand, by central differences.

    Steps are 1e-6 of the operand's size, at least 1e-9 of its mean: the tail of ``cosh`` would step out of the domain
    of the ``log`` behind it. Node positions never sit on a kink, so the error is 1e-9.
    """
    out: list[Nodes] = []
    for i, x in enumerate(operands):
        if op.fn == "where" and i == 0 and op.args[0] is None:
            out.append(np.zeros(np.broadcast_shapes(*(np.shape(o) for o in operands))))
            continue
        h = 1e-6 * (1e-3 * (_size(x) or 1.0) + np.abs(x))
        up = evaluate(op, [*operands[:i], x + h, *operands[i + 1 :]])
        down = evaluate(op, [*operands[:i], x - h, *operands[i + 1 :]])
        slope = (up - down) / (2 * h)
        # a jump inside the step is no slope (autodiff sees none either)
        slope = np.where(np.isfinite(slope) & (np.abs(slope) * h < 1e-3 * (1 + np.abs(up))), slope, 0.0)
        whole = slope.shape == x.shape == GRID.shape
        out.append(_at_kinks(x, 0.5 * (up + down), slope) if whole else slope)
    return out


def _size(x: Nodes) -> float:
    """Mean magnitude: over the grid's weights, or over equally likely points."""
    size = np.abs(x)
    on_grid = x.ndim == 1 and x.shape == WEIGHT.shape
    on_plane = x.ndim == 2 and set(x.shape) <= {1, WEIGHT.size}
    if on_grid or on_plane:
        mean = float(WEIGHT @ size) if on_grid else float((WEIGHT2 * size).sum())
    else:
        mean = float(size.mean()) if x.size else 0.0
    return mean if math.isfinite(mean) else float(np.median(size))


def _at_kinks(x: Nodes, y: Nodes, slope: Nodes) -> Nodes:
    """Slopes beside a kink moved so that ``E f'`` and ``E f'^2`` see it where it is, not between two nodes.

    A kink is a jump of the slope much larger than its neighbours, and lies where the tangents of its two sides
    meet. Of a slope ``a`` below and ``b`` above it, both nodes' weights hold a known mixture: its mean and
    variance fix the two numbers.
    """
    jump = np.abs(np.diff(slope))
    outside = np.maximum(jump[:-3], jump[3:])
    for k in np.flatnonzero(np.minimum(jump[1:-2], jump[2:-1]) > 5 * outside + 1e-6 * float(np.max(np.abs(slope)))):
        slope = slope.copy()
        slope[k + 2] = slope[k + 3]  # a kink on a node: the difference there took half of each side
        jump = np.abs(np.diff(slope))
    around = np.maximum(np.append(jump[1:], 0.0), np.append(0.0, jump[:-1]))
    found = np.flatnonzero(jump > 5 * around + 1e-6 * float(np.max(np.abs(slope), initial=0.0)))
    if not 0 < found.size <= 8:
        return slope
    out = slope.copy()
    for i in found[(found > 0) & (found < GRID.size - 2)]:
        (a, b), (x0, x1) = slope[i : i + 2], x[i : i + 2]
        at = (y[i + 1] - y[i] + a * x0 - b * x1) / (a - b)
        part = (at - x0) / (x1 - x0) if x1 != x0 else -1.0
        if not 0 <= part <= 1:
            continue
        low = float(ndtr(GRID[i] + part * (GRID[i + 1] - GRID[i]))) - float(_BELOW[i])
        w0, w1 = WEIGHT[i], WEIGHT[i + 1]
        share = min(max(low / (w0 + w1), 0.0), 1.0)
        mean, spread = share * a + (1 - share) * b, math.sqrt(share * (1 - share)) * abs(b - a)
        side = math.copysign(1.0, b - a)
        out[i], out[i + 1] = mean - side * spread * math.sqrt(w1 / w0), mean + side * spread * math.sqrt(w0 / w1)
    return out


_BELOW = np.cumsum(WEIGHT) - WEIGHT


@forward(Pointwise)
def pointwise(op: Pointwise, inputs: Inputs, site: Site) -> Signal:
    """Elementwise function of broadcast operands; exact on one or two latent fields."""
    if not inputs:
        return constant(align([], site.shape)[0], float(evaluate(op, [])))
    given = inputs
    inputs = _plugged(given)
    kept = masked(op, inputs, site)
    if kept is not None:
        return kept
    if op.fn in {"real", "imag"} and inputs[0].phase:
        # half of the level; the slope stays one
        return inputs[0].but(nodes=inputs[0].nodes * math.sqrt(0.5), phase=False)
    layout, maps = align([x.layout for x in inputs], site.shape)
    keys = list(dict.fromkeys(k for x in inputs for k in x.keys))
    if _plain_sum(op, inputs, keys):
        result = _sum(op, inputs, layout, maps, site)
    else:
        if len(keys) > 2:
            inputs = tuple(_flattened(x, site, i) for i, x in enumerate(inputs))
            keys = list(dict.fromkeys(k for x in inputs for k in x.keys))
        result = (
            _mixture(op, inputs, layout, maps, site) if len(keys) > 2 else _joint(op, inputs, layout, maps, keys, site)
        )
    result = _annotate(op, inputs, result)
    if op.fn in {"mul", "div"} and any(x is not y for x, y in zip(given, inputs, strict=True)):
        result = result.but(rigid=(1.0,) * len(result.keys))  # divided by its own norm: the level is fixed
    if layout.groups >= 5 and len(result.corr) > 0:
        lay, corr = simplify(layout, list(result.corr))
        result = result.but(layout=lay, corr=tuple(corr))
    return result


def _plugged(inputs: Inputs) -> Inputs:
    """A reduction that meets the field it was taken from stands for its typical value."""
    out: list[Signal] = []
    for x in inputs:
        others = {k for y in inputs if y is not x for k in y.keys}
        meets = x.plug is not None and any(_root(k) in {_root(j) for j in x.lineage} for k in others)
        if meets and x.plug is not None:
            out.append(x.but(nodes=np.asarray(x.plug), keys=(), corr=(), rigid=(), sources={}))
        else:
            out.append(x)
    return tuple(out)


def _root(key: Hashable) -> Hashable:
    while isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], Op):  # pyright: ignore[reportUnknownArgumentType]
        key = key[0]  # pyright: ignore[reportUnknownVariableType]
    return key  # pyright: ignore[reportUnknownVariableType]


def _plain_sum(op: Pointwise, inputs: Inputs, keys: list[Hashable]) -> bool:
    """Sums of independent fields are kept by their tables, not by a joint grid."""
    if op.fn not in _LINEAR or len(inputs) != 2 or len(keys) < 2:
        return False
    shared = set(inputs[0].keys) & set(inputs[1].keys)
    return not shared and (len(keys) > 2 or all(x.affine() for x in inputs))


def _sum(op: Pointwise, inputs: Inputs, layout: Layout, maps: list[Masks], site: Site) -> Signal:
    """``x + y`` of independent values: tables add, with twice the product of the means."""
    a, b = inputs
    sa, sb = _LINEAR[op.fn]
    table = a.cov[maps[0]] + b.cov[maps[1]] + 2 * sa * sb * a.mean * b.mean
    mean = sa * a.mean + sb * b.mean
    if all(x.affine() for x in inputs):
        rigid = sum(float(x.cov[0]) * (x.rigid[0] if x.rigid else 1.0) for x in inputs) / max(
            float(a.cov[0] + b.cov[0]), 1e-300
        )
        out = gaussian(layout, mean, table, site.id, rigid=rigid**2)
        total2 = max(float(a.cov[0] + b.cov[0]), 1e-300)
        out = out.but(wobble=(sum((float(x.cov[0]) / total2) ** 2 * sum(x.wobble) for x in inputs),))
    else:
        one, two = (materialize(x, ("m", site.id, i)) for i, x in enumerate(inputs))
        values = sa * one.nodes.reshape(-1, 1) + sb * two.nodes.reshape(1, -1)
        both = Signal(layout, values, (0, 1), (one.corr[0][maps[0]], two.corr[0][maps[1]]), rigid=(0.0, 0.0))
        flat = materialize(both, site.id)
        corr = correlation_for(flat.nodes, table)
        corr[0] = 1.0
        out = flat.but(corr=(corr,), rigid=(0.0,))
    total = float(table[0]) or 1.0
    share = ((a.m2 + sa * sb * a.mean * b.mean) / total, (b.m2 + sa * sb * a.mean * b.mean) / total)
    return out.but(noise=inherited(a, b, weights=share), sources={})


def _joint(
    op: Pointwise, inputs: Inputs, layout: Layout, maps: list[Masks], keys: list[Hashable], site: Site
) -> Signal:
    """Evaluate on the common grid of the operands' fields."""
    corr: list[Table] = []
    rigid: list[float] = []
    for k in keys:
        i = next(i for i, x in enumerate(inputs) if k in x.keys)
        at = inputs[i].keys.index(k)
        corr.append(inputs[i].corr[at][maps[i]])
        rigid.append(inputs[i].rigid[at] if inputs[i].rigid else 0.0)
    wobble = _wobbles(inputs, keys)
    grids = [_on_grid(x.nodes, x.keys, keys) for x in inputs]
    values, partial = _evaluated(op, grids)
    nodes = np.broadcast_to(values, np.broadcast_shapes(*(g.shape for g in grids))).copy()
    nodes = np.nan_to_num(nodes, nan=0.0, posinf=1e150, neginf=-1e150)
    sources = _sources(partial, inputs, keys)
    if nodes.ndim and float(np.ptp(nodes)) == 0.0:
        return constant(layout, float(nodes.flat[0]))
    out = Signal(layout, nodes, tuple(keys), tuple(corr), rigid=tuple(rigid), wobble=wobble, sources=sources)
    return out.but(noise=_noise(out, inputs, grids))


def _wobbles(inputs: Inputs, keys: list[Hashable]) -> tuple[float, ...]:
    found = {k: w for x in inputs for k, w in zip(x.keys, x.wobble, strict=False)}
    return tuple(found.get(k, 0.0) for k in keys)


def _flattened(x: Signal, site: Site, i: int) -> Signal:
    """A two-field operand as one new field, which starts a region of its own."""
    if len(x.keys) < 2:
        return x
    return as_source(materialize(x, ("m", site.id, i)), site.inputs[i] if site.inputs else i)


def _on_grid(nodes: Nodes, own: tuple[Hashable, ...], keys: list[Hashable]) -> Nodes:
    """Place a node array on the axes of ``keys``."""
    if len(keys) < 2 or nodes.ndim == 0:
        return nodes
    if nodes.ndim == 2:
        return nodes if own[0] == keys[0] else nodes.T
    return nodes[:, None] if own[0] == keys[0] else nodes[None, :]


def _evaluated(op: Pointwise, grids: list[Nodes]) -> tuple[Nodes, list[Nodes]]:
    """Values and partial derivatives on a grid; of one field, once for an operation and its operands' values."""
    if any(g.ndim > 1 for g in grids):
        return evaluate(op, grids), slopes(op, grids)
    operands = tuple((g.ndim, np.asarray(g, dtype=np.float64).tobytes()) for g in grids)
    values, partial = _on_one_field(op, repr(op.args), FUNCTIONS.get(op.fn), operands)
    return values, list(partial)


@lru_cache(maxsize=4096)
def _on_one_field(
    op: Pointwise, args: str, function: object, operands: tuple[tuple[int, bytes], ...]
) -> tuple[Nodes, tuple[Nodes, ...]]:
    """``args`` tells the signs of zeros apart, ``function`` a name that was given another meaning."""
    grids = [np.frombuffer(held) if ndim else np.frombuffer(held).reshape(()) for ndim, held in operands]
    values, partial = evaluate(op, grids), tuple(slopes(op, grids))
    for array in (values, *partial):
        array.setflags(write=False)
    return values, partial


def _sources(partial: list[Nodes], inputs: Inputs, keys: list[Hashable]) -> dict[int, Source]:
    """Chain rule: derivative with respect to every source of the operands."""
    out: dict[int, Source] = {}
    for x, d in zip(inputs, partial, strict=True):
        for s, src in x.sources.items():
            deriv = d * _on_grid(src.deriv, x.keys, keys)
            nodes = _on_grid(src.nodes, x.keys, keys)
            if s in out:
                deriv = out[s].deriv + deriv
            out[s] = Source(deriv, nodes, src.noise)
    return out


def _noise(out: Signal, inputs: Inputs, grids: list[Nodes]) -> dict[int, float]:
    """Level slope of the region with respect to each source times that source's noise."""
    if out.m2 <= 0:
        return {}
    noise: dict[int, float] = {}
    for src in out.sources.values():
        chi = expect(np.asarray(out.nodes * src.deriv * src.nodes)) / out.m2
        for k, v in src.noise.items():
            noise[k] = noise.get(k, 0.0) + chi * v
    for x in inputs:
        if not x.sources:
            for k, v in x.noise.items():
                noise[k] = noise.get(k, 0.0) + v
    return noise


def _mixture(op: Pointwise, inputs: Inputs, layout: Layout, maps: list[Masks], site: Site) -> Signal:
    """Three fields or more: a quasi-random population of pairs of entries for every mask."""
    inputs = tuple(_flattened(x, site, i) for i, x in enumerate(inputs))
    one, two = _population(inputs, maps)
    values, others = np.nan_to_num(evaluate(op, one)), np.nan_to_num(evaluate(op, two))
    nodes = quantiles(values, np.ones(values.size))
    table = np.mean(values * np.broadcast_to(others, (1 << layout.groups, values.size)), axis=1)
    table[0] = float((values * values).mean())
    corr = correlation_for(nodes, np.minimum(table, table[0]))
    corr[0] = 1.0
    noise: dict[int, float] = {}
    for x, c, d in zip(inputs, one, slopes(op, one), strict=True):
        chi = float(np.mean(values * d * c)) / max(float(table[0]), 1e-300)
        for k, v in x.noise.items():
            noise[k] = noise.get(k, 0.0) + chi * v
    return Signal(layout, nodes, (site.id,), (corr,), rigid=(0.0,), noise=noise)


def _population(inputs: Inputs, maps: list[Masks]) -> tuple[list[Nodes], list[Nodes]]:
    """Values of one entry, ``(points,)``, and of a second one for every mask, ``(masks, points)``."""
    varying = [x for x in inputs if x.keys]
    keys = list(dict.fromkeys(x.keys[0] for x in varying))
    points = _points(2 * len(keys))
    one: list[Nodes] = []
    two: list[Nodes] = []
    for x, m in zip(inputs, maps, strict=True):
        if not x.keys:
            one.append(np.asarray(float(x.nodes)))
            two.append(np.asarray(float(x.nodes)))
            continue
        at = keys.index(x.keys[0])
        r = np.clip(x.corr[0][m], -1.0, 1.0)[:, None]
        z, w = points[:, at], points[:, len(keys) + at]
        one.append(np.interp(z, GRID, x.nodes))
        two.append(np.interp(r * z + np.sqrt(1 - r * r) * w, GRID, x.nodes))
    return one, two


@lru_cache(maxsize=16)
def _points(dimensions: int) -> Nodes:
    """4096 quasi-random standard normal points, with exactly that mean and covariance."""
    from scipy.stats import qmc  # costs 0.2 s to import, needed only here

    shift = np.random.default_rng(1).random(dimensions)
    points = ndtri(np.clip((qmc.Sobol(dimensions, scramble=False).random(4096) + shift) % 1.0, 1e-9, 1 - 1e-9))
    points = points - points.mean(0)
    whiten = np.linalg.inv(np.linalg.cholesky(points.T @ points / len(points)))
    return np.asarray(points @ whiten.T, dtype=np.float64)


def _annotate(op: Pointwise, inputs: Inputs, out: Signal) -> Signal:
    """Lineage, plug value, equality of integers and the softmax mask travel along."""
    line = lineage(*inputs)
    plugs = [x.plug if x.plug is not None else (float(x.nodes) if not x.keys else None) for x in inputs]
    plug = None
    if line and all(p is not None for p in plugs):
        plug = float(evaluate(op, [np.asarray(p) for p in plugs]))
    equal = next((x.equal for x in inputs if x.equal is not None), None)
    if equal is not None and (len(inputs) > 1 or equal.size != out.cov.size):
        equal = None
    kept = next((x.kept for x in inputs if x.kept is not None), None)
    lines = line if plug is not None else frozenset[Hashable]()
    return out.but(
        lineage=lines, plug=plug, equal=equal, kept=kept, phase=any(x.phase for x in inputs) and op.fn != "abs"
    )


def as_source(signal: Signal, at: int) -> Signal:
    """The signal as the start of a new elementwise region."""
    return signal.but(sources={at: Source(np.ones_like(signal.nodes), signal.nodes, signal.noise)})


def region_tables(signal: Signal) -> dict[int, Table]:
    """``E[f'(x_i) f'(x_j)]`` by mask for each source of the region that ends here."""
    return {s: pair_table(src.deriv, signal.corr, signal.layout.groups) for s, src in signal.sources.items()}


@adjoint(Pointwise)
def pointwise_adjoint(op: Pointwise, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """``G_x[S] = G[S] E[f'(x_i) f'(x_j)][S]``, summed over what the operand broadcasts along.

    The walk applies this to whole regions through :func:`region_tables`; here for one operation,
    where operands start regions of their own.
    """
    fresh = tuple(as_source(x, i) for i, x in enumerate(inputs))
    site = Site(-1, output.layout.shape)
    if _plain_sum(op, fresh, list(dict.fromkeys(k for x in fresh for k in x.keys))):
        return tuple(gather_down(output.layout, grad, x.layout) for x in inputs)
    here = pointwise(op, fresh, site)
    tables = region_tables(here) or _population_slopes(op, fresh, here, output.layout.shape)
    grad = grad if here.layout.dims == output.layout.dims else _as(output, grad, here)
    return tuple(
        gather_down(here.layout, grad * tables[i], x.layout) if i in tables else None for i, x in enumerate(inputs)
    )


def _population_slopes(op: Pointwise, inputs: Inputs, here: Signal, shape: tuple[int, ...]) -> dict[int, Table]:
    """``E[f'(x_i) f'(x_j)]`` of a function of three fields over pairs of a quasi-random population."""
    inputs = tuple(_flattened(x, Site(-1, ()), i) for i, x in enumerate(inputs))
    layout, maps = align([x.layout for x in inputs], shape)
    one, two = _population(inputs, maps)
    size = (1 << layout.groups, max((c.size for c in one), default=1))
    pairs = zip(slopes(op, one), slopes(op, two), strict=True)
    tables = {i: np.mean(np.broadcast_to(d * e, size), axis=1) for i, (d, e) in enumerate(pairs)}
    return {i: conform(layout, t, here.layout) for i, t in tables.items()}


def _as(output: Signal, grad: Table, here: Signal) -> Table:
    return conform(output.layout, grad, here.layout)


def edges(op: Pointwise, output: Signal, layouts: Mapping[int, Layout], grad: Table) -> dict[int, Table]:
    """Gradient tables pushed from the end of a region to each of its sources."""
    return {
        s: gather_down(output.layout, grad * t, layouts[s]) for s, t in region_tables(output).items() if s in layouts
    }

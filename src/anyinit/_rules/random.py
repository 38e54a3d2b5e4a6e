"""Noise, constants and dropout."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from anyinit._core.field import GRID, Nodes, Signal, constant, expect, materialize
from anyinit._core.tables import Layout, Table, align, conform, separate, single
from anyinit._graph.ops import Dropout, Fill, Random
from anyinit._rules.base import Inputs, Site, adjoint, forward
from anyinit._rules.merge import blended


@forward(Random)
def random(op: Random, inputs: Inputs, site: Site) -> Signal:
    """Independent entries with the moments of the named distribution."""
    layout = single(site.shape)
    corr = np.where(np.arange(1 << layout.groups) == 0, 1.0, 0.0)
    p = op.params
    u = ndtr(GRID)
    if op.kind == "normal":
        nodes = p[0] + p[1] * GRID
    elif op.kind == "bernoulli":
        q = p[0] if p else 0.5
        nodes = _matched(np.where(u > 1 - q, 1.0, 0.0), q, q * (1 - q)) if 0 < q < 1 else np.asarray(q)
    elif op.kind == "exponential":
        nodes = -np.log1p(-np.minimum(u, 1 - 1e-16)) / (p[0] if p else 1.0)
    elif op.kind == "integer":
        n = p[1] - p[0]
        nodes = _matched(np.floor(p[0] + n * np.minimum(u, 1 - 1e-16)), (p[0] + p[1] - 1) / 2, (n * n - 1) / 12)
    else:
        low, high = p if len(p) == 2 else (0.0, 1.0)
        nodes = low + (high - low) * u
    if np.ndim(nodes) == 0:
        return constant(layout, float(nodes))
    equal = np.where(corr == 1, 1.0, 1 / max(p[1] - p[0], 1.0)) if op.kind == "integer" else None
    return Signal(layout, np.asarray(nodes), (site.id,), (corr,), rigid=(0.0,), equal=equal)


def _matched(nodes: Nodes, mean: float, variance: float) -> Nodes:
    """Steps on the grid with their mean and variance made exact (a step may fall between nodes)."""
    off = nodes - expect(nodes)
    spread = expect(off * off)
    return mean + off * (variance / spread) ** 0.5 if spread > 0 else np.asarray(mean)


@forward(Fill)
def fill(op: Fill, inputs: Inputs, site: Site) -> Signal:
    """The same number everywhere."""
    return constant(separate(site.shape), op.value)


@forward(Dropout)
def dropout(op: Dropout, inputs: Inputs, site: Site) -> Signal:
    """Inverted dropout: the level grows by ``1 / (1 - p)``, pairs with independent masks do not
    (Srivastava et al. 2014)."""
    x = inputs[0]
    if op.p <= 0:
        return x.but(sources={})
    if op.p >= 1:
        return constant(x.layout, 0.0)
    x = materialize(x, ("m", site.id, 0))
    layout, masks = _masked(x, op)
    cov = x.cov[masks]
    table = np.where(_same_mask(layout, op), cov / (1 - op.p), cov)
    scaled = x.but(nodes=x.nodes / (1 - op.p))
    out = blended([(scaled, 1 - op.p), (constant(layout, 0.0), op.p)], layout, table, site.id)
    return out.but(noise=dict(x.noise), rigid=(0.0,) * len(out.keys), lineage=x.lineage, plug=x.plug)


def _masked(x: Signal, op: Dropout) -> tuple[Layout, np.ndarray]:
    fine = separate(x.layout.shape) if op.dims is not None else x.layout
    layout, (a, _) = align([x.layout, fine], x.layout.shape)
    return layout, a


def _same_mask(layout: Layout, op: Dropout) -> np.ndarray:

    masks = np.arange(1 << layout.groups)
    bits = 0
    for d, factors in enumerate(layout.dims):
        if op.dims is None or d in op.dims:
            for _, g in factors:
                bits |= 1 << g
    return (masks & bits) == 0


@adjoint(Dropout)
def dropout_adjoint(op: Dropout, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The same mask again."""
    if op.p >= 1:
        return (None,)
    factor = np.where(_same_mask(output.layout, op), 1 / (1 - op.p), 1.0)
    return (conform(output.layout, grad * factor, inputs[0].layout),)


@adjoint(Random)
def random_adjoint(op: Random, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """No input."""
    return ()


@adjoint(Fill)
def fill_adjoint(op: Fill, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """No input."""
    return ()

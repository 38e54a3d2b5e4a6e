"""Linear maps of whole axes: interpolation, Fourier transforms, explicit windows, triangles; and the
rule for operations nobody knows."""

from __future__ import annotations

import math

import numpy as np

from anyinit._core.field import Signal, constant, from_table, gaussian
from anyinit._core.tables import Factor, Table, build, conform, lift, separate
from anyinit._graph.ops import Opaque, Resize, Spectral, Triangle, Unfold
from anyinit._rules.base import Inputs, Site, adjoint, forward
from anyinit._rules.structure import _loose, _resized, moved, reshape_layout  # pyright: ignore[reportPrivateUsage]


@forward(Resize)
def resize(op: Resize, inputs: Inputs, site: Site) -> Signal:
    """Nearest keeps the marginal; linear interpolation averages neighbours with random offsets."""
    x = inputs[0]
    layout, masks = _resized(x.layout, site.shape)
    if op.kind == "nearest" or not x.keys:
        return moved(x, layout, op, masks)
    m = np.arange(1 << layout.groups) if masks is None else masks
    bits, keep = 0, 1.0
    for d, n in zip(op.dims, op.sizes, strict=True):
        bits |= sum({1 << g for _, g in layout.dims[d]})
        before = x.layout.shape[d]
        if n != before and before > 1:
            at = np.clip((np.arange(n) + 0.5) * before / n - 0.5, 0, before - 1)
            f = at - np.floor(at)
            keep *= float(np.mean(f**2 + (1 - f) ** 2))
    cov = x.cov[m]
    apart = cov[np.arange(cov.size) | bits]
    table = np.where((np.arange(cov.size) & bits) == 0, keep * cov + (1 - keep) * apart, cov)
    like = x.nodes if x.nodes.ndim == 1 else None
    return from_table(layout, x.mean, table, site.id, like).but(noise=dict(x.noise))


@adjoint(Resize)
def resize_adjoint(op: Resize, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Every input entry collects the outputs made from it."""
    x = inputs[0]
    times = output.layout.size / x.layout.size
    fine, (a, b) = _loose(output.layout, x.layout)
    from anyinit._core.tables import collapse

    table = collapse(fine, grad[a], b, x.layout.groups)
    near = float(table[-1]) if table.size > 1 else float(table[0])
    if times >= 1:
        first = times * float(table[0]) + times * (times - 1) * near
        return (np.where(np.arange(table.size) == 0, first, table * times**2),)
    return (table * np.where(np.arange(table.size) == 0, times, times**2),)


@forward(Spectral)
def spectral(op: Spectral, inputs: Inputs, site: Site) -> Signal:
    """Parseval: ``E |X_k|^2 = n E x^2`` for entries independent along the axes (``norm`` backward)."""
    x = inputs[0]
    n = math.prod(op.sizes)
    power = {"backward": 1.0 if op.kind in {"ifft", "irfft"} else 0.0, "ortho": 0.5, "forward": 0.0 if op.kind in {"ifft", "irfft"} else 1.0}[op.norm]
    layout = separate(site.shape)
    bits = 0
    for d in op.dims:
        bits |= sum({1 << g for _, g in x.layout.dims[d]})
    spread = float(x.m2 - (x.cov[bits] if bits else 0.0))
    half = 0.5 if False else 1.0
    level = half * n * (n ** (-2 * power)) * (spread + float(x.cov[bits] if bits else 0.0))
    cov = np.zeros(1 << layout.groups)
    cov[0] = max(level, 0.0)
    return gaussian(layout, 0.0, cov, site.id).but(noise=dict(x.noise))


@adjoint(Spectral)
def spectral_adjoint(op: Spectral, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The transform back, with the same power."""
    x = inputs[0]
    scale = output.m2 / x.m2 if x.m2 > 0 else 1.0
    table = np.zeros(1 << x.layout.groups)
    table[0] = float(grad[0]) * scale * output.layout.size / x.layout.size
    return (table,)


@forward(Unfold)
def unfold(op: Unfold, inputs: Inputs, site: Site) -> Signal:
    """Overlapping windows made explicit: window index and offset both move the position."""
    x = inputs[0]
    dims: list[list[Factor]] = [list(d) for d in x.layout.dims]
    for dim, size, _ in op.windows:
        bits = tuple(g for _, g in x.layout.dims[dim])
        dims[dim] = [(site.shape[dim], ("p", bits))]
        dims.append([(size, ("o", bits))])
    layout, keys = build(dims)
    touches = {k: (1 << k if isinstance(k, int) else sum(1 << g for g in set(k[1]))) for k in keys}  # type: ignore[index]
    return moved(x, layout, op, lift(layout, keys, touches))


@adjoint(Unfold)
def unfold_adjoint(op: Unfold, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Every entry collects the windows it stands in."""
    x = inputs[0]
    table = np.zeros(1 << x.layout.groups)
    table[0] = float(grad[0]) * output.layout.size / x.layout.size
    return (table,)


@forward(Triangle)
def triangle(op: Triangle, inputs: Inputs, site: Site) -> Signal:
    """Zeros on one side of a diagonal: levels shrink by the share that stays."""
    x = inputs[0]
    if x.data is not None:
        from anyinit._core.field import measured

        data = np.triu(x.data, op.diagonal) if op.upper else np.tril(x.data, op.diagonal)
        return measured(data, site.id)
    share = _share(op, site.shape)
    cov = x.cov * np.where(np.arange(x.cov.size) == 0, share, share**2)
    like = x.nodes if x.nodes.ndim == 1 else None
    return from_table(x.layout, x.mean * share, cov, site.id, like).but(noise=dict(x.noise))


def _share(op: Triangle, shape: tuple[int, ...]) -> float:
    ones = np.ones(shape[-2:])
    return float((np.triu(ones, op.diagonal) if op.upper else np.tril(ones, op.diagonal)).mean())


@adjoint(Triangle)
def triangle_adjoint(op: Triangle, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """The same zeros again."""
    share = _share(op, output.layout.shape)
    g = conform(output.layout, grad, inputs[0].layout)
    return (g * np.where(np.arange(g.size) == 0, share, share**2),)


@forward(Opaque)
def opaque(op: Opaque, inputs: Inputs, site: Site) -> Signal:
    """Unknown: assumed to keep the level of its first floating input, flagged as not certified.

    The walk replaces this by a local measurement where a runtime can make one.
    """
    x = next((s for s in inputs if s.keys), None)
    layout = separate(site.shape)
    cov = np.zeros(1 << layout.groups)
    cov[0] = x.m2 if x is not None else 1.0
    return gaussian(layout, 0.0, cov, site.id).but(noise={} if x is None else dict(x.noise), approx=("opaque",))


@adjoint(Opaque)
def opaque_adjoint(op: Opaque, inputs: Inputs, output: Signal, grad: Table) -> tuple[Table | None, ...]:
    """Level kept."""
    out: list[Table | None] = []
    for x in inputs:
        table = np.zeros(1 << x.layout.groups)
        table[0] = float(grad[0]) * output.layout.size / max(x.layout.size, 1)
        out.append(table if x.keys else None)
    return tuple(out)


__all__ = ["constant", "reshape_layout"]

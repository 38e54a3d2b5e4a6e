"""Linear maps of one dimension: windows averaged, sums, paddings, interpolations.

For ``y_o = sum_i M_oi x_i`` whose entries ``i`` are exchangeable, pairs of outputs need four numbers of
``M`` only: with ``S2 = sum M^2`` and row sums ``r``, column sums ``c``,

    same o:   S2 / n_o                  of C[same i]    and   (sum r^2 - S2) / n_o               of C[other i]
    other o:  (sum c^2 - S2) / n_o(n_o-1) of C[same i]  and   (total^2 - sum r^2 - sum c^2 + S2) / n_o(n_o-1).

The adjoint is the same with ``M`` transposed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anyinit._core.tables import Factor, Layout, Table, build, conform, lift
from anyinit._graph.interpret import weights_of


@dataclass(frozen=True, slots=True)
class AxisMap:
    """What pairs need of a matrix ``(after, before)``: its total, squares of rows, columns and entries summed."""

    before: int
    after: int
    total: float
    rows: float
    columns: float
    squares: float

    @property
    def transposed(self) -> AxisMap:
        """The adjoint map."""
        return AxisMap(self.after, self.before, self.total, self.columns, self.rows, self.squares)

    @property
    def mean(self) -> float:
        """Mean sum of a row: what the map does to a mean."""
        return self.total / self.after

    def pairs(self) -> tuple[float, float, float, float]:
        """Coefficients ``(same <- same, same <- other, other <- same, other <- other)``."""
        n, m = self.after, max(self.after * (self.after - 1), 1)
        both = self.total**2 - self.rows - self.columns + self.squares
        return self.squares / n, (self.rows - self.squares) / n, (self.columns - self.squares) / m, both / m


def from_entries(
    at: NDArray[np.int64], of: NDArray[np.int64], value: NDArray[np.float64], after: int, before: int
) -> AxisMap:
    """A map from its entries ``M[at, of] += value``."""
    places, first = np.unique(at * before + of, return_inverse=True)
    merged = np.bincount(first.ravel(), weights=value, minlength=places.size)
    rows = np.bincount(at, weights=value, minlength=after)
    columns = np.bincount(of, weights=value, minlength=before)
    return AxisMap(
        before, after, float(value.sum()), float(rows @ rows), float(columns @ columns), float(merged @ merged)
    )


@lru_cache(maxsize=4096)
def windows(size: int, stride: int, pad: int, dilation: int, before: int, after: int, real_only: bool) -> AxisMap:
    """Average of windows; padding counts as zeros unless ``real_only``."""
    at = np.arange(after)[:, None] * stride + np.arange(size)[None] * dilation - pad
    ok = (at >= 0) & (at < before)
    share = np.broadcast_to(1.0 / (np.maximum(ok.sum(1, keepdims=True), 1) if real_only else size), ok.shape)
    o = np.broadcast_to(np.arange(after)[:, None], ok.shape)
    return from_entries(o[ok], at[ok], share[ok].astype(np.float64), after, before)


@lru_cache(maxsize=4096)
def padding(low: int, high: int, mode: str, before: int) -> AxisMap:
    """Entries of a padded dimension; constant padding is zero here."""
    name = {"constant": "edge", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    index = np.arange(before)[max(-low, 0) : before - max(-high, 0)]
    wide = np.pad(index, (max(low, 0), max(high, 0)), mode=name)  # type: ignore[call-overload]
    o = np.arange(wide.size)
    if mode == "constant":
        inside = (o >= max(low, 0)) & (o < wide.size - max(high, 0))
        o, wide = o[inside], wide[inside]
    return from_entries(o, wide, np.ones(o.size), before + low + high, before)


@lru_cache(maxsize=1024)
def running(n: int) -> AxisMap:
    """Running sum of ``n`` entries."""
    t = np.arange(1.0, n + 1)
    return AxisMap(n, n, float(t.sum()), float(t @ t), float(t @ t), float(t.sum()))


def alone(layout: Layout, table: Table, dim: int) -> tuple[Layout, Table, int]:
    """The table with one dimension as a single factor in a group of its own, and that group's bit."""
    factors = layout.dims[dim]
    if not factors:
        return layout, table, 0
    mine = {g for _, g in factors}
    if len(factors) > 1 or any(g in mine for d, f in enumerate(layout.dims) if d != dim for _, g in f):
        dims: list[list[Factor]] = [list(f) for f in layout.dims]
        dims[dim] = [(layout.shape[dim], "alone")]
        fresh, _ = build(dims)
        layout, table = fresh, conform(layout, table, fresh)
    return layout, table, 1 << layout.dims[dim][0][1]


def mapped(layout: Layout, table: Table, dim: int, by: AxisMap, paired: bool = False) -> tuple[Layout, Table]:
    """Layout and second-moment table after the map of one dimension; ``paired`` leaves out the terms of two
    different entries."""
    a, b, c, d = by.pairs()
    return by_pairs(layout, table, dim, by.after, (a, 0.0, c, 0.0) if paired else (a, b, c, d))


def by_pairs(
    layout: Layout, table: Table, dim: int, size: int, weights: tuple[float, float, float, float]
) -> tuple[Layout, Table]:
    """One dimension replaced by ``size`` entries; the weights are those of :meth:`AxisMap.pairs`."""
    layout, table, bit = alone(layout, table, dim)
    dims: list[list[Factor]] = [list(f) for f in layout.dims]
    dims[dim] = [(size, "mapped")] if size > 1 else []
    after, keys = build(dims)
    touches: dict[Hashable, int] = {g: 1 << g for g in range(layout.groups)}
    masks = lift(after, keys, touches | {"mapped": bit})
    new = 1 << keys.index("mapped") if "mapped" in keys else 0
    same, apart = table[masks & ~bit], table[masks | bit]
    a, b, c, d = weights
    moved = (np.arange(masks.size) & new) != 0
    return after, np.where(moved, c * same + d * apart, a * same + b * apart)


@lru_cache(maxsize=1024)
def interpolation(kind: str, before: int, after: int) -> AxisMap:
    """Resampling of a dimension with half-pixel centres."""
    matrix = weights_of(kind, before, after)
    o, i = np.nonzero(matrix)
    return from_entries(o, i, matrix[o, i], after, before)

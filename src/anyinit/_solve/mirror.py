"""Mirrored weights and what they make of a field: sign pairs along an axis."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from anyinit._core.field import GRID, WEIGHT, Nodes, Signal, expect, gaussian
from anyinit._core.tables import Factor, Table, build
from anyinit._graph.ops import Contract, Window


def level_slope(nodes: Nodes) -> float:
    """Level slope on a unit field: ``c_2(f^2) / (sqrt 2 E f^2)``, one when homogeneous of degree one."""
    square = nodes * nodes
    return float(WEIGHT @ (square * (GRID**2 - 1))) / (2 * expect(square))


def sign_table(keys: list[Hashable], signs: set[str]) -> Table:
    """Table of a field whose entries are equal, opposite (along sign axes alone) or independent."""
    table = np.ones(1)
    for k in keys:
        table = np.concatenate([table, -table if k in signs else 0 * table])
    return table


def mirrored_signal(layout_shape: tuple[int, ...], out: int | None, into: int | None, std: float, key: int) -> Signal:
    """A mirrored weight as its contraction sees it: sign axes on the output and input dimensions."""
    dims: list[list[Factor]] = [[(n, "w")] for n in layout_shape]
    for d, name in ((out, "rows"), (into, "cols")):
        if d is not None:
            dims[d] = [(2, name), (layout_shape[d] // 2, "w")]
    layout, keys = build(dims)
    return gaussian(layout, 0.0, std * std * sign_table(keys, {"rows", "cols"}), key)


def centred(op: Contract) -> Contract:
    """The contraction that a kernel with only its centre tap performs."""
    windows = tuple(
        Window(
            w.a,
            w.tap,
            w.out,
            1,
            w.stride,
            1,
            w.pad_low - w.dilation * (w.size // 2),
            w.pad_high - w.dilation * (w.size // 2),
            w.spread,
        )
        for w in op.windows
    )
    return replace(op, windows=windows)

"""The forward walk: signals of every value, in execution order."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anyinit._core.field import Signal, constant, expect, gaussian, measured
from anyinit._core.tables import separate, single
from anyinit._graph.graph import BOOL, FLOAT, INT, Graph, Leaf, Node
from anyinit._graph.ops import Contract, Op, Pointwise, Random
from anyinit._rules import FORWARD
from anyinit._rules.base import Site
from anyinit._rules.contract import taps
from anyinit._rules.pointwise import as_source

Z95 = 1.6448536269514722
THEORY = 0.005  # standard error of a predicted log level, added to the noise of the draw
BORDER, BORDER_ERROR = -1, 0.10  # noise source and size of what padding hides: border and centre differ
SILENT = 1e-12  # second moment of an input below which it says nothing about scale


@dataclass
class Walk:
    """State of one forward walk.

    signals: by value id. variance: relative variance of the level contributed by each noise source.
    ops: operations that a draw changes (a kernel with one tap), by output. paired: contractions whose
    weight sees its input's sign pairs only as differences. param: gives the signal of a parameter leaf.
    """

    graph: Graph
    param: Callable[[int, Leaf], Signal]
    inputs: Mapping[str, NDArray[np.generic]] = field(default_factory=dict[str, NDArray[np.generic]])
    signals: MutableMapping[int, Signal] = field(default_factory=dict[int, Signal])
    variance: dict[int, float] = field(default_factory=dict[int, float])
    ops: dict[int, Op] = field(default_factory=dict[int, Op])
    paired: set[int] = field(default_factory=set[int])
    silent: list[str] = field(default_factory=list[str])

    def leaves(self) -> None:
        """Signals of everything no node produces."""
        for i, leaf in self.graph.leaves.items():
            if i not in self.signals:
                self.signals[i] = as_source(self.leaf(i, leaf), i)

    def leaf(self, i: int, leaf: Leaf) -> Signal:
        """Signal of one leaf: measured where its data is known, else a unit normal."""
        value = self.graph.values[i]
        if leaf.role == "param":
            return self.param(i, leaf)
        data = self.inputs.get(leaf.name, leaf.data)
        if data is not None and not (leaf.role == "input" and value.kind == FLOAT and self._silent(leaf, data)):
            return measured(data, i)
        layout = separate(value.shape)
        if value.kind in {INT, BOOL}:
            return constant(layout, 0.0).but(plug=None)
        cov = np.zeros(1 << layout.groups)
        cov[0] = 1.0
        return gaussian(layout, 0.0, cov, i)

    def _silent(self, leaf: Leaf, data: NDArray[np.generic]) -> bool:
        """Whether an input carries no signal to scale by."""
        level = float(np.mean(np.square(np.abs(data).astype(np.float64))))
        if level >= SILENT:
            return False
        self.silent.append(
            f"{leaf.name}: the batch is zero or close to it (second moment {level:.3g}); "
            "a unit normal input was assumed"
        )
        return True

    @contextmanager
    def aside(self) -> Generator[None]:
        """Signals kept inside are forgotten afterwards; it costs what is kept, not what the walk holds."""
        outer = self.signals
        self.signals = ChainMap({}, outer)
        try:
            yield
        finally:
            self.signals = outer

    def step(self, node: Node) -> Signal:
        """Apply one node's rule and keep its signal."""
        xs = tuple(self.signals[i] for i in node.inputs)
        value = self.graph.values[node.output]
        op = self.ops.get(node.output, node.op)
        out = FORWARD[type(op)](op, xs, Site(node.output, value.shape, value.kind, node.inputs))
        if isinstance(node.op, Contract):
            out = self._inherit(node, out)
        if not isinstance(node.op, Pointwise) or not out.sources:
            out = as_source(out, node.output)
        self.signals[node.output] = out
        return out

    def _inherit(self, node: Node, out: Signal) -> Signal:
        """A contraction turns its operands' own fluctuation into level noise of its output."""
        noise = dict(out.noise)
        for i in node.inputs:
            x = self.signals[i]
            if (
                node.output in self.paired
                and x.nodes.ndim == 1
                and i not in self.graph.leaves
                and x.m2 > 0
                and float(x.corr[0].min()) < -0.99
            ):
                seen = differences(x)
                for k in {*x.noise, *seen.noise}:
                    noise[k] = noise.get(k, 0.0) + seen.noise.get(k, 0.0) - x.noise.get(k, 0.0)
                x = seen
            if i not in self.variance:
                self.variance[i] = 0.0 if self.fixed(i) else x.fluctuation()
            if self.variance[i] > 0:
                noise[i] = noise.get(i, 0.0) + 1.0
        border = self._border(node)
        if border > 0:
            self.variance[BORDER] = 1.0
            noise[BORDER] = noise.get(BORDER, 0.0) + BORDER_ERROR * border
        return out.but(noise=noise)

    def _border(self, node: Node) -> float:
        """Share of a convolution's taps that fall on padding."""
        op = self.ops.get(node.output, node.op)
        if not isinstance(op, Contract) or not op.windows:
            return 0.0
        shapes = self.graph.values[node.inputs[0]].shape, self.graph.values[node.output].shape
        inside = 1.0
        for w in op.windows:
            n_in, n_out = shapes[0][op.a.index(w.a)], shapes[1][op.out.index(w.out)]
            inside *= min(taps(w, n_in, n_out, "out").same * w.spread / w.size, 1.0)
        return 1.0 - inside

    def fixed(self, i: int) -> bool:
        """Whether a value has no level of its own to fluctuate: data, a parameter (a draw's own part), or what is
        made of these alone without the input."""
        return i in self.graph.leaves or i in self._settled

    @cached_property
    def _settled(self) -> frozenset[int]:
        """Values made of parameters, buffers and constants alone."""
        settled = {i for i, leaf in self.graph.leaves.items() if leaf.role != "input"}
        for node in self.graph.nodes:
            if not isinstance(node.op, Random) and all(i in settled for i in node.inputs):
                settled.add(node.output)
        return frozenset(settled)

    def spread(self, signal: Signal) -> float:
        """Variance over draws of the log second moment of one value."""
        inherited = sum(v * v * self.variance.get(k, 0.0) for k, v in signal.noise.items())
        return math.log1p(max(signal.fluctuation() + inherited, 0.0)) + THEORY**2

    def band(self, signal: Signal) -> tuple[float, float]:
        """5 and 95 % quantiles of the second moment of one draw, log-normal around the mean."""
        s2 = self.spread(signal)
        if signal.m2 <= 0:
            return 0.0, 0.0
        s = math.sqrt(s2)
        middle = math.log(signal.m2) - s2 / 2
        return math.exp(middle - Z95 * s), math.exp(middle + Z95 * s)


def differences(x: Signal) -> Signal:
    """Half the difference of an activation's sign pairs, as a field of its own: what a mirrored weight sees."""
    nodes = 0.5 * (x.nodes - x.nodes[::-1])
    level = expect(nodes * nodes)
    if level <= 0:
        return x
    noise: dict[int, float] = {}
    for s in x.sources.values():
        if s.deriv.ndim != 1 or s.nodes.ndim != 1:
            continue
        chi = expect(nodes * 0.5 * (s.deriv + s.deriv[::-1]) * s.nodes) / level
        for k, v in s.noise.items():
            noise[k] = noise.get(k, 0.0) + chi * v
    return x.but(nodes=nodes, noise=noise)


def iid(shape: tuple[int, ...], std: float, key: int) -> Signal:
    """Independent zero-mean entries, as drawn."""
    layout = single(shape)
    cov = np.zeros(1 << layout.groups)
    cov[0] = std * std
    return gaussian(layout, 0.0, cov, key)

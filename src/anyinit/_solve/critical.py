"""``target="critical"``: every layer of an un-normalized path on the edge of chaos.

Before an activation ``f`` of level ``q``, ``sigma_w^2 = 1 / E f'(sqrt(q) z)^2`` keeps gradients and the distances of
nearby inputs (``chi_1 = 1``), and ``sigma_b^2 = q - sigma_w^2 E f(sqrt(q) z)^2`` makes ``q`` a fixed point of the level
(Poole et al. 2016, Schoenholz et al. 2017). With ``x = q E f'^2 / E f^2`` biases then carry the share ``1 - 1/x`` of
the level, and the level map has slope ``chi / x``: the point exists where ``x >= 1`` and attracts where ``chi <= x``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import root_scalar

from anyinit._core.field import GRID, Signal, expect
from anyinit._graph.graph import Graph, Node
from anyinit._solve.levels import Levels, scaled
from anyinit._solve.policy import Policy, Style
from anyinit._solve.propagate import iid
from anyinit._solve.regions import Region
from anyinit.errors import ConfigError

STEPS = 25  # levels tried per factor of ten
HIGHEST = 100.0  # largest level tried at the activation's argument
FAR = 6.0  # standard deviations beyond which a level is not told from a draw of any size
FREE = 1e-9  # relative amount by which the two conditions may be missed: homogeneous functions meet both with equality


@dataclass
class Critical:
    """Styles of a network on the edge of chaos."""

    graph: Graph
    levels: Levels
    policy: Policy
    depth: dict[int, int]

    def style(self, leaf: int, node: Node, place: Region, z: Signal) -> Style:
        """The critical level and share of biases before the activation behind a weight; no wish where none follows,
        on a residual branch, and where a normalization leaves no depth to care for.

        Raises:
            ConfigError: the activation has no critical point that attracts, or biases are needed and there are none.
        """
        deep = self.depth[node.output]
        if not place.curved or deep < 2 or place.end in self.levels.streams.by_branch or z.m2 <= 0:
            return Style()
        z = iid(self.graph.values[node.output].shape, 1.0, node.output)  # Gaussian: the theory's infinite width
        unit = self.levels.before(z, node, place, 1.0)  # for unit second moment at the function's argument
        rate = unit * unit
        words, name = " ".join(place.words), self.graph.leaves[leaf].name
        level = self._level(scaled(z, unit), node, place, deep)
        if level is None:
            raise ConfigError(
                f"{words} has no critical point that attracts", value=name,
                remedy="Where chi_1 = 1 levels drift away or no bias variance holds them; use target='auto' or 'unit'.",
            )  # fmt: skip
        chi, x = self._slopes(scaled(z, unit * math.sqrt(level)), node, place) or (1.0, 1.0)
        share = max(1 - 1 / x, 0.0) if x > 1 + 1e-6 else 0.0
        if share > 0 and self.policy.bias_leaf(place) is None:
            raise ConfigError(
                f"The critical point of {words} at level {level:.3g} needs biases with {share:.2g} of it",
                value=f"{name} has no bias that may be drawn",
                remedy="Give the layer a bias, or use target='auto'.",
            )
        why = f"critical: chi_1 = 1 at level {level:.3g} before {words}, where the level map has slope {chi / x:.3g}"
        return Style(level=level * rate, bias=share, why=why)

    def _level(self, z: Signal, node: Node, place: Region, deep: int) -> float | None:
        """The least level from ``1 / depth`` at which both conditions hold (any, for homogeneous functions: one)."""

        def margin(log_q: float) -> float:
            found = self._slopes(scaled(z, math.exp(log_q / 2)), node, place)
            return -1.0 if found is None else min(found[1] - 1, found[1] - found[0])

        if abs(margin(0.0)) < FREE and abs(margin(-1.0)) < FREE:
            return 1.0
        low, high = -math.log(max(deep, 2)), math.log(HIGHEST)
        count = math.ceil((high - low) / math.log(10) * STEPS)
        before = low
        for k in range(count + 1):
            here = low + (high - low) * k / count
            if margin(here) >= -FREE:
                exact = here if k == 0 else root_scalar(margin, bracket=(before, here), xtol=1e-12).root
                return math.exp(exact)
            before = here
        return None

    def _slopes(self, z: Signal, node: Node, place: Region) -> tuple[float, float] | None:
        """``d log E f^2 / d log q`` and ``q E f'^2 / E f^2`` for the output ``z`` of a weight."""
        with np.errstate(over="ignore", invalid="ignore"):
            end = self.levels.replay(z, node.output, place)
            source = end.sources.get(node.output)
            if source is None or end.nodes.ndim != 1 or not 0 < end.m2 < math.inf:
                return None
            if expect(np.where(np.abs(GRID) > FAR, end.nodes, 0.0) ** 2) > FREE**0.5 * end.m2:
                return None  # decided by arguments that hardly occur
            chi = expect(end.nodes * source.deriv * source.nodes) / end.m2
            return chi, expect(source.deriv**2) * z.m2 / end.m2

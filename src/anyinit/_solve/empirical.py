"""Empirical mode: levels set by what the caller's batches measure, in graph order, in bounded memory.

One batch at a time is in memory. The first is run with every layer settled before the next, as a correction does; all
others then say by how much a level of the whole differs from its level on the first batch, and the first is run again
with goals moved by that. The differences hardly depend on the scales, so two or three rounds settle every level.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anyinit._graph.graph import Graph
from anyinit._graph.rewrite import canonical
from anyinit._graph.runtime import Array, Runtime
from anyinit._solve import correct
from anyinit._solve.analytic import Decision, Solver
from anyinit._solve.apply import rematerialize
from anyinit._solve.correct import Measurement
from anyinit._solve.plan import Plan
from anyinit.errors import ConfigError, TraceError

CLOSE = 0.004  # relative error of a level at which it counts as settled
ROUNDS = 10
FAINT = 1e-3  # a constant input below this says nothing of a scale
QUIET, EVERY = 10.0, 5.0  # seconds before the first line of progress and between lines
Progress = Callable[[int, int, str], None]


@dataclass
class Lines:
    """Progress for callers who asked for none: nothing for ``QUIET`` seconds, then a line now and then."""

    clock: Callable[[], float] = time.monotonic
    start: float = field(init=False)
    last: float = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.last = self.clock()

    def __call__(self, done: int, total: int, name: str) -> None:
        """Note that ``done`` of ``total`` layers are settled."""
        now = self.clock()
        if now - self.start >= QUIET and now - self.last >= EVERY:
            self.last = now
            print(f"anyinit: measured {done} of {total} layers, {now - self.start:.0f} s: {name}", file=sys.stderr)


def opened(
    graph: Graph, first: Runtime, batches: Iterable[Any], opening: Callable[[Any], Runtime]
) -> Iterator[Runtime]:
    """One runtime after the other, on the batches of a source; ``first`` and ``graph`` are of its first batch.

    Raises:
        TraceError: the model does something else on another batch.
    """
    kinds = [type(node.op) for node in graph.nodes]
    for at, batch in enumerate(batches):
        runtime = first if at == 0 else opening(batch)
        if at and [type(node.op) for node in canonical(runtime.record()).nodes] != kinds:
            remedy = "Pass batches on which the model takes one path, or fewer of them."
            raise TraceError("A batch takes another path through the model", value=f"batch {at}", remedy=remedy)
        yield runtime


def settle(
    solver: Solver, plan: Plan, weights: Mapping[str, Array], first: Runtime,
    others: Callable[[], Iterator[Runtime]] | None = None, progress: Progress | None = None,
) -> tuple[Plan, Mapping[str, Array]]:  # fmt: skip
    """The plan with factors that set every level, and the weights.

    others: opens the batches one after the other, the first among them; ``None`` where there is only one.

    Raises:
        ConfigError: the input, or the output of every weight on it, is zero: there is nothing to measure.
    """
    numbers = [x for x in first.inputs_used().values() if x.dtype.kind in "fc"]
    if numbers and not any(np.any(x) for x in numbers):
        raise _nothing("the input is all zero", f"{len(numbers)} arrays")
    if numbers and all(np.ptp(x) == 0 and abs(complex(x.flat[0])) < FAINT for x in numbers if x.size):
        raise _nothing("the input is one small number everywhere", f"{numbers[0].flat[0]:.3g}")
    progress = progress or Lines()
    chosen = {d.leaf for d in correct.placed(solver)}
    aim, slopes = dict[int, float](), _Slopes()
    best: tuple[float, Plan, Mapping[str, Array]] | None = None
    for _ in range(ROUNDS):
        found = correct.run(solver, first, weights, chosen, exact=True, progress=progress, aim=aim)
        if chosen and not any(level > 0 for level in found.output.values()):
            raise _nothing("the output of every weight is zero on this input", f"{len(chosen)} weights")
        settled = correct.record(plan, solver, found, corrected=True)
        now = rematerialize(plan, weights, settled, first.read)
        if others is not None:
            found = _over(solver, others(), now, found, progress)
            settled = correct.record(plan, solver, found, corrected=True)
        off = {d.leaf: gap for d in correct.placed(solver) if (gap := _gap(solver, d, found)) is not None}
        worst = max(map(abs, off.values()), default=0.0)
        if best is None or worst < best[0]:
            best = worst, _noted(settled, solver, off), now
        if worst < CLOSE:
            break
        for leaf, gap in off.items():
            if abs(gap) > CLOSE / 4:
                step = -gap / slopes.of(leaf, math.log(aim.get(leaf, 1.0)), gap)
                aim[leaf] = aim.get(leaf, 1.0) * math.exp(max(min(step, 2.0), -2.0))
    assert best is not None
    return best[1], best[2]


def _nothing(why: str, value: str) -> ConfigError:
    remedy = "Pass a batch of real samples, or use mode='analytic'."
    return ConfigError(f"Nothing can be measured: {why}", value=value, remedy=remedy)


@dataclass
class _Slopes:
    """By how much a level moves with its goal: one at first, then as seen (secant)."""

    before: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])

    def of(self, leaf: int, at: float, gap: float) -> float:
        """The slope between the last point and this one, within bounds."""
        last = self.before.get(leaf)
        self.before[leaf] = at, gap
        if last is None or abs(at - last[0]) < 1e-4:
            return 1.0
        return min(max((gap - last[1]) / (at - last[0]), 0.3), 4.0)


def _gap(solver: Solver, d: Decision, found: Measurement) -> float | None:
    """Log of the measured level over the wanted one; ``None`` where no level was asked for or none can be had."""
    assert d.region is not None
    fixed = d.style.std is not None or "std" in solver.override(solver.graph.leaves[d.leaf].name)
    if fixed or d.leaf not in found.factor:
        return None
    level, want = found.end.get(d.leaf), d.target
    if want is None or level is None:
        level, want = found.output.get(d.leaf), solver.walk.signals[d.region.output].m2
    if level is None or not 0 < level < math.inf or want <= 0:
        return None
    return math.log(level / want)


def _over(
    solver: Solver, batches: Iterator[Runtime], weights: Mapping[str, Array], first: Measurement, progress: Progress
) -> Measurement:
    """Levels over all batches, each with the weight of its size; factors stay those of the first."""
    whole = replace(first, output={}, end={}, dead=dict(first.dead))
    total = 0.0
    for count, runtime in enumerate(batches):
        seen = correct.run(solver, runtime, weights, set())
        size = float(sum(x.size for x in runtime.inputs_used().values())) or 1.0
        total += size
        for levels, new in ((whole.output, seen.output), (whole.end, seen.end)):
            for leaf, level in new.items():
                levels[leaf] = levels.get(leaf, 0.0) + level * size
        for leaf, share in whole.dead.items():
            whole.dead[leaf] = min(share, seen.dead.get(leaf, 0.0))
        progress(len(seen.output), len(seen.output), f"batch {count + 1}")
    for levels in (whole.output, whole.end):
        levels.update({leaf: level / total for leaf, level in levels.items()})
    return whole


def _noted(plan: Plan, solver: Solver, off: Mapping[int, float]) -> Plan:
    """The plan with a warning for each level that could not be set."""
    missed = [(solver.graph.leaves[leaf].name, gap) for leaf, gap in off.items() if abs(gap) > 0.01]
    texts = [f"{name}: measured level is {math.exp(gap):.3g} times the wanted one" for name, gap in missed]
    return replace(plan, warnings=(*plan.warnings, *texts))

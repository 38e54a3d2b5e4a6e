"""Second-moment tables over axis groups: the part of a value's statistics that is about pairs.

A value's dimensions are lists of factors; each factor belongs to a *group* of axes that have not
been told apart so far. For every set ``S`` of groups the table holds ``C[S] = E[x_i x_j]`` for two
entries whose indices differ exactly in the groups of ``S`` (a bit mask, so a table is a flat array
of ``2**G`` numbers). ``C[0]`` is the second moment, ``C[batch]`` the covariance of two samples and
so on; the random-effects components of the same structure are its Moebius transform.

Reshapes only refine or regroup factors and lose nothing; a group is split when an operation first
treats its factors differently, which is exact because they were exchangeable until then.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
Masks = NDArray[np.int64]
Factor = tuple[int, Hashable]


@dataclass(frozen=True)
class Layout:
    """Dimensions as factors ``(size, group)`` with ``size > 1``; groups are numbered from 0."""

    dims: tuple[tuple[tuple[int, int], ...], ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return tuple(math.prod(n for n, _ in dim) for dim in self.dims)

    @cached_property
    def groups(self) -> int:
        """Number of groups."""
        return 1 + max((g for dim in self.dims for _, g in dim), default=-1)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of index values of each group."""
        sizes = [1] * self.groups
        for dim in self.dims:
            for n, g in dim:
                sizes[g] *= n
        return tuple(sizes)

    @cached_property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @cached_property
    def pairs(self) -> Table:
        """Probability of each mask for two entries drawn uniformly and independently."""
        return _pairs(self.sizes)

    @cached_property
    def keyed(self) -> tuple[tuple[Factor, ...], ...]:
        """The dims, typed as keyed factors."""
        return self.dims


@lru_cache(maxsize=4096)
def _pairs(sizes: tuple[int, ...]) -> Table:
    p = np.ones(1)
    for n in sizes:
        p = np.concatenate([p / n, p * (1 - 1 / n)])
    p.setflags(write=False)
    return p


@lru_cache(maxsize=65536)
def _lift(bits: tuple[int, ...]) -> Masks:
    """Mask over new groups -> mask over old ones; ``bits[j]`` is what new group ``j`` touches."""
    out = np.zeros(1, dtype=np.int64)
    for b in bits:
        out = np.concatenate([out, out | b])
    out.setflags(write=False)
    return out


def separate(shape: Sequence[int]) -> Layout:
    """One group for every dimension larger than one."""
    g = 0
    dims: list[tuple[tuple[int, int], ...]] = []
    for n in shape:
        dims.append(((n, g),) if n > 1 else ())
        g += n > 1
    return Layout(tuple(dims))


def single(shape: Sequence[int]) -> Layout:
    """All dimensions in one group: entries differ or they do not."""
    return Layout(tuple(((n, 0),) if n > 1 else () for n in shape))


def build(dims: Iterable[Iterable[Factor]]) -> tuple[Layout, list[Hashable]]:
    """Number the group keys in order of appearance; returns the layout and the keys by number.

    Neighbouring factors of one group in one dimension are joined.
    """
    numbers: dict[Hashable, int] = {}
    out: list[tuple[tuple[int, int], ...]] = []
    for dim in dims:
        factors: list[tuple[int, int]] = []
        for n, key in dim:
            if n <= 1:
                continue
            g = numbers.setdefault(key, len(numbers))
            if factors and factors[-1][1] == g:
                factors[-1] = (factors[-1][0] * n, g)
            else:
                factors.append((n, g))
        out.append(tuple(factors))
    return Layout(tuple(out)), list(numbers)


def lift(layout: Layout, keys: Sequence[Hashable], touches: dict[Hashable, int]) -> Masks:
    """For every mask over ``layout``'s groups, the old mask given what each key touches."""
    return _lift(tuple(touches.get(k, 0) for k in keys)) if layout.groups else _lift(())


def refine(lists: Sequence[Sequence[tuple[int, int]]]) -> list[tuple[int, list[int]]] | None:
    """Common refinement of factor lists with equal products: ``[(size, [group in each list])]``.

    None when sizes do not divide (then the dimension must be taken as one factor).
    """
    work = [list(fs) for fs in lists]
    out: list[tuple[int, list[int]]] = []
    while any(work):
        if not all(work):
            return None
        # factors are consumed from the right, the fastest axis first
        step = math.gcd(*(fs[-1][0] for fs in work))
        if step == 1:
            return None
        out.append((step, [fs[-1][1] for fs in work]))
        for fs in work:
            n, g = fs.pop()
            if n > step:
                fs.append((n // step, g))
    return out[::-1]


def align(layouts: Sequence[Layout], shape: Sequence[int]) -> tuple[Layout, list[Masks]]:
    """Broadcast layouts (right-aligned) to ``shape``: the common layout and, for each operand, the
    map from its masks to the operand's (a group the operand lacks is broadcast: it touches none)."""
    layout, maps = _align(tuple(layouts), tuple(shape))
    return layout, list(maps)


@lru_cache(maxsize=16384)
def _align(layouts: tuple[Layout, ...], shape: tuple[int, ...]) -> tuple[Layout, tuple[Masks, ...]]:
    rank = len(shape)
    dims: list[list[Factor]] = []
    touches: list[dict[Hashable, int]] = [{} for _ in layouts]
    for d in range(rank):
        present: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        for i, lay in enumerate(layouts):
            at = d - rank + len(lay.dims)
            if at >= 0 and lay.dims[at]:
                present.append((i, lay.dims[at]))
        if not present:
            dims.append([(shape[d], ("new", d))])
            continue
        refined = refine([fs for _, fs in present])
        if refined is None:
            key: list[Hashable] = ["whole", d]
            for i, fs in present:
                bits = 0
                for _, g in fs:
                    bits |= 1 << g
                touches[i][("whole", d)] = bits
            dims.append([(shape[d], tuple(key))])
            continue
        factors: list[Factor] = []
        for n, groups in refined:
            k = tuple((i, g) for (i, _), g in zip(present, groups, strict=True))
            for i, g in k:
                touches[i][k] = 1 << g
            factors.append((n, k))
        dims.append(factors)
    layout, keys = build(dims)
    return layout, tuple(lift(layout, keys, t) for t in touches)


def collapse(fine: Layout, table: Table, masks: Masks, groups: int) -> Table:
    """Average of a fine table over all pairs that look alike through ``masks`` (onto ``groups``)."""
    p = fine.pairs
    count = 1 << groups
    weight = np.bincount(masks, weights=p, minlength=count)
    total = np.bincount(masks, weights=p * table, minlength=count)
    return np.divide(total, weight, out=np.full(count, table[0]), where=weight > 0)


def conform(source: Layout, table: Table, target: Layout) -> Table:
    """A table over ``source`` re-expressed over ``target``; both have the same shape."""
    if source.dims == target.dims:
        return table
    fine, (a, b) = align([source, target], target.shape)
    return collapse(fine, table[a], b, target.groups)


def gather_down(source: Layout, table: Table, target: Layout) -> Table:
    """Table of the sum over everything ``target`` broadcasts along (the adjoint of broadcasting)."""
    fine, (a, b) = align([source, target], source.shape)
    times = source.size / max(target.size, 1)
    return collapse(fine, table[a], b, target.groups) * times * times


def simplify(
    layout: Layout, tables: Sequence[Table], limit: int = 7, tolerance: float = 1e-9
) -> tuple[Layout, list[Table]]:
    """Merge groups that the tables do not tell apart; above ``limit`` groups merge the closest."""
    out = list(tables)
    while layout.groups > 1:
        best, pair = math.inf, (0, 0)
        for a in range(layout.groups):
            for b in range(a + 1, layout.groups):
                gap = max((_gap(t, a, b) for t in out), default=0.0)
                if gap < best:
                    best, pair = gap, (a, b)
        if best > tolerance and layout.groups <= limit:
            break
        layout, out = _merge(layout, out, *pair)
    return layout, out


def _gap(table: Table, a: int, b: int) -> float:
    masks = np.arange(table.size)
    bit_a, bit_b = 1 << a, 1 << b
    none = masks[(masks & (bit_a | bit_b)) == 0]
    x, y, z = table[none | bit_a], table[none | bit_b], table[none | bit_a | bit_b]
    scale = abs(table[0]) + 1e-300
    return float(max(np.max(np.abs(x - z)), np.max(np.abs(y - z))) / scale)


def _merge(layout: Layout, tables: Sequence[Table], a: int, b: int) -> tuple[Layout, list[Table]]:
    merged, keys = build([[(n, a if g == b else g) for n, g in dim] for dim in layout.dims])
    old = {g: i for i, g in enumerate(keys)}
    bits = tuple(1 << old[a if g == b else g] for g in range(layout.groups))
    return merged, [collapse(layout, t, _lift(bits), merged.groups) for t in tables]

"""Keyed draws: the one place that says how a weight's numbers follow from a seed.

**How a draw is keyed.** A draw belongs to ``(seed, key, part)``: the seed of the plan, the position of
the weight in the canonical graph, and a label for whoever cuts a weight further (in a plan every
part of a packed weight has its own key and no label, so packed and separate weights are drawn
alike). Their text ``"<seed>/<key>/<part>"`` is hashed (BLAKE2b, 16 bytes, person ``anyinit draw``) into
the key of a Philox generator. The values stand in canonical order, group by group, row (output) by
row, real before imaginary part, and are cut into blocks of :data:`BLOCK`; block ``b`` starts that generator
at counter ``b * 2**64`` and depends on nothing else. So any thread or shard makes exactly its own
values; no framework, device or thread count can change them, and neither the scale nor the
caller's random state enters. A mirrored weight keys its independent quarter or half. A group of
an orthogonal draw takes the normal values at its place as vectors of its longer side.

**What is promised.** The same bytes for any number of threads, always. Across CPUs, math libraries and
BLAS too: ``constant``, ``uniform`` and real ``orthogonal`` in every type, ``normal`` and
``truncated_normal`` in float32 and complex64 (integers, a fixed table, exact products, correctly
rounded operations). The two normal laws in float64 and complex128 take logarithms from the math
library, and a unitary draw multiplies complex
numbers: these may differ in the last bit between CPU types.

**Resolution.** float32 values take 16 random bits each: 65,536 levels, normal tails to 4.3 standard
deviations, moments 2, 4 and 6 those of the law by construction of the table. float64 values take
52 bits and a sign. An orthogonal draw is computed in float64 and rounded once.
"""

from __future__ import annotations

import hashlib
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit._core.haar import from_grid, odd
from anyinit.errors import ConfigError

BLOCK = 2**16
"""Real values per block (2**15 complex ones)."""
LEVELS = 2**16
CUT = 2.0
"""Where ``truncated_normal`` is cut, in standard deviations of the normal before the cut."""
DISTRIBUTIONS = ("normal", "truncated_normal", "uniform", "orthogonal", "constant")
MIRRORS = ("", "rows", "cols", "both")

Array = NDArray[Any]
Shape = tuple[int, int, int]
_REAL = {"float32": "float32", "float64": "float64", "complex64": "float32", "complex128": "float64"}


def draw(
    seed: int,
    key: int,
    part: str = "",
    shape: Shape = (1, 1, 1),
    distribution: str = "normal",
    std: float = 1.0,
    dtype: str = "float32",
    mirrored: str = "",
    mean: float = 0.0,
    threads: int | None = None,
) -> Array:
    """One part of one weight in canonical layout.

    Args:
        seed: non-negative integer.
        key: position of the weight in the canonical graph.
        part: label of the part.
        shape: ``(groups, n_out, n_in)``.
        distribution: one of :data:`DISTRIBUTIONS`. ``truncated_normal`` is cut at :data:`CUT` and ``std`` is
            what is left after the cut. ``orthogonal`` is Haar in every group, orthonormal along
            the shorter side, times ``std * sqrt(max(n_out, n_in))``, so that the entries' root mean
            square is ``std``. ``constant`` is ``mean`` everywhere.
        std: standard deviation of the entries, of their modulus if complex (real and imaginary
            part independent).
        dtype: ``float32``, ``float64``, ``complex64`` or ``complex128``.
        mirrored: ``"rows"`` gives ``[B; -B]``, ``"cols"`` ``[A, -A]``, ``"both"`` ``[[A, -A], [-A, A]]``; an odd row or
            column comes last and is independent. ``A`` and ``B`` follow ``distribution``; orthogonal
            ones make a net whose activations have a linear odd part an isometry (Balduzzi
            et al. 2017, "looks linear").
        mean: added to every entry (its real part).
        threads: worker threads, all available CPUs by default; the bytes do not depend on it.

    Returns:
        A new C-contiguous array of ``shape`` and ``dtype``.

    Raises:
        ConfigError: an argument is unknown or out of range.
    """
    _check(seed, shape, distribution, std, dtype, mirrored, mean)
    if distribution == "constant" or not (std and math.prod(shape)):
        return np.full(shape, mean, dtype)
    base = base_shape(shape, mirrored)
    shift = 0.0 if mirrored else mean
    if distribution == "orthogonal":
        values = _orthogonal(seed, key, part, 0, base, std, dtype, shift, threads)
    else:
        values = np.empty(base, dtype)
        _fill(_stream(seed, key, part, distribution, std, dtype, shift, values.size), values, 0, threads)
    if not mirrored:
        return values
    values = _mirror(values, shape, mirrored)
    return values + np.asarray(mean, dtype) if mean else values


def draw_span(
    seed: int,
    key: int,
    part: str,
    start: int,
    stop: int,
    distribution: str = "normal",
    std: float = 1.0,
    dtype: str = "float32",
    mean: float = 0.0,
) -> Array:
    """Values ``start`` to ``stop`` of the raveled :func:`draw` (neither mirrored nor orthogonal), flat."""
    _check(seed, (1, start, stop - start), distribution, std, dtype, "", mean)
    if distribution == "orthogonal":
        raise ConfigError("An orthogonal draw is made group by group", value=distribution, remedy="Use draw_group.")
    out = np.full(stop - start, mean, dtype)
    if distribution != "constant":
        _fill(_stream(seed, key, part, distribution, std, dtype, mean, out.size), out, start, 1)
    return out


def draw_block(
    seed: int,
    key: int,
    part: str,
    shape: Shape,
    block: int,
    distribution: str = "normal",
    std: float = 1.0,
    dtype: str = "float32",
    mean: float = 0.0,
) -> Array:
    """Block ``block`` of :func:`draw` (neither mirrored nor orthogonal), flat: the values ``block * n`` to
    ``(block + 1) * n`` of the raveled draw, ``n`` being :data:`BLOCK`, or half of it if complex."""
    per = BLOCK // 2 if dtype.startswith("complex") else BLOCK
    stop = min((block + 1) * per, math.prod(shape))
    if block < 0 or block * per >= stop:
        raise ConfigError("No such block", value=block, remedy=f"A draw of {shape} has {-(-math.prod(shape) // per)}.")
    return draw_span(seed, key, part, block * per, stop, distribution, std, dtype, mean)


def draw_group(
    seed: int, key: int, part: str, shape: Shape, group: int, std: float = 1.0, dtype: str = "float32"
) -> Array:
    """Group ``group`` of an orthogonal :func:`draw` (not mirrored): shape ``(n_out, n_in)``."""
    _check(seed, shape, "orthogonal", std, dtype, "", 0.0)
    if not 0 <= group < shape[0]:
        raise ConfigError("No such group", value=group, remedy=f"The draw has {shape[0]}.")
    start = group * shape[1] * shape[2]
    return _orthogonal(seed, key, part, start, (1, *shape[1:]), std, dtype, 0.0, 1)[0]


def base_shape(shape: Shape, mirrored: str) -> Shape:
    """Shape of the independent values behind a mirrored draw."""
    groups, rows, cols = shape
    rows = -(-rows // 2) if mirrored in ("rows", "both") else rows
    cols = -(-cols // 2) if mirrored in ("cols", "both") else cols
    return groups, rows, cols


def _check(seed: int, shape: Shape, distribution: str, std: float, dtype: str, mirrored: str, mean: float) -> None:
    for name, value, known in (
        ("distribution", distribution, DISTRIBUTIONS),
        ("dtype", dtype, tuple(_REAL)),
        ("mirrored mode", mirrored, MIRRORS),
    ):
        if value not in known:
            raise ConfigError(f"Unknown {name}", value=value, remedy=f"Use one of {', '.join(map(repr, known))}.")
    if seed < 0:
        raise ConfigError("A seed is negative", value=seed, remedy="Pass a non-negative integer.")
    if len(shape) != 3 or min(shape) < 0:
        raise ConfigError("Not a canonical shape", value=shape, remedy="Pass (groups, n_out, n_in).")
    if not (math.isfinite(std) and std >= 0 and math.isfinite(mean)):
        raise ConfigError("A scale is negative or not finite", value=(std, mean), remedy="Pass finite numbers.")


@dataclass(frozen=True, slots=True)
class _Stream:
    """The real numbers of one draw: Philox key, law, scale, shift of all and of real parts only;
    ``scaled`` is the finished table where making it pays."""

    words: NDArray[np.uint64]
    law: str
    scale: float
    shift: float
    real_shift: float
    coarse: bool
    scaled: NDArray[np.float32] | None

    def write(self, block: int, skip: int, target: Array) -> None:
        """Values of ``block`` after the first ``skip`` into ``target``."""
        count = skip + len(target)
        if self.scaled is not None:
            self.scaled.take(_bits16(self.words, block, count)[skip:], out=target, mode="clip")
        elif self.coarse:
            target[:] = self.scale * table(self.law)[_bits16(self.words, block, count)[skip:]] + self.shift
        else:
            target[:] = self.scale * _fine(self.law, _bits64(self.words, block, count)[skip:]) + self.shift
        if self.real_shift:
            target[::2] += self.real_shift


def _stream(seed: int, key: int, part: str, law: str, std: float, dtype: str, mean: float, size: int) -> _Stream:
    digest = hashlib.blake2b(f"{seed}/{key}/{part}".encode(), digest_size=16, person=b"anyinit draw").digest()
    words = np.frombuffer(digest, "<u8").astype(np.uint64)
    is_complex = dtype.startswith("complex")
    scale, shift, real_shift = (std / math.sqrt(2.0), 0.0, mean) if is_complex else (std, mean, 0.0)
    coarse = _REAL[dtype] == "float32"
    scaled = (scale * table(law) + shift).astype(np.float32) if coarse and size >= LEVELS // 2 else None
    return _Stream(words, law, scale, shift, real_shift, coarse, scaled)


def _fill(stream: _Stream, out: Array, start: int, threads: int | None) -> None:
    """Values from ``start`` on of a stream into ``out``, in parallel by blocks."""
    flat = out.reshape(-1)
    reals = flat.view(_REAL[flat.dtype.name])
    first = start * (len(reals) // max(1, len(flat)))
    last = first + len(reals)

    def work(block: int) -> None:
        low, high = max(first, block * BLOCK), min(last, (block + 1) * BLOCK)
        stream.write(block, low - block * BLOCK, reals[low - first : high - first])

    blocks = range(first // BLOCK, -(-last // BLOCK))
    workers = min(len(blocks) // 2, threads or _cpus())
    if workers < 2:
        for block in blocks:
            work(block)
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, blocks))


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bits64(words: NDArray[np.uint64], block: int, count: int) -> NDArray[np.uint64]:
    generator = np.random.Generator(np.random.Philox(key=words, counter=[0, block, 0, 0]))
    return generator.integers(0, 2**64 - 1, count, np.uint64, endpoint=True)  # the raw words, without the lock


def _bits16(words: NDArray[np.uint64], block: int, count: int) -> NDArray[np.uint16]:
    return _bits64(words, block, -(-count // 4)).astype("<u8", copy=False).view("<u2")[:count]


@cache
def table(law: str) -> NDArray[np.float64]:
    """The 65,536 equally likely values of a law of variance one, ascending and odd-symmetric.

    Quantiles at bin centres, bent by an odd quintic so that moments 2, 4 and 6 are the law's, then
    rounded to float32, which makes the table independent of the last bits of a math library.
    """
    half = _quantile(law, (np.arange(LEVELS // 2) + 0.5) / LEVELS)
    half = _bend(half, _moments(law)).astype(np.float32).astype(np.float64)
    both = np.concatenate([-half, half[::-1]])
    both.flags.writeable = False
    return both


def _fine(law: str, bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Values of variance one from 52 bits and a sign (bit 0) each, by the inverse distribution."""
    beyond = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-53  # exact, inside (0, 1/2)
    size = _quantile(law, beyond)
    return np.where(bits & np.uint64(1), -size, size)


def _quantile(law: str, beyond: NDArray[np.float64]) -> NDArray[np.float64]:
    """The positive value of variance one that is exceeded with probability ``beyond`` in (0, 1/2)."""
    if law == "uniform":
        return math.sqrt(3.0) * (1.0 - 2.0 * beyond)
    from scipy.special import ndtri

    if law == "normal":
        return -ndtri(beyond)
    inside = math.erf(CUT / math.sqrt(2.0))
    return np.minimum(CUT, -ndtri(0.5 * (1.0 - inside) + beyond * inside)) / math.sqrt(_cut_moments()[0])


def _moments(law: str) -> tuple[float, float, float]:
    """Moments 2, 4 and 6 of the law at variance one."""
    if law == "normal":
        return 1.0, 3.0, 15.0
    if law == "uniform":
        return 1.0, 9.0 / 5.0, 27.0 / 7.0
    m2, m4, m6 = _cut_moments()
    return 1.0, m4 / m2**2, m6 / m2**3


def _cut_moments() -> tuple[float, float, float]:
    """E z^2, E z^4, E z^6 of a standard normal cut at +-:data:`CUT`, by integration by parts."""
    inside = math.erf(CUT / math.sqrt(2.0))
    edge = 2.0 * math.exp(-0.5 * CUT**2) / (math.sqrt(2.0 * math.pi) * inside)
    m2 = 1.0 - CUT * edge
    m4 = 3.0 * m2 - CUT**3 * edge
    return m2, m4, 5.0 * m4 - CUT**5 * edge


def _bend(z: NDArray[np.float64], moments: tuple[float, float, float]) -> NDArray[np.float64]:
    """``a z + b z^3 + c z^5`` with these mean powers 2, 4 and 6, by Newton's method from ``z``."""
    powers = np.stack([z, z**3, z**5])
    c = np.array([1.0, 0.0, 0.0])
    for _ in range(5):
        x = c @ powers
        residual = [float(np.mean(x**k)) - m for k, m in zip((2, 4, 6), moments, strict=True)]
        slope = [[float(np.mean(k * x ** (k - 1) * p)) for p in powers] for k in (2, 4, 6)]
        c -= np.linalg.solve(np.array(slope), np.array(residual))
    return c @ powers


def _orthogonal(
    seed: int, key: int, part: str, start: int, shape: Shape, std: float, dtype: str, mean: float, threads: int | None
) -> Array:
    """Orthogonal groups made of the normal values from ``start`` on, 16 bits each in every type.

    The values of a group are vectors of the longer side, so a wide matrix is a tall one transposed.
    """
    groups, rows, cols = shape
    kind = "complex64" if dtype.startswith("complex") else "float32"
    normals = _stream(seed, key, part, "normal", 1.0, kind, 0.0, 0)
    integers = replace(normals, scaled=odd(normals.scale * table("normal")).astype(np.float32))
    values = np.empty((groups, max(rows, cols), min(rows, cols)), kind)
    _fill(integers, values, start, threads)
    out = np.empty(shape, dtype)
    target = out.swapaxes(1, 2) if cols > rows else out
    scale = std * math.sqrt(max(rows, cols))
    from_grid(values, target, _REAL[dtype] == "float64", scale, threads or _cpus())
    if mean:
        out += mean
    return out


def _mirror(base: Array, shape: Shape, mirrored: str) -> Array:
    out = np.empty(shape, base.dtype)
    for to, source, sign in _twins(shape[1], mirrored != "cols"):
        for across, there, flip in _twins(shape[2], mirrored != "rows"):
            np.multiply(base[:, source, there], sign * flip, out=out[:, to, across])
    return out


def _twins(size: int, paired: bool) -> list[tuple[slice, slice, int]]:
    """(target, source, sign) along one dimension: both halves and what is left, or all of it."""
    if not paired:
        return [(slice(0, size), slice(0, size), 1)]
    half = size // 2
    rest = [(slice(2 * half, size), slice(half, half + 1), 1)] if size % 2 else []
    return [(slice(0, half), slice(0, half), 1), (slice(half, 2 * half), slice(0, half), -1), *rest]

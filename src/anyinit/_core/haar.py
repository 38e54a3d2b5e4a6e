"""Random orthogonal (unitary) matrices whose bytes do not depend on threads or on the BLAS.

A Haar matrix is a product of Householder reflections of independent Gaussian vectors of lengths
n, n-1, ... (Stewart, "The efficient generation of random orthogonal matrices", SIAM J. Numer.
Anal. 17, 1980), the same matrix a QR factorization of a Gaussian with positive diagonal of R
has in law, at half the work and with an error that no condition number enters. Reflections are
applied in blocks, ``I - V T V*`` (Schreiber & Van Loan 1989), so all large work is matrix products.

Floating-point products of matrices depend on the order of summation, hence on the library, the
CPU and the thread count. Here every factor is an integer on a grid chosen so that all partial
sums stay below 2**53 (error-free splitting, Ozaki et al., Numer. Algorithms 59, 2012): each
product is exact, so the order cannot matter. Vectors are integers from the start, which costs no
accuracy: the reflection of a rounded vector is as orthogonal as any other.

Columns of the result are made in tiles, independent of each other, by the threads of the caller;
products are cut so small that a BLAS does not start threads of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRID_BITS = 12
"""Gaussian entries enter as odd multiples of 2**-12 (never zero, symmetric)."""

_EXACT_BITS = 51  # two fewer than a double holds: room for rounding of the norms the bounds use
_T_BITS = 22
_ROWS, _TILE = 128, 32  # rows of one product, columns of one task
_BATCH = 2**16  # entries of small groups worked on together, to stay in cache
_WORTH_THREADS = 2**24  # multiplications

Real = NDArray[np.float64]
Field = NDArray[Any]


def haar(gaussian: Field, double: bool, scale: float = 1.0, threads: int = 1) -> Field:
    """Orthonormal columns (rows, if there are fewer) from a Gaussian array, times ``scale``.

    Args:
        gaussian: shape (groups, rows, cols), entries of variance one (``|.|**2`` if complex).
        double: carry full float64 accuracy; otherwise the error stays below a float32 rounding.
        scale: a positive factor.
        threads: how many to use; the bytes do not depend on it.

    Returns:
        Shape (groups, rows, cols), float64 or complex128: each group times its own conjugate
        transpose, on the shorter side, is the identity times ``scale**2``. One group depends on no other.
    """
    wide = gaussian.shape[2] > gaussian.shape[1]
    tall = np.ascontiguousarray(gaussian.swapaxes(1, 2) if wide else gaussian)
    if np.iscomplexobj(tall):
        integers = odd(tall.astype(np.complex128).view(np.float64)).view(np.complex128)
    else:
        integers = odd(tall.astype(np.float64))
    out = np.empty_like(integers)
    from_grid(integers, out, double, scale, threads)
    return out.swapaxes(1, 2) if wide else out


def odd(x: Real) -> Real:
    """The odd integers nearest to ``x * 2**GRID_BITS``."""
    return np.floor(x * 2.0 ** (GRID_BITS - 1)) * 2.0 + 1.0


def from_grid(integers: Field, out: Field, double: bool, scale: float, threads: int) -> None:
    """:func:`haar` of values that :func:`odd` made, no wider than high, written (and rounded) to ``out``."""
    groups, rows, cols = integers.shape
    step = max(1, _BATCH // max(1, rows * cols))
    for at in range(0, groups, step):
        _tall(integers[at : at + step], out[at : at + step], double, scale, threads)


@dataclass(frozen=True, slots=True)
class _Block:
    """Reflections applied together: ``I - v t v*`` on rows from ``_ROWS * chunk`` on.

    v: (groups, chunks, rows of a chunk, width); t: slices, which add up to T; row: the largest
    2-norm of a row of v.
    """

    start: int
    chunk: int
    v: Field
    t: list[Field]
    row: Real


def _tall(integers: Field, out: Field, double: bool, scale: float, threads: int) -> None:
    groups, n, m = integers.shape
    height = min(n, _ROWS)
    chunks = -(-n // height)
    padded = np.zeros((groups, chunks * height, m), np.result_type(integers, np.float64))
    padded[:, :n] = integers
    size, sign = _reflections(padded[:, :n])
    slices = 2 if double or n > 2**14 else 1
    blocks = _blocks(padded.reshape(groups, chunks, height, m), size, slices)
    reach = np.sqrt(size.max(axis=1))
    unit = _unit(reach)  # columns of norm one times this are integers that stay exact against v
    factor = (sign * -scale)[:, None, :] / unit

    def work(start: int) -> None:
        stop = min(m, start + _TILE)
        flat = np.zeros((groups, chunks * height, stop - start), padded.dtype)
        flat[:, range(start, stop), range(stop - start)] = unit[:, :, 0]
        q = flat.reshape(groups, chunks, height, stop - start)
        for block in reversed(blocks):
            if block.start < stop:
                _reflect(q[:, block.chunk :], block, reach, unit[:, 0, 0], slices)
        np.multiply(flat[:, :n], factor[:, :, start:stop], out=out[:, :, start:stop], casting="same_kind")

    _each(work, list(reversed(range(0, m, _TILE))), threads if groups * n * m * m > _WORTH_THREADS else 1)


def _each(work: Callable[[int], None], jobs: list[int], threads: int) -> None:
    if min(threads, len(jobs)) < 2:
        for job in jobs:
            work(job)
        return
    with ThreadPoolExecutor(min(threads, len(jobs))) as pool:
        for _ in pool.map(work, jobs):
            pass


def _reflections(x: Field) -> tuple[Real, Field]:
    """Turn columns into integer vectors v (lower trapezoid) in place; their squared norms and the signs of their heads.

    ``I - 2 v v* / |v|**2`` sends column x (from the diagonal down) to ``-sign * |x| e_1``. Short
    vectors are doubled until all norms are within a factor of two, so that T is well scaled.
    """
    m = x.shape[2]
    x[:, :m] = np.tril(x[:, :m])
    head = x[:, range(m), range(m)]
    norm2 = _square_sum(x, "gnm,gnm->gm")
    square = np.real(head) ** 2 + np.imag(head) ** 2
    sign = head / np.sqrt(square)
    lead = np.rint(head + sign * np.sqrt(norm2))
    x[:, range(m), range(m)] = lead
    size = norm2 - square + (np.real(lead) ** 2 + np.imag(lead) ** 2)
    power = np.frexp(np.sqrt(size))[1]
    scale = np.ldexp(1.0, power.max(axis=1, keepdims=True) - power)
    if (scale != 1.0).any():
        x *= scale[:, None, :]
    return size * scale**2, sign


def _square_sum(x: Field, which: str) -> Real:
    """Sums of integers below 2**53: exact in any order."""
    total = np.einsum(which, np.real(x), np.real(x))
    return total + np.einsum(which, np.imag(x), np.imag(x)) if np.iscomplexobj(x) else total


def _blocks(v: Field, size: Real, slices: int) -> list[_Block]:
    """All blocks of reflections, first to last. T is the inverse of triu(v* v, 1) + diag(|v|**2 / 2)."""
    groups, chunks, height, m = v.shape
    width = min(m, _TILE if chunks * height < 2 * _ROWS else 2 * _TILE)
    starts = range(0, m, width)
    gram = np.zeros((groups, len(starts), width, width), v.dtype)
    pivot = np.ones((groups, len(starts), width))
    views: list[Field] = []
    for b, start in enumerate(starts):
        views.append(np.ascontiguousarray(v[:, start // height :, :, start : start + width]))
        k = views[b].shape[3]
        for at in range(0, k, _TILE):
            gram[:, b, :k, at : min(k, at + _TILE)] = _inner(views[b], views[b][..., at : at + _TILE])
        pivot[:, b, :k] = 2.0 / size[:, start : start + k]
    t = _triangles(gram, pivot)
    made: list[_Block] = []
    for b, start in enumerate(starts):
        k = views[b].shape[3]
        row = np.sqrt(_square_sum(views[b], "gcnm,gcnm->gcn").max(axis=(1, 2)))
        made.append(_Block(start, start // height, views[b], _slice_triangle(t[:, b, :k, :k], slices + 1), row))
    return made


def _triangles(gram: Field, pivot: Real) -> Field:
    """Inverses of ``triu(gram, 1) + diag(1 / pivot)`` by elementwise steps: no sum has an order to choose."""
    t = np.zeros_like(gram)
    for i in reversed(range(gram.shape[2])):
        t[:, :, i, i] = 1
        t[:, :, i, i:] *= pivot[:, :, i, None]
        t[:, :, :i, i:] -= gram[:, :, :i, i, None] * t[:, :, i, None, i:]
    return t


def _slice_triangle(t: Field, slices: int) -> list[Field]:
    """Slices of T: integers of 22 bits each, times powers of two."""
    scale = np.ldexp(1.0, _T_BITS - np.frexp(_peak(t))[1])[:, None, None]
    parts: list[Field] = []
    rest = t * scale
    for _ in range(slices):
        parts.append(np.rint(rest) / scale)
        rest = (rest - np.rint(rest)) * 2.0**_T_BITS
        scale = scale * 2.0**_T_BITS
    return parts


def _inner(v: Field, q: Field) -> Field:
    """``v* q`` summed over all rows, chunk by chunk (exact, so in any order)."""
    products = (v.conj() if np.iscomplexobj(v) else v).swapaxes(2, 3) @ q
    return products[:, 0] if products.shape[1] == 1 else products.sum(axis=1)


def _reflect(q: Field, block: _Block, reach: Real, norm: Real, slices: int) -> None:
    """``q <- (I - v t v*) q`` in place. With one slice q is kept integer, else it is split."""
    chunks, height, k = block.v.shape[1:]
    if slices == 1:
        y = _inner(block.v, q)
    else:
        first, second = _split(q, reach, norm, chunks * height, slices)
        y = _inner(block.v, second) + _inner(block.v, first)
    z = _small_product(block, y)
    for step in _split(z, block.row, math.sqrt(k) * _peak(z), k, slices):
        q -= block.v @ step[:, None]
    if slices == 1:
        np.rint(q, out=q)


def _small_product(block: _Block, y: Field) -> Field:
    """``t @ y`` from slices of both: each product exact, the smallest added first."""
    k, slices = y.shape[1], len(block.t)
    reach = np.full(len(y), math.sqrt(k) * 2.0**_T_BITS)
    right = _split(y, reach, math.sqrt(k) * _peak(y), k, slices)
    total = np.zeros_like(y)
    for order in reversed(range(slices)):
        for i in range(order + 1):
            total += block.t[i] @ right[order - i]
    return total


def _split(a: Field, reach: Real, norm: Real, count: int, slices: int) -> list[Field]:
    """Parts of ``a`` on ever finer grids, each exact in a product with integer vectors.

    ``reach`` bounds the 2-norm of those vectors, ``norm`` that of the vectors of ``a`` they meet
    (Cauchy-Schwarz bounds every partial sum), ``count`` is the length of both.
    """
    parts: list[Field] = []
    for _ in range(slices):
        unit = _unit(reach * norm).reshape(-1, *[1] * (a.ndim - 1))
        part = np.rint(a * unit) / unit
        parts.append(part)
        a = a - part
        norm = math.sqrt(0.5 * count) / unit.reshape(-1)
    return parts


def _unit(bound: Real) -> Real:
    """Per group, the largest power of two whose product with ``bound`` stays under 2**51."""
    return np.ldexp(1.0, _EXACT_BITS - np.frexp(bound)[1])[:, None, None]


def _peak(x: Field) -> Real:
    """Per group, a bound on the modulus of all entries."""
    if np.iscomplexobj(x):
        return 2.0 * np.maximum(np.abs(np.real(x)).max(axis=(1, 2)), np.abs(np.imag(x)).max(axis=(1, 2)))
    return np.abs(x).max(axis=(1, 2))

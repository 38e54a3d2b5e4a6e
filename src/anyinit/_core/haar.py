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
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRID_BITS = 12
"""Gaussian entries enter as odd multiples of 2**-12 (never zero, symmetric)."""

_EXACT_BITS = 51  # two fewer than a double holds: room for rounding of the norms the bounds use
_T_BITS = 22
_WIDTHS = ((2048, 96), (512, 64), (0, 32))  # (rows left at least, reflections per block)
_TILE = 2**16  # entries worked on at once, to stay in cache

Real = NDArray[np.float64]
Field = NDArray[Any]


def haar(gaussian: Field, double: bool, scale: float = 1.0) -> Field:
    """Orthonormal columns (rows, if there are fewer) from a Gaussian array, times ``scale``.

    Args:
        gaussian: shape (groups, rows, cols), entries of variance one (``|.|**2`` if complex).
        double: carry full float64 accuracy; otherwise the error stays below a float32 rounding.
        scale: a positive factor.

    Returns:
        Shape (groups, rows, cols): each group times its own conjugate transpose, on the shorter
        side, is the identity times ``scale**2``. One group depends on no other.
    """
    wide = gaussian.shape[2] > gaussian.shape[1]
    tall = np.ascontiguousarray(gaussian.swapaxes(1, 2) if wide else gaussian)
    if np.iscomplexobj(tall):
        integers = odd(tall.astype(np.complex128).view(np.float64)).view(np.complex128)
    else:
        integers = odd(tall.astype(np.float64))
    q = from_grid(integers, double, scale)
    return q.swapaxes(1, 2) if wide else q


def odd(x: Real) -> Real:
    """The odd integers nearest to ``x * 2**GRID_BITS``."""
    return np.floor(x * 2.0 ** (GRID_BITS - 1)) * 2.0 + 1.0


def from_grid(integers: Field, double: bool, scale: float = 1.0) -> Field:
    """:func:`haar` of values that :func:`odd` made, no wider than high; overwrites them."""
    groups, rows, cols = integers.shape
    step = max(1, _TILE // max(1, rows * cols))
    if step >= groups:
        return _tall(integers, double, scale)
    out = np.empty_like(integers)
    for at in range(0, groups, step):
        out[at : at + step] = _tall(integers[at : at + step], double, scale)
    return out


def _tall(integers: Field, double: bool, scale: float) -> Field:
    n, m = integers.shape[1:]
    v, size, sign = _reflections(integers)
    reach = np.sqrt(size.max(axis=1))
    unit = _unit(reach)  # columns of norm one times this are integers that stay exact against v
    q = np.zeros(v.shape, v.dtype)
    q[:, range(m), range(m)] = unit[:, :, 0]
    slices = 2 if double or n > 2**14 else 1
    blocks = _blocks(n, m)
    factors = _triangles(v, size, blocks)
    for (start, stop), t in reversed(list(zip(blocks, factors, strict=True))):
        _reflect(q[:, start:, start:], v[:, start:, start:stop], t, reach, slices)
    q *= (sign * -scale)[:, None, :] / unit
    return q


def _blocks(n: int, m: int) -> list[tuple[int, int]]:
    """Ranges of columns applied together; narrow where few rows are left, or T grows large."""
    blocks: list[tuple[int, int]] = []
    start = 0
    while start < m:
        width = next(w for rows, w in _WIDTHS if n - start >= rows)
        blocks.append((start, min(m, start + width)))
        start = blocks[-1][1]
    return blocks


def _reflections(x: Field) -> tuple[Field, Real, Field]:
    """Integer vectors v (lower trapezoid), their squared norms and the signs of their heads, in place.

    ``I - 2 v v* / |v|**2`` sends column x (from the diagonal down) to ``-sign * |x| e_1``. Short
    vectors are doubled until all norms are within a factor of two, so that T is well scaled.
    """
    m = x.shape[2]
    x[:, :m] = np.tril(x[:, :m])
    head = x[:, range(m), range(m)]
    norm2 = _square_sum(x, 1)
    square = np.real(head) ** 2 + np.imag(head) ** 2
    sign = head / np.sqrt(square)
    lead = np.rint(head + sign * np.sqrt(norm2))
    x[:, range(m), range(m)] = lead
    size = norm2 - square + (np.real(lead) ** 2 + np.imag(lead) ** 2)
    power = np.frexp(np.sqrt(size))[1]
    scale = np.ldexp(1.0, power.max(axis=1, keepdims=True) - power)
    if (scale != 1.0).any():
        x *= scale[:, None, :]
    return x, size * scale**2, sign


def _square_sum(x: Field, axis: int) -> Real:
    """Sums of integers below 2**53: exact in any order."""
    out = "gm" if axis == 1 else "gn"
    total = np.einsum(f"gnm,gnm->{out}", np.real(x), np.real(x))
    return total + np.einsum(f"gnm,gnm->{out}", np.imag(x), np.imag(x)) if np.iscomplexobj(x) else total


def _triangles(v: Field, size: Real, blocks: list[tuple[int, int]]) -> list[Field]:
    """T of every block: the inverse of triu(V* V, 1) + diag(|v|**2 / 2), by elementwise steps."""
    width = blocks[0][1] - blocks[0][0]
    gram = np.zeros((len(v), len(blocks), width, width), v.dtype)
    pivot = np.ones((len(v), len(blocks), width))
    for b, (start, stop) in enumerate(blocks):
        block, k = v[:, start:, start:stop], stop - start
        gram[:, b, :k, :k] = _adjoint(block) @ block
        pivot[:, b, :k] = 2.0 / size[:, start:stop]
    t = np.zeros_like(gram)
    for i in reversed(range(width)):
        t[:, :, i, i] = 1
        t[:, :, i, i:] *= pivot[:, :, i, None]
        t[:, :, :i, i:] -= gram[:, :, :i, i, None] * t[:, :, i, None, i:]
    return [t[:, b, : stop - start, : stop - start] for b, (start, stop) in enumerate(blocks)]


def _reflect(q: Field, v: Field, t: Field, reach: Real, slices: int) -> None:
    """``q <- (I - v t v*) q`` in place. With one slice q is kept integer, else it is split."""
    n, k = v.shape[1:]
    unit = _unit(reach)
    parts = [q] if slices == 1 else _split(q, reach, unit[:, 0, 0], n, slices)
    y = sum((_adjoint(v) @ part for part in reversed(parts[:-1])), _adjoint(v) @ parts[-1])
    z = _small_product(t, y, slices + 1)
    row = np.sqrt(_square_sum(v, 2).max(axis=1))
    steps = _split(z, row, math.sqrt(k) * _peak(z), k, slices)
    height = max(64, _TILE // (len(q) * q.shape[2]))
    for at in range(0, n, height):
        tile = q[:, at : at + height]
        for step in steps:
            tile -= v[:, at : at + height] @ step
        if slices == 1:
            np.rint(tile, out=tile)


def _small_product(t: Field, y: Field, slices: int) -> Field:
    """``t @ y`` from slices of both: each product exact, the smallest added first."""
    k = t.shape[2]
    scale = np.ldexp(1.0, _T_BITS - np.frexp(_peak(t))[1])[:, None, None]
    left: list[Field] = []
    rest = t * scale
    for _ in range(slices):
        left.append(np.rint(rest))
        rest = (rest - left[-1]) * 2.0**_T_BITS
    reach = np.full(len(t), math.sqrt(k) * 2.0**_T_BITS)
    right = _split(y, reach, math.sqrt(k) * _peak(y), k, slices)
    total = np.zeros_like(y)
    for order in reversed(range(slices)):
        for i in range(order + 1):
            total += (left[i] @ right[order - i]) * 2.0 ** (-_T_BITS * i)
    return total / scale


def _split(a: Field, reach: Real, norm: Real, count: int, slices: int) -> list[Field]:
    """Parts of ``a`` on ever finer grids, each exact in a product with integer vectors.

    ``reach`` bounds the 2-norm of those vectors, ``norm`` that of the vectors of ``a`` they meet
    (Cauchy-Schwarz bounds every partial sum), ``count`` is the length of both.
    """
    parts: list[Field] = []
    for _ in range(slices):
        unit = _unit(reach * norm)
        part = np.rint(a * unit) / unit
        parts.append(part)
        a = a - part
        norm = math.sqrt(0.5 * count) / unit[:, 0, 0]
    return parts


def _unit(bound: Real) -> Real:
    """Per group, the largest power of two whose product with ``bound`` stays under 2**51."""
    return np.ldexp(1.0, _EXACT_BITS - np.frexp(bound)[1])[:, None, None]


def _peak(x: Field) -> Real:
    """Per group, a bound on the modulus of all entries."""
    if np.iscomplexobj(x):
        return 2.0 * np.maximum(np.abs(np.real(x)).max(axis=(1, 2)), np.abs(np.imag(x)).max(axis=(1, 2)))
    return np.abs(x).max(axis=(1, 2))


def _adjoint(x: Field) -> Field:
    return x.conj().swapaxes(1, 2) if np.iscomplexobj(x) else x.swapaxes(1, 2)

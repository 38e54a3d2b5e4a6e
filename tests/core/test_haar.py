"""Orthogonal matrices: orthonormal to rounding, Haar in law, the same bytes under any BLAS and thread count."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyinit._core.haar import haar

SOURCE = Path(__file__).parents[2] / "src"
PROBE = """
import hashlib
from anyinit._core.sampling import draw
for dtype in ("float32", "float64"):
    for shape in ((1, 300, 300), (1, 700, 90), (3, 17, 40), (40, 9, 1)):
        print(hashlib.sha256(draw(5, 2, "q", shape, "orthogonal", 0.3, dtype).tobytes()).hexdigest()[:16])
for law in ("normal", "truncated_normal", "uniform"):
    print(hashlib.sha256(draw(5, 2, "q", (1, 300, 300), law, 0.3).tobytes()).hexdigest()[:16])
"""


def probe(**environment: str) -> list[str]:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), **environment}
    done = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


def gram_error(q: np.ndarray) -> float:
    tall = q if q.shape[1] >= q.shape[2] else q.swapaxes(1, 2)
    return float(np.abs(tall.conj().swapaxes(1, 2) @ tall - np.eye(tall.shape[2])).max())


@given(st.integers(1, 3), st.integers(1, 140), st.integers(1, 140), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_the_shorter_side_is_orthonormal_to_rounding(groups: int, rows: int, cols: int, seed: int) -> None:
    gaussian = np.random.default_rng(seed).standard_normal((groups, rows, cols))
    assert gram_error(haar(gaussian, double=True)) < 4e-15
    assert gram_error(haar(gaussian, double=False)) < 1e-8


@pytest.mark.parametrize("shape", [(1, 1500, 40), (1, 40, 1500), (1, 400, 400)])
def test_large_tall_wide_and_square_matrices_are_orthonormal(shape: tuple[int, int, int]) -> None:
    gaussian = np.random.default_rng(0).standard_normal(shape)
    assert gram_error(haar(gaussian, double=True)) < 4e-15
    assert gram_error(haar(gaussian, double=False)) < 1e-8


def test_very_long_vectors_are_carried_in_two_slices() -> None:
    gaussian = np.random.default_rng(0).standard_normal((1, 2**14 + 1, 3))
    assert gram_error(haar(gaussian, double=False)) < 4e-15


def test_complex_matrices_are_unitary() -> None:
    rng = np.random.default_rng(0)
    for shape in ((2, 70, 100), (3, 5, 5)):
        gaussian = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)
        q = haar(gaussian, double=True)
        assert q.dtype == np.complex128
        assert gram_error(q) < 4e-15


def test_the_first_column_points_along_the_gaussian_as_in_a_qr_with_positive_diagonal() -> None:
    gaussian = np.random.default_rng(3).standard_normal((4, 60, 30))
    first = gaussian[:, :, 0] / np.linalg.norm(gaussian[:, :, 0], axis=1, keepdims=True)
    np.testing.assert_allclose(haar(gaussian, double=True)[:, :, 0], first, atol=2.0**-11)


def test_a_group_does_not_depend_on_its_neighbours() -> None:
    gaussian = np.random.default_rng(1).standard_normal((5, 20, 12))
    together = haar(gaussian, double=False)
    for g in range(5):
        assert haar(gaussian[g : g + 1], double=False)[0].tobytes() == together[g].tobytes()


def test_small_matrices_follow_the_haar_law() -> None:
    """Traces: E tr = 0, E tr^2 = 1, E tr(Q^2) = 1, E tr^4 = 3 (Diaconis & Shahshahani 1994)."""
    q = haar(np.random.default_rng(2).standard_normal((40_000, 4, 4)), double=True)
    trace = np.trace(q, axis1=1, axis2=2)
    squared = np.trace(q @ q, axis1=1, axis2=2)
    for values, mean, spread in ((trace, 0, 1), (trace**2, 1, 2**0.5), (trace**4, 3, 10), (squared, 1, 2**0.5)):
        assert abs(values.mean() - mean) < 5 * spread / len(q) ** 0.5
    assert abs(np.mean(np.linalg.det(q))) < 5 / len(q) ** 0.5  # both components of O(4)
    assert abs(np.mean(q[:, 3, 3] ** 4) - 3 / 24) < 0.004  # E q^4 = 3 / (n (n + 2))
    assert abs(np.mean(q[:, 3, 3] * q[:, 0, 0])) < 0.006


def test_two_by_two_rotations_have_uniform_angles() -> None:
    q = haar(np.random.default_rng(4).standard_normal((50_000, 2, 2)), double=True)
    angle = np.arctan2(q[:, 1, 0], q[:, 0, 0])
    counts, _ = np.histogram(angle, bins=20, range=(-np.pi, np.pi))
    assert ((counts - 2500) ** 2 / 2500).sum() < 50  # chi-square, 19 degrees of freedom, p = 1e-4


def test_bytes_depend_neither_on_threads_nor_on_the_kernels_of_blas_or_numpy() -> None:
    alone = probe(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    others = [
        probe(OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2", MKL_NUM_THREADS="2"),
        probe(OPENBLAS_CORETYPE="Prescott", NPY_DISABLE_CPU_FEATURES="AVX2 FMA3 AVX512F"),
    ]
    assert len(alone) == 11
    assert all(other == alone for other in others)


def test_a_control_plain_products_do_depend_on_the_summation_order() -> None:
    """What the grids are for: without them the same product summed in another order has other bytes."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 400)), rng.standard_normal((400, 2))
    assert (a @ b).tobytes() != (a[:, ::-1] @ b[::-1]).tobytes()
    gaussian = rng.standard_normal((1, 50, 20))
    digest = hashlib.sha256(haar(gaussian, double=False).tobytes()).hexdigest()
    assert digest == hashlib.sha256(haar(gaussian.copy(order="F"), double=False).tobytes()).hexdigest()

"""Certificates of ``tanh(x @ a) @ b`` worked out by hand in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np


def by_hand(x: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> dict[str, float]:
    """What ``certify=True`` must say, ``c`` the projection of every sample's outputs."""
    x, a, b, c = (np.asarray(v, np.float64) for v in (x, a, b, c))
    hidden = np.tanh(x @ a)
    into = (1 - hidden**2) * (c @ b.T)
    rows = [np.concatenate([np.outer(*p).ravel(), np.outer(*q).ravel()]) for p, q in _pairs(x, into, hidden, c)]
    spectrum = np.linalg.eigvalsh(np.stack(rows) @ np.stack(rows).T)
    squares = [sum(np.mean(r[part] ** 2) for r in rows) for part in (slice(0, a.size), slice(a.size, None))]
    gram = hidden @ hidden.T
    share = np.clip(np.linalg.eigvalsh(gram), 1e-300, None) / np.trace(gram)
    norms = np.sqrt(np.diag(gram))
    cosines = gram / np.outer(norms, norms)
    n = len(x)
    return {
        "forward spread": 0.0,
        "angle": (cosines.sum() - n) / (n * (n - 1)),
        "feature rank": math.exp(-float(np.sum(share * np.log(share)))),
        "gradient ratio": math.log10(max(squares) / min(squares)),
        "kernel condition": math.log10(spectrum[-1] / spectrum[0]),
    }


def _pairs(x: np.ndarray, into: np.ndarray, hidden: np.ndarray, c: np.ndarray) -> Iterator[tuple[tuple, tuple]]:
    yield from zip(zip(x, into, strict=True), zip(hidden, c, strict=True), strict=True)

"""The fixed data of all tasks, as NumPy arrays; scikit-learn ships it."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@functools.cache
def digits() -> tuple[Floats, Integers]:
    """1,797 handwritten digits of 8 x 8 pixels, raw, and their classes."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.images.astype(np.float32), found.target.astype(np.int64)


@functools.cache
def photograph(name: str = "china.jpg") -> Floats:
    """A sample picture in grey at 42 x 64 pixels, raw."""
    from sklearn.datasets import load_sample_image

    grey = np.asarray(load_sample_image(name), np.float32).mean(-1)[:420, :640]
    return grey.reshape(42, 10, 64, 10).mean((1, 3))


@functools.cache
def letters() -> tuple[Integers, int]:
    """Letters of the descriptions of scikit-learn's small data sets as indices, and the size of the alphabet."""
    from sklearn import datasets

    makers = (datasets.load_digits, datasets.load_iris, datasets.load_wine, datasets.load_breast_cancer)
    words = "".join(m().DESCR for m in (*makers, datasets.load_diabetes, datasets.load_linnerud))
    alphabet = {c: i for i, c in enumerate(sorted(set(words)))}
    return np.array([alphabet[c] for c in words], np.int64), len(alphabet)


def surface() -> tuple[Floats, Floats]:
    """A smooth function of two coordinates in [-1, 1] at 2,304 points, and those."""
    side = np.linspace(-1, 1, 48, dtype=np.float32)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    y = np.sin(3 * x[:, 0]) * np.cos(2 * x[:, 1]) + 0.5 * np.tanh(4 * (x[:, 0] - x[:, 1]))
    return x, y[:, None]


def standard(values: Floats) -> Floats:
    """Mean zero and variance one over the whole array."""
    return ((values - values.mean()) / values.std()).astype(np.float32)

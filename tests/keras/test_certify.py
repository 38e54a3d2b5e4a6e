"""Certificates of Keras models, on every backend, are the numbers a direct computation gives."""

from __future__ import annotations

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import anyinit  # noqa: E402
from certificate_numbers import by_hand  # noqa: E402


def projection() -> np.ndarray:
    """What gradients of six samples with three outputs are taken along."""
    if keras.backend.backend() != "torch":
        return np.random.default_rng(0).standard_normal((6, 3))
    import torch

    return torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).numpy()


def test_every_certificate_agrees_with_a_computation_by_hand():
    layers = [keras.layers.Dense(16, "tanh", use_bias=False), keras.layers.Dense(3, use_bias=False)]
    net = keras.Sequential([keras.Input((5,)), *layers])
    x = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    report = anyinit.initialize(net, x, seed=0, certify=True)
    found = {k.name: k.value for k in report.certificates}
    assert found == pytest.approx(by_hand(x, *net.get_weights(), projection()), rel=1e-3, abs=1e-9)
    assert "Certificates:" in str(report)

"""Certificates of TensorFlow models are the numbers a direct computation gives."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import anyinit  # noqa: E402
from certificate_numbers import by_hand  # noqa: E402


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = tf.Variable(tf.zeros((5, 16))), tf.Variable(tf.zeros((16, 3)))

    def __call__(self, x):
        return tf.tanh(x @ self.a) @ self.b


def test_every_certificate_agrees_with_a_computation_by_hand():
    x, net = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32), Net()
    report = anyinit.initialize(net, x, seed=0, certify=True)
    found = {k.name: k.value for k in report.certificates}
    expected = by_hand(x, net.a.numpy(), net.b.numpy(), np.random.default_rng(0).standard_normal((6, 3)))
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_exploding_gradients_fail_and_the_default_passes():
    class Deep(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = [tf.Variable(tf.zeros((48, 48))) for _ in range(40)]

        def __call__(self, x):
            for w in self.w:
                x = tf.tanh(x @ w)
            return x

    x = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
    loud = anyinit.initialize(Deep(), x, seed=0, certify=True, overrides={"*": {"std": 2.5 / 48**0.5}})
    calm = anyinit.initialize(Deep(), x, seed=0, certify=True)
    assert not next(c for c in loud.certificates if c.name == "gradient ratio").passed
    assert all(c.passed for c in calm.certificates if c.name in {"gradient ratio", "forward spread"})


def test_samples_are_those_of_the_outputs_first_axis():
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    report = anyinit.initialize(Net(), x, seed=0, certify=True)
    rank = next(c.value for c in report.certificates if c.name == "feature rank")
    assert 1 <= rank <= 3

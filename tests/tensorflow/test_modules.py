"""``tf.Module`` and plain functions: placed in full, predicted levels against measured ones, errors that help."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import anyinit  # noqa: E402
from anyinit.errors import ConfigError, PlanError, TraceError  # noqa: E402


def variable(*shape, value=None):
    return tf.Variable(tf.zeros(shape) if value is None else tf.fill(shape, value), dtype=tf.float32)


class Chain(tf.Module):
    def __init__(self, fn=tf.nn.relu):
        super().__init__()
        self.fn, self.layers = fn, [(variable(64, 64), variable(64)) for _ in range(4)]

    def __call__(self, x):
        for w, b in self.layers:
            x = self.fn(x @ w + b)
        return x


class Residual(tf.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [(variable(64, 64), variable(64, 64)) for _ in range(3)]
        self.out = variable(64, 5)

    def __call__(self, x):
        for a, b in self.blocks:
            x = x + tf.nn.gelu(x @ a) @ b
        return x @ self.out


class Gated(tf.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = variable(32, 96), variable(32, 96), variable(96, 32)

    def __call__(self, x):
        return (tf.nn.silu(x @ self.gate) * (x @ self.up)) @ self.down


class Attention(tf.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = variable(32, 96), variable(32, 32)

    def __call__(self, x):
        q, k, v = (tf.reshape(t, (-1, 8, 4, 8)) for t in tf.split(x @ self.qkv, 3, -1))
        scores = tf.nn.softmax(tf.einsum("bqhd,bkhd->bhqk", q, k) / 8**0.5)
        return x + tf.reshape(tf.einsum("bhqk,bkhd->bqhd", scores, v), (-1, 8, 32)) @ self.out


class Cell(tf.Module):
    """An LSTM cell in ``tf.while_loop``."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer, self.bias = variable(16, 128), variable(32, 128), variable(128)

    def __call__(self, x):
        def body(i, h, c):
            z = x[:, i] @ self.inner + h @ self.outer + self.bias
            a, f, g, o = tf.split(z, 4, -1)
            c = tf.sigmoid(f) * c + tf.sigmoid(a) * tf.tanh(g)
            return i + 1, tf.sigmoid(o) * tf.tanh(c), c

        zero = tf.zeros((x.shape[0], 32))
        return tf.while_loop(lambda i, *_: i < 6, body, [0, zero, zero])[1]


class Image(tf.Module):
    def __init__(self):
        super().__init__()
        self.first, self.deep, self.up = variable(3, 3, 3, 16), variable(3, 3, 16, 2), variable(3, 3, 8, 32)
        self.gain, self.shift, self.head = variable(32, value=1.0), variable(32), variable(8, 5)

    def __call__(self, x):
        x = tf.nn.relu(tf.nn.conv2d(x, self.first, 1, "SAME"))
        x = tf.nn.depthwise_conv2d(x, self.deep, (1, 1, 1, 1), "SAME")
        x = tf.nn.batch_normalization(x, *tf.nn.moments(x, (0, 1, 2)), self.shift, self.gain, 1e-3)
        x = tf.nn.conv2d_transpose(tf.nn.relu(x), self.up, (x.shape[0], 16, 16, 8), 2, "SAME")
        return tf.reduce_mean(tf.nn.relu(x), (1, 2)) @ self.head


class Tied(tf.Module):
    def __init__(self):
        super().__init__()
        self.table, self.mix = variable(50, 32), variable(32, 32)

    def __call__(self, ids):
        x = tf.nn.embedding_lookup(self.table, ids)
        return (x + tf.tanh(x @ self.mix)) @ tf.transpose(self.table)


class Mixer(tf.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.channels = variable(8, 8), variable(32, 32)
        self.gain = variable(32, value=1.0)

    def __call__(self, x):
        y = x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + 1e-6) * self.gain
        x = x + tf.einsum("btd,ts->bsd", y, self.tokens)
        return x + tf.nn.relu(x @ self.channels)


class Steered(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = variable(16, 16)

    def __call__(self, x):
        if tf.reduce_sum(x) > -1e9:
            return tf.nn.relu(x @ self.w)
        return x


MODULES = {
    "chain": (Chain, (64, 64)),
    "tanh chain": (lambda: Chain(tf.tanh), (64, 64)),
    "residual": (Residual, (64, 64)),
    "gated": (Gated, (64, 32)),
    "attention": (Attention, (16, 8, 32)),
    "cell": (Cell, (16, 6, 16)),
    "image": (Image, (8, 8, 8, 3)),
    "tied": (Tied, tf.TensorSpec((16, 8), tf.int32)),
    "mixer": (Mixer, (16, 8, 32)),
    "steered": (Steered, (32, 16)),
}


@pytest.mark.parametrize("name", MODULES)
def test_every_weight_of_a_module_is_placed_and_drawn(name):
    build, spec = MODULES[name]
    net = build()
    report = anyinit.initialize(net, spec, seed=0)
    assert not report.unscaled
    assert not report.opaque
    assert report.counts["tensors"]["total"] == len(net.trainable_variables)
    assert all(np.abs(v.numpy()).max() > 0 for v in net.trainable_variables if len(v.shape) > 1)


@pytest.mark.parametrize("name", [n for n in MODULES if n not in ("tied",)])
def test_predicted_levels_are_those_of_many_draws(name):
    build, spec = MODULES[name]
    x = np.random.default_rng(1).standard_normal(spec).astype(np.float32)
    predicted: dict[str, float] = {}
    measured: dict[str, list[float]] = {}
    for seed in range(8):
        report = anyinit.initialize(build(), x, seed=seed, correct="never")
        for layer in report.layers:
            if layer.measured_output:
                predicted[layer.name] = layer.predicted_output
                measured.setdefault(layer.name, []).append(layer.measured_output)
    assert measured
    errors = [abs(np.log2(predicted[n] / np.mean(v))) for n, v in measured.items()]
    assert np.median(errors) < 0.3
    assert max(errors) < 0.9


def test_a_function_with_variables_is_a_model():
    w = tf.Variable(tf.zeros((16, 4)), name="head")
    report = anyinit.initialize(tf.function(lambda x: tf.nn.relu(x @ w)), (8, 16), seed=0)
    assert [layer.name for layer in report.layers] == ["head"]
    assert np.abs(w.numpy()).max() > 0


def test_a_plan_changes_nothing_and_is_written_later():
    net = Chain()
    planned = anyinit.plan(net, (64, 64), seed=0)
    assert all(not v.numpy().any() for v in net.variables)
    planned.apply(net, (64, 64))
    fresh = Chain()
    anyinit.initialize(fresh, (64, 64), seed=0, correct="never")
    for a, b in zip(net.variables, fresh.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_bad_input_is_refused_with_a_remedy_and_changes_nothing():
    net = Chain()
    with pytest.raises(TraceError, match="could not be run"):
        anyinit.initialize(net, (64, 63), seed=0)
    with pytest.raises(ConfigError, match="Pass input_spec"):
        anyinit.initialize(net, seed=0)
    with pytest.raises(ConfigError, match="holds its variables"):
        anyinit.initialize(net, (64, 64), params={}, seed=0)
    with pytest.raises(ConfigError, match="not finite"):
        anyinit.initialize(net, np.full((4, 64), np.nan, np.float32), seed=0)
    with pytest.raises(PlanError, match="does not fit"):
        anyinit.plan(net, (64, 64), seed=0).apply(Residual(), (64, 64))
    assert all(not v.numpy().any() for v in net.variables)

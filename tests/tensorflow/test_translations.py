"""Every translation computes what TensorFlow computes: graphs are evaluated by an independent NumPy reading."""

from __future__ import annotations

import numpy as np
import pytest

from graph_numbers import evaluate

tf = pytest.importorskip("tensorflow")

from anyinit._frameworks.tensorflow import open_model  # noqa: E402
from anyinit._graph import ops  # noqa: E402

RNG = np.random.default_rng(0)


class Net(tf.Module):
    """``fn(w, x)`` with ``w`` a variable."""

    def __init__(self, fn, shape):
        super().__init__()
        self.fn, self.w = fn, tf.Variable(RNG.standard_normal(shape), dtype=tf.float32)

    def __call__(self, x):
        return self.fn(self.w, x)


def loop(w, x):
    def body(i, h):
        return i + 1, tf.tanh(h @ w + x[:, i])

    return tf.while_loop(lambda i, h: i < 3, body, [0, tf.zeros((2, 4))])[1]


def array(w, x):
    rows = tf.TensorArray(tf.float32, 3)
    for i in tf.range(3):
        rows = rows.write(i, x[:, i] @ w)
    return rows.stack()


ACTIVATIONS = (tf.nn.relu6, tf.nn.elu, tf.nn.selu, tf.nn.leaky_relu, tf.nn.gelu, tf.nn.silu)
LABELS = np.array([3, 0, 1, 1, 2], np.int32)
SHARES = np.eye(4, dtype=np.float32)[LABELS] * 0.8 + 0.05
CASES = {
    "a loss of classes": (lambda w, x: tf.nn.softmax_cross_entropy_with_logits(SHARES, x @ w), (3, 4), (5, 3)),
    "a loss of class numbers": (
        lambda w, x: tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, x @ w),
        (3, 4),
        (5, 3),
    ),
    "the gradient of a loss of classes": (
        lambda w, x: tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x @ w, labels=SHARES)[1],
        (3, 4),
        (5, 3),
    ),
    "the gradient of a loss of class numbers": (
        lambda w, x: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=x @ w, labels=LABELS)[1],
        (3, 4),
        (5, 3),
    ),
    "a matrix product": (lambda w, x: x @ w, (3, 4), (5, 3)),
    "a transposed weight": (lambda w, x: tf.matmul(x, w, transpose_b=True), (4, 3), (5, 3)),
    "one matrix for a batch": (lambda w, x: x @ w, (3, 4), (2, 5, 3)),
    "a matrix for each": (lambda w, x: x @ w, (2, 3, 4), (2, 5, 3)),
    "heads by einsum": (lambda w, x: tf.einsum("btd,dhk->bhtk", x, w), (6, 2, 3), (2, 5, 6)),
    "einsum with dots": (lambda w, x: tf.einsum("...d,de->...e", x, w), (3, 4), (2, 5, 3)),
    "heads by a matrix product": (
        lambda w, x: tf.reshape(x @ tf.reshape(w, (6, 8)), (2, 5, 2, 4)),
        (6, 2, 4),
        (2, 5, 6),
    ),
    "merged heads": (
        lambda w, x: tf.reshape(x, (2, 5, 6)) @ tf.reshape(w, (6, 4)),
        (2, 3, 4),
        (2, 5, 2, 3),
    ),
    "same padding": (lambda w, x: tf.nn.conv2d(x, w, 2, "SAME"), (3, 2, 3, 4), (2, 7, 8, 3)),
    "dilated": (lambda w, x: tf.nn.conv2d(x, w, 1, "VALID", dilations=2), (3, 2, 3, 4), (2, 9, 8, 3)),
    "depthwise": (
        lambda w, x: tf.nn.depthwise_conv2d(x, w, (1, 1, 1, 1), "SAME"),
        (3, 3, 4, 2),
        (2, 5, 5, 4),
    ),
    "transposed convolution": (
        lambda w, x: tf.nn.conv2d_transpose(x, w, (2, 8, 10, 5), 2, "SAME"),
        (3, 4, 5, 3),
        (2, 4, 5, 3),
    ),
    "one dimension": (lambda w, x: tf.nn.conv1d(x, w, 1, "SAME"), (3, 3, 4), (2, 7, 3)),
    "a maximum pool": (lambda w, x: tf.nn.max_pool2d(x * w, 3, 2, "SAME"), (3,), (2, 7, 8, 3)),
    "an average pool": (lambda w, x: tf.nn.avg_pool2d(x * w, 3, 2, "SAME"), (3,), (2, 7, 8, 3)),
    "slices": (lambda w, x: x[:, ::2, tf.newaxis, ..., -1] * w[1:], (4,), (2, 5, 3, 4)),
    "backwards": (lambda w, x: x[:, ::-1] * w + tf.reverse(x, [0]), (4,), (2, 4)),
    "parts": (
        lambda w, x: tf.concat(tf.split(x * w, 2, -1)[::-1], -1) + tf.stack(tf.unstack(x, axis=1), 1),
        (4,),
        (3, 4),
    ),
    "padding": (lambda w, x: tf.pad(x * w, [[1, 2], [0, 1]]), (4,), (3, 4)),
    "tiles": (lambda w, x: tf.tile(x * w, [2, 3]), (4,), (3, 4)),
    "moments": (
        lambda w, x: w * tf.math.reduce_variance(x, -1, keepdims=True) + tf.reduce_max(x, 0),
        (4,),
        (3, 4),
    ),
    "batch normalization": (
        lambda w, x: tf.nn.batch_normalization(x, *tf.nn.moments(x, [0, 1]), w, w, 1e-3),
        (4,),
        (3, 5, 4),
    ),
    "softmaxes": (lambda w, x: tf.nn.softmax(x * w) + tf.nn.log_softmax(x), (4,), (3, 4)),
    "activations": (
        lambda w, x: sum(f(x * w) for f in ACTIVATIONS),
        (4,),
        (3, 4),
    ),
    "a choice": (lambda w, x: tf.where(x > 0.2, x * w, tf.clip_by_value(x, -0.5, 0.1)), (4,), (3, 4)),
    "a band": (lambda w, x: tf.linalg.band_part(x * w, -1, 0), (4,), (2, 4, 4)),
    "sums that run": (lambda w, x: tf.cumsum(x * w, axis=1), (4,), (3, 4)),
    "a loop": (loop, (4, 4), (2, 3, 4)),
    "a list": (tf.function(array), (4, 4), (2, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_tensorflow_does(name):
    fn, weight, shape = CASES[name]
    net, x = Net(fn, weight), RNG.standard_normal(shape).astype(np.float32)
    graph = open_model(net, x).record()
    assert not any(isinstance(n.op, ops.Opaque) for n in graph.nodes)
    found = evaluate(graph, {"w": net.w.numpy(), "input.0": x})
    np.testing.assert_allclose(found[graph.outputs[0]], net(tf.constant(x)).numpy(), rtol=2e-5, atol=2e-5)


def test_rows_of_a_table_are_looked_up_and_ids_stay_inside_it():
    net = Net(lambda w, ids: tf.gather(w, ids) @ tf.transpose(w), (7, 3))
    opened = open_model(net, tf.TensorSpec((2, 5), tf.int32))
    graph = opened.record()
    assert isinstance(graph.nodes[0].op, ops.Lookup)
    assert opened.inputs_used()["input.0"].max() in (5, 6)


def test_an_unknown_operation_is_opaque_and_named():
    net = Net(lambda w, x: tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True) + tf.eye(3)) @ w, (3, 3))
    graph = open_model(net, (3, 3)).record()
    assert {n.op.call for n in graph.nodes if isinstance(n.op, ops.Opaque)} == {"Cholesky"}


def test_a_branch_on_data_is_the_one_the_data_take():
    net = Net(lambda w, x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x * w), lambda: tf.cos(x * w)), (3,))
    for sign, fn in ((1.0, "sin"), (-1.0, "cos")):
        graph = open_model(net, np.full((3,), sign, np.float32)).record()
        assert [n.op.fn for n in graph.nodes] == ["mul", fn]
        assert "branch that depends on data" in graph.notes[0]


def test_dropout_is_one_node_and_states_written_in_a_run_are_left_alone():
    seen = tf.Variable(0.0)

    def fn(w, x):
        seen.assign_add(1.0)
        return tf.nn.dropout(x * w, 0.25)

    graph = open_model(Net(fn, (3,)), (2, 3)).record()
    assert ops.Dropout(0.25) in [n.op for n in graph.nodes]
    assert float(seen) == 0.0

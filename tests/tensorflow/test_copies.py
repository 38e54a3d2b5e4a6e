"""``initialized`` leaves a ``tf.Module`` as it was, and refuses a function whose variables lie elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import anyinit


class Net(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones((8, 16)), name="w")
        self.v = tf.Variable(tf.ones((16, 3)), name="v")

    @tf.function
    def __call__(self, x):
        return tf.nn.relu(x @ self.w) @ self.v


def test_the_copy_computes_with_new_variables_and_the_module_keeps_its_own():
    net = Net()
    new, _ = anyinit.initialized(net, (16, 8), seed=0)
    np.testing.assert_array_equal(net.w.numpy(), 1)
    x = np.ones((2, 8), np.float32)
    np.testing.assert_allclose(new(x), np.maximum(x @ new.w.numpy(), 0) @ new.v.numpy(), atol=1e-5)
    assert not np.array_equal(new.w.numpy(), net.w.numpy())


def test_a_function_is_refused_and_its_variables_left_alone():
    net = Net()
    with pytest.raises(anyinit.ConfigError, match=r"tf\.function.*Pass the tf\.Module"):
        anyinit.initialized(tf.function(lambda x: x @ net.w), (16, 8), seed=0)
    np.testing.assert_array_equal(net.w.numpy(), 1)

"""Every translation computes what JAX computes: graphs are evaluated by an independent NumPy reading."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from graph_numbers import evaluate

jnp = pytest.importorskip("jax.numpy")
import jax  # noqa: E402
from jax import lax  # noqa: E402

from anyinit._frameworks.jax import open_model  # noqa: E402
from anyinit._graph import ops  # noqa: E402

RNG = np.random.default_rng(0)


def arr(*shape):
    return jnp.asarray(RNG.standard_normal(shape), jnp.float32)


PER_COLUMN = arr(4)


def conv(lhs, rhs, out, **options):
    return lambda w, x: lax.conv_general_dilated(x, w, dimension_numbers=(lhs, rhs, out), **options)


def grad_of_conv(w, x):
    """The backward pass of a strided convolution: dilated, transposed and batch-grouped ones."""

    def loss(w, x):
        y = lax.conv_general_dilated(x, w, (2, 2), ((1, 1), (0, 1)), feature_group_count=2)
        return jnp.sum(jnp.sin(y))

    return jax.grad(loss, (0, 1))(w, x)


CASES = {
    "a matrix product": (lambda w, x: x @ w, (3, 4), (5, 3)),
    "a weight in front": (lambda w, x: w @ x.T, (4, 3), (5, 3)),
    "heads by einsum": (lambda w, x: jnp.einsum("btd,dhk->bhtk", x, w), (6, 2, 3), (2, 5, 6)),
    "an ensemble": (jax.vmap(lambda w, x: x @ w, (0, None)), (3, 4, 2), (5, 4)),
    "activations by activations": (lambda w, x: jnp.einsum("bqd,bkd->bqk", x @ w, x), (3, 3), (2, 4, 3)),
    "channels first": (conv("NCHW", "OIHW", "NCHW", window_strides=(1, 2), padding="SAME"), (5, 3, 3, 3), (2, 3, 7, 8)),
    "channels last": (conv("NHWC", "HWIO", "NHWC", window_strides=(2, 1), padding="VALID"), (3, 2, 3, 4), (2, 7, 8, 3)),
    "dilated": (
        conv("NHWC", "HWIO", "NHWC", window_strides=(1, 1), padding=((2, 1), (0, 3)), rhs_dilation=(2, 3)),
        (3, 2, 3, 4),
        (2, 9, 8, 3),
    ),
    "transposed": (
        conv("NHWC", "HWIO", "NHWC", window_strides=(1, 1), padding=((1, 2), (2, 2)), lhs_dilation=(2, 3)),
        (3, 3, 3, 4),
        (2, 4, 5, 3),
    ),
    "negative padding": (
        conv("NHWC", "HWIO", "NHWC", window_strides=(1, 1), padding=((-1, 2), (0, -2))),
        (3, 3, 3, 4),
        (2, 7, 8, 3),
    ),
    "grouped": (
        conv("NHWC", "HWIO", "NHWC", window_strides=(1, 1), padding="SAME", feature_group_count=2),
        (3, 3, 2, 6),
        (2, 5, 5, 4),
    ),
    "depthwise, channels first": (
        conv("NCH", "OIH", "NCH", window_strides=(1,), padding="SAME", feature_group_count=4),
        (8, 1, 3),
        (2, 4, 6),
    ),
    "the backward pass of a convolution": (grad_of_conv, (4, 2, 3, 2), (3, 4, 6, 5)),
    "reductions": (lambda w, x: [x.sum(0), x.max((0, 2)), x.min(1), x.prod(2), x.mean((1, 2))], (1,), (3, 4, 2)),
    "a variance": (lambda w, x: x.var(-1, keepdims=True) * w, (1,), (3, 4)),
    "max pooling": (
        lambda w, x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"),
        (1,),
        (2, 7, 6, 3),
    ),
    "average pooling": (
        lambda w, x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 1, 2, 1), "SAME") / 6.0,
        (1,),
        (2, 7, 6, 3),
    ),
    "sums of windows": (
        lambda w, x: lax.reduce_window(x, 0.0, lax.add, (1, 3), (1, 2), "VALID", window_dilation=(1, 2)),
        (1,),
        (2, 9),
    ),
    "softmax": (lambda w, x: jax.nn.softmax(x @ w, axis=0), (3, 4), (5, 3)),
    "softmax with a mask": (lambda w, x: jax.nn.softmax(jnp.where(jnp.tri(4) > 0, x, -1e9)), (1,), (2, 4, 4)),
    "log softmax": (lambda w, x: jax.nn.log_softmax(x @ w), (3, 4), (5, 3)),
    "log sum exp": (lambda w, x: jax.nn.logsumexp(x @ w, axis=-1), (3, 4), (5, 3)),
    "activations": (
        lambda w, x: [f(x) for f in (jax.nn.gelu, jax.nn.silu, jax.nn.softplus, jax.nn.elu, jax.nn.mish, jax.nn.selu)],
        (1,),
        (3, 4),
    ),
    "more activations": (
        lambda w, x: [f(x) for f in (jax.nn.relu6, jax.nn.leaky_relu, jax.nn.hard_tanh, jax.nn.soft_sign, jnp.cbrt)],
        (1,),
        (3, 4),
    ),
    "powers": (lambda w, x: [x**2, x**3, x**-1, jnp.abs(x) ** 2.5, jnp.abs(x) ** w], (4,), (3, 4)),
    "rounding and comparing": (lambda w, x: [jnp.floor(x), jnp.round(x), x > w, (x < 0) & (x > -1)], (4,), (3, 4)),
    "clamping": (lambda w, x: [jnp.clip(x, -0.5, 0.3), jnp.clip(x, w, 1.0), jnp.maximum(x, w)], (4,), (3, 4)),
    "choices": (lambda w, x: jnp.where(x > 0, x, w * x), (4,), (3, 4)),
    "shapes": (
        lambda w, x: [x.reshape(4, -1), x.transpose(2, 0, 1), x[:, None], x[..., None, :], x.reshape(3, 1, 4, 2)],
        (1,),
        (3, 4, 2),
    ),
    "a bias per channel": (lambda w, x: x + w[:, None, None], (4,), (2, 4, 3, 3)),
    "broadcasting": (lambda w, x: jnp.broadcast_to(w[:, None], (4, 3)) @ x, (4,), (3, 2)),
    "joining": (lambda w, x: [jnp.concatenate([x, x + 1], 1), jnp.stack([x, 2 * x], 1)], (1,), (3, 4)),
    "splitting": (lambda w, x: [*jnp.split(x, [1, 3], 1), *jnp.unstack(x)], (1,), (3, 4)),
    "repeating": (lambda w, x: [jnp.tile(x, (2, 3)), jnp.repeat(x, 3, 1), jnp.tile(w, (3, 1))], (4,), (2, 4)),
    "slices": (lambda w, x: [x[1], x[:, ::2], x[-2:, 1:3], x[:, -1]], (1,), (3, 4)),
    "reversal": (lambda w, x: x[::-1], (1,), (3, 4)),
    "rolling": (lambda w, x: jnp.roll(x, 1, 0), (1,), (3, 4)),
    "padding": (lambda w, x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=0.5), (1,), (3, 4)),
    "interior padding": (lambda w, x: lax.pad(x, 0.0, ((1, 0, 2), (-1, 2, 1))), (1,), (3, 4)),
    "writing a column": (lambda w, x: x.at[:, 1].set(w), (3,), (3, 4)),
    "writing a block": (lambda w, x: lax.dynamic_update_slice(x, w, (1, 2)), (2, 2), (3, 5)),
    "reading a block": (lambda w, x: lax.dynamic_slice(x, (1, 2), (2, 2)) @ w, (2, 2), (3, 5)),
    "running sums": (lambda w, x: [jnp.cumsum(x, 1), jnp.cumprod(x, 0)], (1,), (3, 4)),
    "sorting": (lambda w, x: jnp.sort(x, 1), (1,), (3, 4)),
    "the largest": (lambda w, x: lax.top_k(x, 2)[0], (1,), (3, 4)),
    "a table by constant places": (lambda w, x: x @ w[np.array([2, 0, 1, 2])].T, (3, 4), (5, 4)),
    "columns by constant places": (lambda w, x: x[:, np.array([3, 0, 0])], (1,), (5, 4)),
    "pairs of places": (lambda w, x: x[np.arange(3), np.array([2, 0, 1])], (1,), (3, 4)),
    "a loop over layers": (lambda w, x: lax.scan(lambda h, w: (jnp.tanh(h @ w), h), x, w), (5, 3, 3), (2, 3)),
    "a loop backwards": (
        lambda w, x: lax.scan(lambda h, x: (h * 0.5 + x, h), jnp.zeros(4), x, reverse=True),
        (1,),
        (3, 4),
    ),
    "a counted loop": (lambda w, x: lax.fori_loop(0, 3, lambda i, h: jnp.sin(h @ w) + i, x), (3, 3), (2, 3)),
    "remat and jit": (lambda w, x: jax.jit(jax.checkpoint(lambda x: jnp.sin(x @ w)))(x), (3, 3), (2, 3)),
    "a Fourier transform": (lambda w, x: jnp.abs(jnp.fft.rfft(x)), (1,), (3, 8)),
}


def recorded(fn, w, *xs):
    runtime = open_model(fn, xs, params={"w": w})
    graph, seen = runtime.record(), {}
    runtime.run({}, range(len(graph.values)), lambda i, a: seen.update({i: a}))
    env = evaluate(graph, {"w": w, **{f"input.{i}": x for i, x in enumerate(xs)}})
    return graph, seen, env


@pytest.mark.parametrize("name", CASES)
def test_translation(name):
    fn, w_shape, x_shape = CASES[name]
    w, x = arr(*w_shape), arr(*x_shape)
    graph, seen, env = recorded(lambda p, x: fn(p["w"], x), w, x)
    assert not [n for n in graph.nodes if isinstance(n.op, ops.Opaque)]
    real = jax.tree_util.tree_leaves(fn(w, x))
    for value, out in zip(graph.outputs, real, strict=True):
        np.testing.assert_allclose(env[value], out, rtol=2e-4, atol=2e-5)
    for value in set(seen) & set(env):
        np.testing.assert_allclose(seen[value], env[value], rtol=2e-4, atol=2e-5)


def test_rows_of_a_table_are_looked_up_whatever_the_spelling():
    ids = np.array([[1, 2], [0, 3]])
    table = arr(4, 3)
    for fn in (
        lambda p, i: p["w"][i],
        lambda p, i: jnp.take(p["w"], i, axis=0),
        lambda p, i: jax.vmap(jax.vmap(lambda j: p["w"][j]))(i),
        lambda p, i: jnp.take(p["w"].T, i, axis=1).transpose(1, 2, 0),
    ):
        graph, _, env = recorded(fn, table, ids)
        lookup = next(n for n in graph.nodes if isinstance(n.op, ops.Lookup))
        assert graph.leaves[lookup.inputs[1]].role == "input"
        np.testing.assert_allclose(env[graph.outputs[0]], table[ids], rtol=1e-6)


def test_entries_picked_along_an_axis_are_a_gather():
    x, index = arr(3, 4), np.array([[1], [0], [3]])
    graph, _, env = recorded(lambda p, x, i: jnp.take_along_axis(x * p["w"], i, -1), PER_COLUMN, x, index)
    assert isinstance(graph.nodes[-1].op, ops.Gather) and graph.nodes[-1].op.dim == 1
    np.testing.assert_allclose(env[graph.outputs[0]], jnp.take_along_axis(x * PER_COLUMN, index, -1), rtol=1e-6)


NORMS = {
    "two passes": lambda x, g: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * g,
    "one pass": lambda x, g: (
        (x - x.mean(-1, keepdims=True))
        * (lax.rsqrt(jnp.maximum((x * x).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2, 0) + 1e-5) * g)
    ),
    "per example": jax.vmap(lambda x, g: g * ((x - x.mean()) * lax.rsqrt(jnp.var(x) + 1e-5)), (0, None)),
    "by deviations": lambda x, g: (
        (d := x - jnp.mean(x, -1, keepdims=True)) * g / jnp.sqrt(jnp.mean(d**2, -1, keepdims=True) + 1e-5)
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_normalization_is_recognised_however_it_is_written(name):
    graph, _, env = recorded(lambda p, x: NORMS[name](x, p["w"]), arr(6), 3 + arr(5, 6))
    found = [n.op for n in graph.nodes if isinstance(n.op, ops.Normalize)]
    if name != "by deviations":
        assert found == [ops.Normalize((1,), 1e-5)]
        assert len(graph.nodes) == 2
    x = env[next(i for i, leaf in graph.leaves.items() if leaf.role == "input")]
    w = env[next(i for i, leaf in graph.leaves.items() if leaf.role == "param")]
    np.testing.assert_allclose(env[graph.outputs[0]], NORMS[name](x, w), rtol=1e-3, atol=1e-4)


def test_root_mean_square_normalization_keeps_the_mean():
    graph, _, _ = recorded(
        lambda p, x: x * lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * p["w"], arr(6), arr(5, 6)
    )
    assert [n.op for n in graph.nodes if isinstance(n.op, ops.Normalize)] == [ops.Normalize((1,), 1e-6, False)]


def test_group_normalization_regroups_the_channels():
    nn = pytest.importorskip("flax.linen")
    x = arr(2, 3, 3, 8)
    runtime = open_model(nn.GroupNorm(4), (x,))
    graph = runtime.record()
    assert [type(n.op) for n in graph.nodes] == [ops.Reshape, ops.Normalize, ops.Reshape, ops.Pointwise, ops.Pointwise]
    env = evaluate(graph, {"input.0": x, "scale": np.ones(8), "bias": np.zeros(8)})
    expected = nn.GroupNorm(4).apply({"params": {"scale": np.ones(8), "bias": np.zeros(8)}}, x)
    np.testing.assert_allclose(env[graph.outputs[0]], expected, atol=1e-4)


def test_a_deviation_along_the_wrong_axis_of_a_square_signal_is_no_normalization():
    def net(p, x):
        return (x - x.mean(1)) * lax.rsqrt(x.var(1) + 1e-5) * p["w"]

    graph, _, _ = recorded(net, arr(4), arr(4, 4))
    assert not [n for n in graph.nodes if isinstance(n.op, ops.Normalize)]


def test_noise_is_recognised_from_bits_to_numbers():
    key = jax.random.key(3)

    def net(p, x):
        normal = jax.random.normal(key, (4,))
        uniform = jax.random.uniform(key, (4,), minval=-2.0, maxval=3.0)
        coin = jax.random.bernoulli(key, 0.3, (4,))
        return x * p["w"] + (normal * 2.0 + 1.0), x + uniform, jnp.where(coin, x, 0.0)

    graph = open_model(net, (2, 4), params={"w": arr(4)}).record()
    found = {n.op.kind: n.op for n in graph.nodes if isinstance(n.op, ops.Random)}
    assert found["uniform"] == ops.Random("uniform", (-2.0, 3.0), (4,))
    assert found["bernoulli"] == ops.Random("bernoulli", (0.3,), (4,))
    np.testing.assert_allclose(found["normal"].params, (1.0, 2.0), rtol=1e-6)


@pytest.mark.parametrize("spelling", ["where", "product"])
def test_dropout_is_recognised_from_its_mask(spelling):
    key = jax.random.key(3)

    def net(p, x):
        keep = jax.random.bernoulli(key, 0.8, (2, 1, 4))
        x = x * p["w"]
        return jnp.where(keep, x / 0.8, 0.0) if spelling == "where" else keep * x / 0.8

    graph = open_model(net, (2, 3, 4), params={"w": arr(4)}).record()
    assert [n.op for n in graph.nodes if isinstance(n.op, ops.Dropout)] == [ops.Dropout(0.2, (0, 2))]


def test_constants_are_folded_and_masks_stand_as_data():
    def net(p, x):
        mask = jnp.tril(jnp.ones((4, 4))) * jnp.exp(-1.0)
        return (x @ p["w"]) * mask

    graph = open_model(net, (4, 3), params={"w": arr(3, 4)}).record()
    const = next(leaf for leaf in graph.leaves.values() if leaf.role == "const")
    np.testing.assert_allclose(const.data, np.tril(np.ones((4, 4))) * np.exp(-1), rtol=1e-6)
    assert [type(n.op) for n in graph.nodes] == [ops.Contract, ops.Pointwise]


def test_a_mask_of_sixty_million_entries_is_made_without_its_intermediates():
    def net(p, x):
        rows, columns = (lax.broadcasted_iota(jnp.int32, (8192, 8192), d) for d in (0, 1))
        return jnp.where(rows + 0 >= columns, x * p["w"], -1e9)

    graph = open_model(net, (2, 8192, 8192), params={"w": arr(8192)}).record()
    const = next(leaf for leaf in graph.leaves.values() if leaf.role == "const")
    assert const.data.shape == (8192, 8192)
    assert const.data[5, 4:7].tolist() == [True, True, False]


def test_scalars_are_read_as_the_simplest_number_of_their_type():
    graph = open_model(
        lambda p, x: jax.nn.gelu(x * p["w"]) / np.float32(np.sqrt(8)), (3,), params={"w": arr(3)}
    ).record()
    numbers = {a for n in graph.nodes for a in getattr(n.op, "args", ()) if a is not None}
    assert {0.044715, np.sqrt(2 / np.pi), np.sqrt(8)} <= numbers


def test_a_branch_on_data_is_the_one_the_data_take():
    def net(p, x):
        return lax.cond(jnp.sum(x) > 0, jnp.sin, jnp.cos, x * p["w"])

    for sign, fn in ((1.0, "sin"), (-1.0, "cos")):
        graph = open_model(net, (np.full((3,), sign, np.float32),), params={"w": np.ones(3, np.float32)}).record()
        assert [n.op.fn for n in graph.nodes] == ["mul", fn]
        assert "branch that depends on data" in graph.notes[0]


def test_an_unknown_operation_is_opaque_and_named():
    graph = open_model(
        lambda p, x: jnp.linalg.cholesky(x @ x.T + jnp.eye(3)) @ p["w"], (3, 3), params={"w": arr(3)}
    ).record()
    names = {n.op.call for n in graph.nodes if isinstance(n.op, ops.Opaque)}
    assert names == {"cholesky"}


def test_a_long_loop_is_cut_and_the_report_is_told():
    def body(w, h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.sum()

    graph = open_model(
        lambda p, x: lax.scan(partial(body, p["w"]), jnp.ones(3), x)[1], (5000, 3), params={"w": arr(3, 3)}
    ).record()
    assert sum(isinstance(n.op, ops.Contract) for n in graph.nodes) == 64
    assert graph.values[graph.outputs[0]].shape == (5000,)
    assert "5000 steps" in graph.notes[0]

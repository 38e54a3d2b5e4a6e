"""Flax linen, NNX, Equinox, Haiku and plain functions: names, roles, what writing returns, and inputs."""

from __future__ import annotations

import numpy as np
import pytest

jnp = pytest.importorskip("jax.numpy")
eqx = pytest.importorskip("equinox")
nn = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
hk = pytest.importorskip("haiku")
import jax  # noqa: E402

from anyinit._frameworks.jax import open_model  # noqa: E402
from anyinit._graph.ops import Contract, Dropout, Lookup, Normalize, Opaque, Pool, Softmax  # noqa: E402
from anyinit.errors import BackendNotFoundError, ConfigError, PlanError, TraceError  # noqa: E402


def kinds(graph, *wanted):
    return [type(n.op) for n in graph.nodes if isinstance(n.op, wanted)]


def spec(*shape, dtype=np.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(h, mask=mask)
        h = nn.gelu(nn.Dense(64)(nn.LayerNorm()(x)))
        return x + nn.Dropout(0.1, deterministic=False)(nn.Dense(16)(h))


class GPT(nn.Module):
    layers: int = 2

    @nn.compact
    def __call__(self, ids):
        embed = nn.Embed(50, 16)
        x = embed(ids) + self.param("positions", nn.initializers.normal(0.02), (ids.shape[1], 16))
        for _ in range(self.layers):
            x = Block()(x, nn.make_causal_mask(ids))
        return embed.attend(nn.LayerNorm()(x))


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(8, (3, 3), use_bias=False)(x)))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.Conv(16, (3, 3), strides=2, feature_group_count=4)(x)
        return nn.Dense(5)(x.mean((1, 2)))


def test_a_small_gpt_in_linen_has_norms_attention_and_a_tied_table():
    graph = open_model(GPT(), spec(2, 6, dtype=np.int32)).record()
    assert kinds(graph, Opaque) == []
    assert len(kinds(graph, Normalize)) == 5
    assert kinds(graph, Softmax) == [Softmax] * 2
    assert kinds(graph, Dropout) == [Dropout] * 2
    table = next(i for i, leaf in graph.params() if leaf.name == "Embed_0.embedding")
    users = [n for n in graph.nodes if table in n.inputs]
    assert [type(n.op) for n in users] == [Lookup, Contract]
    assert all(n.inputs == (n.inputs[0], table) for n in users[1:])
    assert graph.unused == ()


def test_dropout_keeps_its_rate_and_the_norms_their_epsilon():
    graph = open_model(GPT(layers=1), spec(2, 6, dtype=np.int32)).record()
    assert [n.op for n in graph.nodes if isinstance(n.op, Dropout)] == [Dropout(0.1)]
    assert {n.op for n in graph.nodes if isinstance(n.op, Normalize)} == {Normalize((2,), 1e-6, True)}


def test_a_convolution_keeps_its_own_order_of_dimensions_and_groups_are_a_batch_label():
    graph = open_model(CNN(), (2, 8, 8, 4)).record()
    convs = [n for n in graph.nodes if isinstance(n.op, Contract) and n.op.windows]
    first, second = convs
    batch, rows, columns, channel = first.op.a
    assert first.op.b == (first.op.windows[0].tap, first.op.windows[1].tap, channel, first.op.b[-1])
    assert first.op.out == (batch, first.op.windows[0].out, first.op.windows[1].out, first.op.b[-1])
    assert (rows, columns) == tuple(w.a for w in first.op.windows)
    shared = set(second.op.a) & set(second.op.b) & set(second.op.out)
    assert len(shared) == 1
    assert graph.values[second.inputs[1]].shape == (3, 3, 2, 4, 4)
    assert [w.stride for w in second.op.windows] == [2, 2]


def test_batch_statistics_are_used_in_training_and_running_ones_are_no_parameters():
    runtime = open_model(CNN(), (4, 8, 8, 4))
    graph = runtime.record()
    norm = next(n for n in graph.nodes if isinstance(n.op, Normalize))
    assert norm.op.dims == (0, 1, 2)
    assert kinds(graph, Pool) == [Pool]
    assert not any("batch_stats" in leaf.name for leaf in graph.leaves.values())
    runtime.write({"BatchNorm_0.scale": np.full(8, 2.0)})
    assert set(runtime.result) == {"params", "batch_stats"}
    np.testing.assert_array_equal(runtime.result["batch_stats"]["BatchNorm_0"]["var"], np.ones(8))


def test_linen_accepts_the_inner_parameters_alone_and_gives_them_back_alone():
    model = nn.Dense(3)
    params = model.init(jax.random.key(0), np.zeros((1, 4)))["params"]
    runtime = open_model(model, (2, 4), params=params)
    runtime.write({"kernel": np.ones((4, 3))})
    assert set(runtime.result) == {"kernel", "bias"}
    np.testing.assert_array_equal(runtime.result["kernel"], np.ones((4, 3)))
    assert np.asarray(params["kernel"]).std() > 0


def test_nnx_is_changed_in_place_and_shared_variables_are_one_parameter():
    class Tied(nnx.Module):
        def __init__(self, rngs):
            self.a, self.b = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)
            self.b.kernel = self.a.kernel
            self.drop = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.b(self.drop(nnx.relu(self.a(x))))

    model = Tied(nnx.Rngs(0))
    runtime = open_model(model, (3, 4))
    graph = runtime.record()
    assert [leaf.name for _, leaf in graph.params()] == ["a.kernel", "a.bias", "b.bias"]
    assert [n.op for n in graph.nodes if isinstance(n.op, Dropout)] == [Dropout(0.5)]
    counts = int(np.asarray(model.drop.rngs.count[...]))
    runtime.run({}, graph.outputs, lambda value, array: None)
    assert int(np.asarray(model.drop.rngs.count[...])) == counts
    runtime.write({"a.kernel": np.eye(4)})
    assert runtime.result is model
    np.testing.assert_array_equal(model.b.kernel[...], np.eye(4))


def test_haiku_returns_parameters_with_or_without_state_as_they_were_given():
    def net(x):
        x = hk.BatchNorm(True, True, 0.9)(hk.Linear(6)(x), is_training=True)
        return hk.Linear(2)(jnp.tanh(x))

    model = hk.transform_with_state(net)
    params, state = model.init(jax.random.PRNGKey(0), np.zeros((4, 3), np.float32))
    names = {"linear.w", "linear.b", "batch_norm.scale", "batch_norm.offset", "linear_1.w", "linear_1.b"}
    runtime = open_model(model, (4, 3), params=params)
    assert {leaf.name for _, leaf in runtime.record().params()} == names
    runtime.write({"linear.w": np.ones((3, 6))})
    assert set(runtime.result) == set(params)
    both = open_model(model, (4, 3), params=(params, state))
    both.write({"linear.w": np.ones((3, 6))})
    assert isinstance(both.result, tuple) and set(both.result[1]) == set(state)
    np.testing.assert_array_equal(both.result[0]["linear"]["w"], np.ones((3, 6)))


def test_haiku_without_parameters_is_drawn_by_haiku_where_nothing_is_written():
    model = hk.transform(lambda x: hk.nets.MLP([5, 2])(x))
    runtime = open_model(model, (4, 3))
    runtime.write({"mlp/~/linear_0.w": np.zeros((3, 5))})
    assert not np.asarray(runtime.result["mlp/~/linear_0"]["w"]).any()
    assert np.asarray(runtime.result["mlp/~/linear_1"]["w"]).any()


def test_a_function_of_a_list_of_pairs_names_its_parameters_by_place():
    params = [(np.ones((3, 4), np.float32), np.zeros(4, np.float32)), (np.ones((4, 1), np.float32), np.zeros(1))]

    def net(params, x):
        for w, b in params[:-1]:
            x = jax.nn.silu(x @ w + b)
        return x @ params[-1][0] + params[-1][1]

    runtime = open_model(net, (5, 3), params=params)
    assert [leaf.name for _, leaf in runtime.record().params()] == ["0.0", "0.1", "1.0", "1.1"]
    runtime.write({"0.1": np.full(4, 0.25)})
    np.testing.assert_array_equal(runtime.result[0][1], np.full(4, 0.25))
    assert not params[0][1].any()


def test_a_function_of_flax_variables_trains_only_what_flax_trains():
    model = CNN()
    variables = model.init(jax.random.key(0), np.zeros((1, 8, 8, 4)), False)
    graph = open_model(lambda v, x: model.apply(v, x, False), (4, 8, 8, 4), params=variables).record()
    roles = {leaf.name: leaf.role for leaf in graph.leaves.values()}
    assert roles["Conv_0.kernel"] == "param"
    assert roles["batch_stats.BatchNorm_0.mean"] == "buffer"
    definition, state = nnx.split(nnx.BatchNorm(4, rngs=nnx.Rngs(0), use_running_average=True))
    graph = open_model(lambda s, x: nnx.merge(definition, s)(x), (4, 4), params=state).record()
    roles = {leaf.name: leaf.role for leaf in graph.leaves.values()}
    assert roles == {"input.0": "input", "scale": "param", "bias": "param", "mean": "buffer", "var": "buffer"}


def test_an_abstract_tree_is_recorded_and_filled_by_writing():
    tree = {"w": spec(3, 4), "b": spec(4)}
    runtime = open_model(lambda p, x: jnp.tanh(x @ p["w"] + p["b"]), (5, 3), params=tree)
    runtime.record()
    with pytest.raises(PlanError, match="abstract"):
        runtime.read(["w"])
    runtime.write({"w": np.ones((3, 4)), "b": np.zeros(4)})
    assert runtime.result["w"].shape == (3, 4)


def test_a_batch_may_be_keywords_or_one_dictionary():
    def net(params, batch):
        return batch["x"] @ params + batch["y"]

    batch = {"x": np.ones((2, 3), np.float32), "y": np.ones((2, 1), np.float32)}
    whole = open_model(net, batch, params=np.ones((3, 1), np.float32)).record()
    spread = open_model(lambda p, x, y: x @ p + y, batch, params=np.ones((3, 1), np.float32)).record()
    inputs = [sorted(leaf.name for leaf in g.leaves.values() if leaf.role == "input") for g in (whole, spread)]
    assert inputs == [["input.0.x", "input.0.y"], ["x", "y"]]


def test_a_forward_function_sees_the_model_with_its_weights():
    class Net(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x):
            return jnp.sin(self.layer(x))

    def residual(model, points):
        return jax.vmap(jax.grad(lambda x: model(x)[0]))(points)

    runtime = open_model(Net(eqx.nn.Linear(2, 1, key=jax.random.key(0))), (7, 2), forward=residual)
    graph = runtime.record()
    assert graph.values[graph.outputs[0]].shape == (7, 2)
    assert {leaf.name for _, leaf in graph.params()} == {"layer.weight", "layer.bias"}


def test_an_equinox_module_fed_as_many_examples_as_features_is_still_mapped():
    model = eqx.nn.MLP(4, 3, 8, 1, key=jax.random.key(0))
    runtime = open_model(model, (4, 4))
    graph = runtime.record()
    assert "one example at a time" in graph.notes[0]
    assert graph.values[graph.outputs[0]].shape == (4, 3)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.head = nnx.Linear(28 * 28 * 4, 2, rngs=rngs)

    def __call__(self, x):
        x = self.conv(x)
        return self.head(x.reshape(x.shape[0], -1))


@pytest.mark.parametrize(
    ("build", "params", "shape", "dtype"),
    [
        (lambda: eqx.nn.MLP(5, 3, 8, 1, key=jax.random.key(0)), None, (16, 5), "float32"),
        (lambda: Net(nnx.Rngs(0)), None, (4, 28, 28, 3), "float32"),
        (
            lambda: GPT(),
            lambda m: m.init({"params": jax.random.key(0), "dropout": jax.random.key(0)}, np.zeros((1, 16), int)),
            (16, 16),
            "int32",
        ),
        (lambda: eqx.nn.Embedding(9, 4, key=jax.random.key(0)), None, (16,), "int32"),
        (
            lambda: lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"],
            lambda m: {"a": np.ones((7, 4)), "b": np.ones((4, 2))},
            (16, 7),
            "float32",
        ),
    ],
    ids=["equinox", "nnx images", "linen ids", "equinox ids", "function"],
)
def test_an_input_is_read_off_the_first_weight_and_the_report_says_which(build, params, shape, dtype):
    model = build()
    graph = open_model(model, params=params and params(model)).record()
    value = next(i for i, leaf in graph.leaves.items() if leaf.role == "input")
    assert (graph.values[value].shape, graph.leaves[value].dtype) == (shape, dtype)
    assert graph.notes[0].startswith("no input was given")


@pytest.mark.parametrize("given", [(6,), (5, 6)])
def test_an_equinox_module_with_dropout_is_given_a_key_for_every_example(given):
    class Dropped(eqx.Module):
        layer: eqx.nn.Linear
        drop: eqx.nn.Dropout

        def __call__(self, x, *, key=None):
            return self.drop(jax.nn.relu(self.layer(x)), key=key)

    model = Dropped(eqx.nn.Linear(6, 4, key=jax.random.key(0)), eqx.nn.Dropout(0.25))
    graph = open_model(model, given).record()
    assert [n.op for n in graph.nodes if isinstance(n.op, Dropout)] == [Dropout(0.25)]


def test_closed_over_weights_are_named_as_out_of_reach():
    table = jnp.asarray(np.random.default_rng(0).standard_normal((3, 3)), jnp.float32)
    graph = open_model(lambda p, x: (x @ table) @ p, (2, 3), params=np.ones((3, 1), np.float32)).record()
    assert any("an array of shape (3, 3) is closed over" in note for note in graph.notes)


@pytest.mark.parametrize(
    ("model", "given", "error", "words"),
    [
        (nn.Dense(3), None, ConfigError, "cannot be inferred"),
        (nn.Dense(3), np.zeros((0, 3)), ConfigError, "empty"),
        (nn.Dense(3), np.full((2, 3), np.nan), ConfigError, "not finite"),
        (nn.Dense(3), (2, -3), ConfigError, "positive"),
        (nn.Dense(3), "text", ConfigError, "no input"),
        (object(), (2, 3), BackendNotFoundError, "no model"),
    ],
)
def test_unusable_input_is_refused_with_its_reason(model, given, error, words):
    with pytest.raises(error, match=words):
        open_model(model, given)


def test_a_model_that_cannot_take_its_input_says_so_and_chains_its_own_error():
    params = nn.Dense(3).init(jax.random.key(0), np.zeros((1, 4)))
    with pytest.raises(TraceError, match="could not be run") as caught:
        open_model(nn.Dense(3), (2, 5), params=params).record()
    assert caught.value.__cause__ is not None
    with pytest.raises(TraceError, match="could not be run"):
        open_model(nn.Conv(3, (2, 2)), (2,))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kernel": np.ones((3, 3))}, "shape"),
        ({"kernel": np.full((4, 3), np.inf)}, "not finite"),
        ({"kernel": np.ones((4, 3)), "gamma": np.ones(3)}, "no such parameter"),
    ],
)
def test_a_write_that_does_not_fit_changes_nothing(values, words):
    params = nn.Dense(3).init(jax.random.key(0), np.zeros((1, 4)))
    runtime = open_model(nn.Dense(3), (2, 4), params=params)
    before = runtime.read(["kernel"])["kernel"]
    with pytest.raises(PlanError, match=words):
        runtime.write(values)
    assert runtime.result is None
    np.testing.assert_array_equal(runtime.read(["kernel"])["kernel"], before)


def test_half_types_are_read_as_float32_and_written_to_the_nearest():
    params = {"w": jnp.ones((2, 2), jnp.bfloat16)}
    runtime = open_model(lambda p, x: x @ p["w"], (3, 2), params=params)
    value = 1 + 3 / 512
    runtime.write({"w": np.full((2, 2), value)})
    assert runtime.result["w"].dtype == jnp.bfloat16
    read = runtime.read(["w"])["w"]
    assert read.dtype == np.float32
    assert set(read.ravel()) == {1 + 1 / 128}


def test_a_haiku_function_without_a_key_is_initialized_like_one_with():
    x = np.ones((8, 5), np.float32)
    import haiku

    import anyinit

    with_key = haiku.transform(lambda x: haiku.nets.MLP([16, 3])(x))
    without = haiku.without_apply_rng(with_key)
    params = with_key.init(jax.random.key(0), x)
    one, _ = anyinit.initialize_params(with_key, params, x, seed=0)
    two, _ = anyinit.initialize_params(without, params, x, seed=0)
    assert jax.tree_util.tree_all(jax.tree_util.tree_map(np.array_equal, one, two))
    assert without.apply(two, x).shape == (8, 3)

"""Roles come from use alone."""

from __future__ import annotations

import pytest

from anyinit._graph import ops
from anyinit._graph.graph import INT, Graph
from anyinit._solve.roles import Uses
from small_graphs import Net


def role(graph: Graph, name: str) -> set[str]:
    uses = Uses(graph)
    leaf = next(i for i, leaf in graph.params() if leaf.name == name)
    return {uses.role(u) for u in uses.collect()[leaf]}


def test_what_is_contracted_is_a_weight_and_what_is_added_to_its_output_a_bias():
    net = Net()
    graph = net.graph(net.dense(net.input(8, 16), "one", 4))
    assert role(graph, "one.weight") == {"weight"}
    assert role(graph, "one.bias") == {"bias"}


def test_a_multiplier_is_a_gain_and_a_slope_a_slope():
    net = Net()
    x = net.both("mul", net.norm(net.input(8, 16)), net.param("gain", 16))
    x = net.op(ops.Pointwise("prelu", (None, None)), (x, net.param("slope", 1)), (8, 16))
    graph = net.graph(x)
    assert role(graph, "gain") == {"gain"}
    assert role(graph, "slope") == {"slope"}


def test_rows_fetched_for_data_are_a_table():
    net = Net()
    ids = net.input(4, 6, kind=INT)
    graph = net.graph(net.op(ops.Lookup(), (net.param("rows", 50, 16), ids), (4, 6, 16)))
    assert role(graph, "rows") == {"table"}


def test_a_token_stands_beside_data():
    net = Net()
    x, token = net.input(4, 6, 16), net.param("token", 1, 1, 16)
    wide = net.op(ops.Expand((4, 1, 16)), (token,), (4, 1, 16))
    graph = net.graph(net.op(ops.Concat(1), (wide, x), (4, 7, 16)))
    assert role(graph, "token") == {"token"}


def test_a_grid_added_to_tokens_is_a_position_and_a_vector_a_bias():
    net = Net()
    x = net.dense(net.input(4, 6, 12), "embed", 16)
    x = net.both("add", x, net.param("places", 6, 16))
    graph = net.graph(x)
    assert role(graph, "places") == {"position"}
    assert role(graph, "embed.bias") == {"bias"}


def test_a_grid_added_to_logits_is_a_bias_of_attention():
    net = Net()
    x = net.input(4, 6, 16)
    q, k = net.dense(x, "q", 16), net.dense(x, "k", 16)
    logits = net.op(ops.Contract((0, 1, 3), (0, 2, 3), (0, 1, 2)), (q, k), (4, 6, 6))
    graph = net.graph(net.op(ops.Softmax(2), (net.both("add", logits, net.param("relative", 6, 6)),), (4, 6, 6)))
    assert role(graph, "relative") == {"bias"}


@pytest.mark.parametrize("heads", ["free", "batch"])
def test_a_bias_of_every_head_is_a_bias_and_no_position(heads: str):
    net = Net()
    weight = net.param("weight", 4, 8, 16)  # heads, outputs, inputs
    if heads == "free":
        x = net.input(10, 16)
        y = net.op(ops.Contract((0, 3), (1, 2, 3), (0, 1, 2)), (x, weight), (10, 4, 8))
    else:
        x = net.input(10, 4, 16)
        y = net.op(ops.Contract((0, 1, 3), (1, 2, 3), (0, 1, 2)), (x, weight), (10, 4, 8))
    graph = net.graph(net.both("add", y, net.param("bias", 4, 8)))
    assert role(graph, "bias") == {"bias"}


def test_a_grid_over_an_axis_the_weight_does_not_know_is_a_position():
    net = Net()
    y = net.apply(net.input(10, 6, 16), net.param("weight", 8, 16))
    graph = net.graph(net.both("add", y, net.param("grid", 6, 8)))
    assert role(graph, "grid") == {"position"}


def test_a_weight_seen_through_moves_is_one_use_with_its_view():
    net = Net()
    stored = net.param("weight", 16, 4)
    turned = net.op(ops.Permute((1, 0)), (stored,), (4, 16))
    graph = net.graph(net.apply(net.input(8, 16), turned))
    (use,) = Uses(graph).collect()[next(i for i, _ in graph.params())]
    assert use.pure
    assert role(graph, "weight") == {"weight"}


def test_a_value_made_of_parameters_alone_does_not_fluctuate():
    from anyinit._solve.propagate import Walk

    net = Net()
    turned = net.op(ops.Permute((1, 0)), (net.param("weight", 16, 4),), (4, 16))
    noise = net.op(ops.Random("normal", (0.0, 1.0), (4, 16)), (), (4, 16))
    x = net.input(8, 16)
    hidden = net.apply(x, turned)
    made = net.made
    graph = Graph(tuple(made.values), dict(made.leaves), tuple(made.nodes), (hidden, noise))
    walk = Walk(graph, lambda i, leaf: None)  # type: ignore[arg-type, return-value]
    assert walk.fixed(turned) and walk.fixed(x)
    assert not walk.fixed(noise) and not walk.fixed(hidden)

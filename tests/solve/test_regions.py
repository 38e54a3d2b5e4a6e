"""Where a layer's level is set: behind what it alone feeds."""

from __future__ import annotations

from anyinit._graph import ops
from anyinit._graph.graph import Graph
from anyinit._solve.regions import Region, region
from anyinit._solve.roles import Uses
from small_graphs import Net


def of(graph: Graph, name: str) -> Region:
    leaf = next(i for i, leaf in graph.params() if leaf.name == name)
    node = next(n for n in graph.nodes if leaf in n.inputs)
    return region(Uses(graph), node.output)


def test_it_ends_behind_activation_and_pooling_and_starts_behind_the_bias():
    net = Net()
    x = net.input(4, 8, 6, 6)
    weight = net.param("conv", 12, 8, 1, 1)
    windows = tuple(ops.Window(d, 10 + d, 20 + d, 1) for d in (2, 3))
    y = net.op(ops.Contract((0, 1, 2, 3), (4, 1, 12, 13), (0, 4, 22, 23), windows), (x, weight), (4, 12, 6, 6))
    biased = net.both("add", y, net.param("bias", 12, 1, 1))
    bent = net.act("relu", biased)
    pooled = net.op(ops.Pool("max", (ops.PoolWindow(2, 2, 2), ops.PoolWindow(3, 2, 2))), (bent,), (4, 12, 3, 3))
    found = of(net.graph(net.op(ops.Reshape((4, 108)), (pooled,), (4, 108))), "conv")
    assert (found.output, found.curved, found.words) == (biased, True, ("relu",))
    assert found.end == pooled + 1


def test_a_layer_without_activation_is_set_at_its_own_output():
    net = Net()
    y = net.dense(net.input(8, 16), "one", 12)
    found = of(net.graph(net.dense(y, "two", 4)), "one.weight")
    assert (found.output, found.end, found.curved) == (y, y, False)


def test_a_gate_of_one_value_is_one_function():
    net = Net()
    y = net.dense(net.input(8, 16), "one", 12)
    gated = net.both("mul", y, net.act("sigmoid", y))
    found = of(net.graph(net.dense(gated, "two", 4)), "one.weight")
    assert found.end == gated
    assert found.words == ("sigmoid", "mul")


def test_a_branching_ends_it():
    net = Net()
    y = net.dense(net.input(8, 16), "one", 12)
    graph = net.graph(net.act("relu", y), net.act("tanh", y))
    assert of(graph, "one.weight").end == y


def test_a_normalization_ends_it():
    net = Net()
    y = net.dense(net.input(8, 16), "one", 12)
    found = of(net.graph(net.act("relu", net.norm(y))), "one.weight")
    assert found.end == y and not found.curved


def test_queries_are_set_at_the_logits_they_make():
    net = Net()
    x = net.input(4, 6, 16)
    k = net.dense(x, "k", 16, bias=False)
    q = net.dense(x, "q", 16, bias=False)
    logits = net.op(ops.Contract((0, 1, 3), (0, 2, 3), (0, 1, 2)), (q, k), (4, 6, 6))
    scaled = net.times(logits, 0.25)
    graph = net.graph(net.op(ops.Softmax(2), (scaled,), (4, 6, 6)))
    assert of(graph, "q.weight").end == scaled
    assert of(graph, "k.weight").end == k

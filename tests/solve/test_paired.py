"""Residual networks without normalization whose stream passes an activation are mirrored as one."""

from __future__ import annotations

import math

import pytest

from anyinit._graph.graph import Graph
from small_graphs import Net, Solved, solve


def network(
    fn: str = "relu", *, blocks: int = 6, width: int = 48, normed: bool = False, project: bool = False
) -> Graph:
    net = Net()
    x = net.act(fn, net.dense(net.input(64, 20), "stem", width))
    for k in range(blocks):
        y = net.norm(x) if normed else x
        y = net.dense(net.act(fn, net.dense(y, f"{k}.a", width)), f"{k}.b", width)
        skip = net.dense(x, f"{k}.s", width) if project and k == 2 else x
        x = net.act(fn, net.both("add", skip, y))
    return net.graph(net.dense(x, "head", 10))


def modes(found: Solved) -> dict[str, str]:
    leaves = found.graph.leaves
    return {leaves[i].name: d.style.mirrored for i, d in found.solver.decisions.items() if d.node is not None}


@pytest.mark.parametrize("fn", ["relu", "gelu", "silu"])
@pytest.mark.parametrize("project", [False, True])
def test_every_weight_on_the_stream_is_mirrored(fn: str, project: bool):
    found = modes(solve(network(fn, project=project), auto=True))
    assert found.pop("stem.weight") == "rows" and found.pop("head.weight") == "cols"
    assert len(found) == 12 + project and set(found.values()) == {"both"}


@pytest.mark.parametrize(
    "graph",
    [network("tanh"), network(normed=True), network(width=49)],
    ids=["odd part bends", "normalized", "odd width"],
)
def test_what_breaks_the_pairs_leaves_independent_draws(graph: Graph):
    assert set(modes(solve(graph, auto=True)).values()) == {""}


def test_mirroring_can_be_refused():
    assert set(modes(solve(network(), auto=True, mirror=False)).values()) == {""}


def test_branches_keep_their_shares():
    found = solve(network(project=True), auto=True)
    assert [found.part(f"{k}.b.weight").predicted for k in range(6)] == pytest.approx([1 / 6] * 6, rel=1e-6)


def test_a_readout_of_twins_is_no_larger_than_an_independent_one():
    found = solve(network(), auto=True)
    head = next(d for d in found.solver.decisions.values() if d.style.mirrored == "cols")
    node = found.graph.nodes[head.node or 0]
    level = found.solver.walk.signals[node.inputs[1 - head.use.slot]].m2
    assert head.std <= 1 / math.sqrt(48 * level) * (1 + 1e-9)

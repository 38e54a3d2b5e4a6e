"""Residual sums are found by ancestry; their branches share the stream."""

from __future__ import annotations

import pytest

from anyinit._graph.graph import Graph
from anyinit._solve.roles import Uses
from anyinit._solve.streams import Streams, plain_depth
from small_graphs import Net, solve


def blocks(count: int, *, normed: bool = False, width: int = 48, scale: float | None = None) -> Graph:
    net = Net()
    x = net.input(64, width)
    for k in range(count):
        y = net.norm(x) if normed else x
        y = net.dense(net.act("relu", net.dense(y, f"{k}.a", 2 * width)), f"{k}.b", width)
        x = net.both("add", x, y if scale is None else net.times(y, scale))
    return net.graph(x)


@pytest.mark.parametrize("count", [1, 4, 16])
def test_all_sums_of_a_chain_of_blocks_are_one_stream(count: int):
    streams = Streams(Uses(blocks(count)))
    assert len(streams.residuals) == count
    assert list(streams.sizes.values()) == [count]


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("count", [1, 4, 16])
def test_every_branch_has_its_share_and_the_stream_doubles(count: int, normed: bool):
    found = solve(blocks(count, normed=normed))
    for k in range(count):
        part = found.part(f"{k}.b.weight")
        assert part.target == pytest.approx(1 / count, rel=1e-9)
        assert part.predicted == pytest.approx(1 / count, rel=1e-6)
    assert found.solver.walk.signals[found.graph.outputs[0]].m2 == pytest.approx(2.0, rel=1e-3)


def test_a_factor_behind_the_last_weight_is_made_up_for():
    found = solve(blocks(4, scale=0.5))
    assert found.part("0.b.weight").predicted == pytest.approx(1.0, rel=1e-6)
    assert found.solver.walk.signals[found.graph.outputs[0]].m2 == pytest.approx(2.0, rel=1e-3)


def test_without_sharing_every_branch_is_as_loud_as_the_stream_and_it_grows_with_depth():
    found = solve(blocks(4), share=False)
    assert found.part("3.b.weight").predicted == pytest.approx(1.0, rel=1e-6)
    assert found.solver.walk.signals[found.graph.outputs[0]].m2 == pytest.approx(5.0, rel=1e-3)


def test_a_sum_of_unrelated_branches_is_no_residual():
    net = Net()
    x = net.input(64, 48)
    graph = net.graph(net.both("add", net.dense(x, "a", 32), net.dense(x, "b", 32)))
    assert Streams(Uses(graph)).residuals == {}


def test_a_projected_skip_starts_no_stream_without_an_ancestor():
    net = Net()
    x = net.input(64, 48)
    for k in range(2):
        branch = net.dense(net.act("relu", net.dense(x, f"{k}.a", 48)), f"{k}.b", 48)
        x = net.both("add", x, branch)
    x = net.dense(x, "between", 48)
    for k in range(2, 5):
        branch = net.dense(net.act("relu", net.dense(x, f"{k}.a", 48)), f"{k}.b", 48)
        x = net.both("add", x, branch)
    streams = Streams(Uses(net.graph(x)))
    assert sorted(streams.sizes.values()) == [2, 3]


@pytest.mark.parametrize("first", ["branch", "shortcut"])
def test_a_projected_shortcut_keeps_the_stream_and_the_count_of_its_branches(first: str):
    net = Net()
    x = net.dense(net.input(64, 48), "stem", 48)
    for k in range(4):
        width = 48 if k < 2 else 64
        made = dict[str, int]()
        for what in ("branch", "shortcut") if first == "branch" else ("shortcut", "branch"):
            if what == "branch":
                made[what] = net.dense(net.act("relu", net.dense(x, f"{k}.a", width)), f"{k}.b", width)
            else:
                made[what] = net.dense(x, f"{k}.s", width) if k == 2 else x
        x = net.both("add", made["shortcut"], made["branch"])
    found = solve(net.graph(x))
    assert list(found.solver.streams.sizes.values()) == [4]
    for k in range(4):
        assert found.part(f"{k}.b.weight").predicted == pytest.approx(1 / 4, rel=1e-6)
    assert found.part("2.s.weight").predicted == pytest.approx(1.0, rel=1e-6)
    # the projection starts the stream anew at its first level: 1 + 2/4 before it, then 1 again
    assert found.solver.walk.signals[found.graph.outputs[0]].m2 == pytest.approx(1.5, rel=1e-2)


def test_two_maps_of_one_value_are_no_projected_shortcut():
    net = Net()
    x = net.input(64, 48)
    deep = net.act("relu", net.dense(x, "b", 32))
    assert Streams(Uses(net.graph(net.both("add", net.dense(x, "a", 32), deep)))).residuals == {}


def test_plain_depth_counts_weights_between_normalizations():
    net = Net()
    x = net.input(64, 48)
    for k in range(3):
        x = net.act("relu", net.dense(x, str(k), 48))
    x = net.norm(x)
    y = net.dense(x, "after", 8)
    graph = net.graph(y)
    depth = plain_depth(Uses(graph))
    made = {graph.leaves[i].name: n.output for n in graph.nodes for i in n.inputs if i in graph.leaves}
    assert [depth[made[f"{k}.weight"]] for k in range(3)] == [3, 3, 3]
    assert depth[made["after.weight"]] == 1

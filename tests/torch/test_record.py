"""One run becomes a graph: the same with and without data, with nothing left behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from anyinit._frameworks.torch.recording import attempt, equal
from anyinit._frameworks.torch.runtime import open_model
from anyinit._graph import ops


def small_cnn() -> nn.Module:
    body = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(8 * 16, 4), nn.Dropout(), nn.LayerNorm(4))


def test_a_convolutional_net_is_recorded_without_data_and_without_opaque_operations():
    runtime = open_model(small_cnn(), (2, 3, 8, 8))
    graph = runtime.record()
    assert runtime.recording().meta
    assert [type(n.op).__name__ for n in graph.nodes if not isinstance(n.op, ops.Reshape)] == [
        "Contract", "Pointwise", "Normalize", "Pointwise", "Pointwise", "Pointwise", "Pool", "Contract", "Pointwise",
        "Dropout", "Normalize", "Pointwise", "Pointwise",
    ]  # fmt: skip
    assert graph.unused == () and graph.notes == ()


def test_the_graph_is_the_same_with_and_without_data():
    runtime = open_model(small_cnn(), (2, 3, 8, 8))
    real = attempt(runtime.model, runtime._inputs, None, meta=False, level="whole", training=True)
    assert equal(runtime.record(), real.graph) == ""


@pytest.mark.parametrize("training", [True, False])
def test_a_recording_leaves_no_trace_on_the_model_or_the_process(training: bool):
    model = small_cnn().train(training)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state, ids = torch.get_rng_state(), [id(p) for p in model.parameters()]
    open_model(model, (2, 3, 8, 8)).record()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert ids == [id(p) for p in model.parameters()] and all(m.training == training for m in model.modules())

"""Every form of input becomes the arguments of one call."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from anyinit._frameworks.torch.runtime import open_model
from anyinit.errors import ConfigError, TraceError


def shapes(runtime) -> dict[str, tuple[int, ...]]:
    graph = runtime.record()
    return {leaf.name: graph.values[i].shape for i, leaf in graph.leaves.items() if leaf.role == "input"}


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, left, right=None):
        return self.a(left) + (0 if right is None else self.a(right))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ((5, 4), {"input.0": (5, 4)}),
        ([5, 4], {"input.0": (5, 4)}),
        (torch.Size([5, 4]), {"input.0": (5, 4)}),
        (torch.ones(5, 4), {"input.0": (5, 4)}),
        (np.ones((5, 4)), {"input.0": (5, 4)}),
        (lambda: torch.ones(5, 4), {"input.0": (5, 4)}),
        ([(5, 4), (5, 4)], {"input.0": (5, 4), "input.1": (5, 4)}),
        ((torch.ones(5, 4), torch.ones(5, 4)), {"input.0": (5, 4), "input.1": (5, 4)}),
        ({"left": (5, 4), "right": torch.ones(5, 4)}, {"left": (5, 4), "right": (5, 4)}),
        (None, {"input.0": (16, 4)}),
    ],
)
def test_shapes_arrays_tuples_dicts_and_functions_are_understood(spec, expected):
    assert shapes(open_model(Two(), spec)) == expected


def test_labels_beyond_the_arguments_of_the_model_are_left_out():
    batch = (torch.ones(5, 4), torch.zeros(5, dtype=torch.long))
    assert shapes(open_model(nn.Linear(4, 2), batch)) == {"input.0": (5, 4)}


def test_a_batch_is_known_and_a_shape_is_not():
    given, made = open_model(Two(), torch.ones(5, 4)), open_model(Two(), (5, 4))
    assert given.batch_given and not made.batch_given and made.input_arrays() == {}
    np.testing.assert_array_equal(given.input_arrays()["input.0"], np.ones((5, 4), np.float32))


def test_a_callable_forward_gets_the_whole_batch():
    runtime = open_model(Two(), {"x": (5, 4), "scale": 2.0}, lambda m, b: m(b["x"]) * b["scale"])
    assert shapes(runtime) == {"x": (5, 4)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_a_shape_gets_the_type_of_the_model(dtype):
    runtime = open_model(nn.Linear(4, 2, dtype=dtype), (3, 4))
    (leaf,) = [leaf for leaf in runtime.record().leaves.values() if leaf.role == "input"]
    assert leaf.dtype == str(dtype).removeprefix("torch.")
    runtime.run({}, [], lambda *_: None)


class OwnTable(nn.Module):
    """A lookup no module announces."""

    def __init__(self):
        super().__init__()
        self.scale, self.table = nn.Linear(8, 8), nn.Parameter(torch.randn(11, 8))

    def forward(self, ids):
        return self.scale(nn.functional.embedding(ids, self.table))


@pytest.mark.parametrize("model", [nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 2)), OwnTable()])
def test_a_shape_means_ids_below_the_vocabulary_where_a_table_is_looked_up(model):
    runtime = open_model(model, (3, 50))
    runtime.record()
    ids = runtime.inputs_used()["input.0"]
    assert ids.dtype == np.int64 and ids.min() == 0 and ids.max() == 10


class Unused(nn.Module):
    """A table comes first in the list of modules but not in the run."""

    def __init__(self):
        super().__init__()
        self.table, self.first = nn.Embedding(5, 8), nn.Linear(4, 8)

    def forward(self, x):
        return self.first(x) + self.table.weight.sum(0)


def test_a_shape_means_numbers_where_the_table_is_no_lookup():
    assert shapes(open_model(Unused(), (3, 4))) == {"input.0": (3, 4)}


def test_one_sample_becomes_two_where_batch_statistics_need_them():
    runtime = open_model(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), (1, 4))
    assert shapes(runtime) == {"input.0": (2, 4)} and runtime.recording().training


def test_an_image_size_that_the_whole_model_takes_is_inferred():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 26 * 26, 2))
    assert shapes(open_model(model)) == {"input.0": (4, 3, 28, 28)}


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        (torch.ones(0, 4), "empty"),
        ((0, 4), "empty"),
        (torch.full((2, 4), float("nan")), "not finite"),
        (np.array([[np.inf, 1, 2, 3]]), "not finite"),
        ("batch", "holds no tensor"),
        (object(), "cannot be used"),
    ],
)
def test_an_unusable_batch_is_refused_before_anything_runs(spec, match):
    with pytest.raises(ConfigError, match=match):
        open_model(Two(), spec)


def test_a_model_that_says_nothing_about_its_input_asks_for_it():
    with pytest.raises(ConfigError, match="can be inferred") as caught:
        open_model(nn.Sequential(nn.ReLU()))
    assert "Pass a shape" in str(caught.value)


def test_lazy_parameters_are_given_shapes_and_nothing_else_moves():
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    state = torch.get_rng_state()
    runtime = open_model(model, (2, 3, 5, 5))
    assert [p[2] for p in runtime.parameters()] == [(4, 3, 3, 3), (4,), (4,), (4,), (2, 36), (2,)]
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(model[1].running_mean, torch.zeros(4))
    assert int(model[1].num_batches_tracked) == 0


def test_a_lazy_model_that_does_not_take_the_input_is_an_error():
    with pytest.raises(TraceError, match="learn its shapes"):
        open_model(nn.Sequential(nn.LazyLinear(4), nn.Linear(5, 2)), (2, 3))

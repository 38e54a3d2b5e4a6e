"""Reading, writing, running and differentiating a model without leaving a trace."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from anyinit._frameworks.torch.runtime import open_model, recognizes
from anyinit._graph import ops
from anyinit.errors import ConfigError, PlanError, TraceError


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))


def values_of(runtime, kind) -> list[int]:
    return [n.output for n in runtime.record().nodes if isinstance(n.op, ops.Pointwise) and n.op.fn == kind]


def test_only_modules_are_recognized():
    assert recognizes(nn.Linear(2, 2)) and not recognizes(torch.zeros(2)) and not recognizes(lambda x: x)


def test_a_run_shows_the_watched_values_in_order_with_the_given_weights():
    model, x = net(), torch.randn(5, 6)
    weights = {n: np.random.default_rng(0).normal(size=p.shape) for n, p in model.named_parameters()}
    runtime = open_model(model, x)
    added, seen = values_of(runtime, "add"), []
    runtime.run(weights, added, lambda i, a: seen.append((i, a)))
    hidden = x.numpy() @ weights["0.weight"].T + weights["0.bias"]
    out = np.maximum(hidden, 0) @ weights["2.weight"].T + weights["2.bias"]
    assert [i for i, _ in seen] == added
    np.testing.assert_allclose(seen[0][1], hidden, atol=1e-5)
    np.testing.assert_allclose(seen[1][1], out, atol=1e-5)


@pytest.mark.parametrize("fn", ["add", "relu"])  # relu works in place
def test_what_visit_returns_replaces_the_value(fn: str):
    model = net()
    runtime = open_model(model, torch.randn(5, 6))
    first, last = values_of(runtime, fn)[0], values_of(runtime, "add")[-1]
    seen = {}

    def visit(i, a):
        seen[i] = a
        return np.ones_like(a) if i == first else None

    runtime.run({}, [first, last], visit)
    expected = model[2](torch.ones(5, 8)).detach().numpy()
    np.testing.assert_allclose(seen[last], expected, atol=1e-6)


def test_a_run_on_another_path_than_the_recorded_one_is_an_error():
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x):
            y = self.a(x)
            return torch.relu(y) if y.sum() > 0 else torch.tanh(y)

    model = Fork()
    with torch.no_grad():
        model.a.weight.fill_(1.0)
    runtime = open_model(model, torch.ones(2, 4))
    runtime.record()
    with pytest.raises(TraceError, match="another path"):
        runtime.run({"a.weight": -np.ones((4, 4)), "a.bias": np.zeros(4)}, [], lambda *_: None)


def test_gradients_are_those_of_the_weighted_outputs():
    model, x = net(), torch.randn(5, 6)
    model[0].bias.requires_grad_(False)
    weights = {"2.weight": np.ones((3, 8))}
    grads = open_model(model, x).gradients(weights, seed=3)
    twin = net()
    with torch.no_grad():
        twin[2].weight.fill_(1.0)
    c = torch.randn(5, 3, generator=torch.Generator().manual_seed(3))
    (twin(x) * c).sum().backward()
    assert set(grads) == {"0.weight", "2.weight", "2.bias"}
    np.testing.assert_allclose(grads["0.weight"], twin[0].weight.grad.numpy(), atol=1e-5)
    np.testing.assert_allclose(grads["2.bias"], twin[2].bias.grad.numpy(), atol=1e-5)


def test_gradients_reach_both_objects_of_a_memory_that_is_shared_transposed():
    class Auto(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(3, 2, bias=False)
            self.down = nn.Parameter(self.up.weight.data.t())

        def forward(self, x):
            return nn.functional.linear(self.up(x), self.down)

    value = np.arange(6.0).reshape(3, 2)
    runtime, seen = open_model(Auto(), torch.eye(3)), []
    last = runtime.record().outputs[0]
    runtime.run({"down": value}, [last], lambda i, a: seen.append(a))
    np.testing.assert_allclose(seen[0], value @ value.T)


def test_half_types_are_widened_when_read_and_rounded_to_even_when_written():
    model = nn.Linear(1, 3, bias=False).to(torch.bfloat16)
    kept = model.weight
    runtime = open_model(model, (2, 1))
    runtime.write({"weight": np.array([[1 + 2**-8], [1 + 3 * 2**-8], [0.1]])})
    assert runtime.read(["weight"])["weight"].dtype == np.float32
    np.testing.assert_array_equal(runtime.read(["weight"])["weight"][:2, 0], [1.0, 1 + 2**-6])
    assert model.weight is kept and kept.dtype == torch.bfloat16


def test_complex_parameters_are_read_and_written():
    class Turn(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3, 3, dtype=torch.complex64))

        def forward(self, x):
            return x.to(torch.complex64) @ self.w

    runtime = open_model(Turn(), (2, 3))
    runtime.write({"w": np.eye(3) * 1j})
    np.testing.assert_array_equal(runtime.read(["w"])["w"], np.eye(3, dtype=np.complex64) * 1j)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (np.zeros((2, 2)), "another shape"),
        (np.full((3, 8), np.nan), "not finite"),
        (np.ones((3, 8)) * 1j, "complex"),
        (np.full((3, 8), 1e39), "overflows"),
    ],
)
def test_a_bad_value_is_refused_before_anything_is_written(value, match: str):
    model = net()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(PlanError, match=match):
        open_model(model, (2, 6)).write({"0.weight": np.zeros((8, 6)), "2.weight": value})
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_an_unknown_name_is_refused():
    with pytest.raises(PlanError, match="no such parameter"):
        open_model(net(), (2, 6)).read(["3.weight"])


def test_a_meta_model_is_recorded_and_refuses_to_be_written_read_or_run():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    runtime = open_model(model, (2, 6))
    assert len(list(runtime.record().params())) == 4
    for use in (
        lambda: runtime.write({"0.bias": np.zeros(8)}),
        lambda: runtime.read(["0.bias"]),
        lambda: runtime.run({}, [], lambda *_: None),
        lambda: runtime.gradients({}, 0),
    ):
        with pytest.raises(ConfigError, match="meta device"):
            use()


def test_a_large_transformer_is_recorded_without_memory():
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(8192, 64, 28672, batch_first=True)
        model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
    graph = open_model(model, (1, 128, 8192)).record()
    assert sum(int(np.prod(graph.values[i].shape)) for i, _ in graph.params()) > 5e9


def test_the_exception_of_the_model_is_chained():
    with pytest.raises(TraceError, match="could not be run on this input") as caught:
        open_model(net(), (2, 7)).record()
    assert isinstance(caught.value.__cause__, RuntimeError) and "shapes cannot be multiplied" in str(caught.value)

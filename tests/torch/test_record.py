"""One run becomes a graph: the same with and without data, with nothing left behind."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from anyinit._frameworks.torch.recording import attempt, equal
from anyinit._frameworks.torch.runtime import open_model
from anyinit._graph import ops
from torch_numbers import differences


class Fn(nn.Module):
    """A function of the input and of parameters of the given shapes."""

    def __init__(self, fn, *shapes):
        super().__init__()
        self.fn = fn
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(*shape)) for shape in shapes])

    def forward(self, *x):
        return self.fn(*x, *self.weights)


def written_buffer(x, w):
    out = torch.zeros(4, 6)
    out[:, 0] = x[:, 0]
    out[:, 2:4] = (x @ w)[:, 2:4]
    return out


def written_views(x, w):
    y = x @ w
    y.t()[0].mul_(2)
    y[:, 1:3].zero_()
    y.view(-1)[5:7].add_(1)
    return y.relu_()


def small_cnn() -> nn.Module:
    body = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(8 * 16, 4), nn.Dropout(), nn.LayerNorm(4))


CASES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2)), (4, 6)),
    "cnn": (small_cnn, (2, 3, 8, 8)),
    "grouped": (lambda: nn.Conv2d(4, 8, 3, groups=2, padding="same", dilation=2), (2, 4, 9, 9)),
    "depthwise": (lambda: nn.Conv1d(4, 4, 3, groups=4, stride=2, padding=1), (2, 4, 9)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), (2, 4, 5, 5)),
    "transposed groups": (lambda: nn.ConvTranspose1d(4, 6, 4, stride=3, groups=2, dilation=2), (2, 4, 5)),
    "reflect": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 6, 6)),
    "circular": (lambda: nn.Conv1d(3, 4, 3, padding=2, padding_mode="circular"), (2, 3, 6)),
    "no batch": (lambda: nn.Conv2d(3, 4, 3), (3, 6, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5)),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 5)),
    "rms norm": (lambda: nn.RMSNorm(6), (4, 6)),
    "bilinear": (lambda: nn.Bilinear(4, 5, 6), [(3, 4), (3, 5)]),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True, bias=False), [(2, 5, 8)] * 3),
    "causal": (lambda: Fn(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True)), (2, 4, 5, 8)),
    "grouped queries": (
        lambda: Fn(lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (2, 2, 5, 8)),
        (2, 4, 5, 8),
    ),
    "einsum": (lambda: Fn(lambda x, w: torch.einsum("...i,oij->...jo", x, w), (3, 6, 5)), (2, 4, 6)),
    "matmul": (lambda: Fn(lambda x, w: x @ w, (3, 6, 5)), (2, 1, 4, 6)),
    "lstm": (lambda: nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True), (2, 7, 4)),
    "projected lstm": (lambda: nn.LSTM(4, 6, proj_size=3), (7, 2, 4)),
    "gru": (lambda: nn.GRU(4, 6, bidirectional=True), (7, 2, 4)),
    "rnn": (lambda: nn.RNN(4, 6, nonlinearity="relu"), (7, 2, 4)),
    "embedding bag": (lambda: nn.EmbeddingBag(10, 4, mode="sum"), (3, 5)),
    "patches": (lambda: Fn(lambda x: F.unfold(x, 2)), (1, 2, 4, 4)),
    "uneven pooling": (lambda: nn.AdaptiveAvgPool2d((3, 5)), (1, 2, 8, 8)),
    "growing pooling": (lambda: nn.AdaptiveAvgPool2d(7), (1, 2, 4, 4)),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), (1, 8, 3, 3)),
    "views written to": (lambda: Fn(written_views, (6, 6)), (4, 6)),
    "buffer written to": (lambda: Fn(written_buffer, (6, 6)), (4, 6)),
    "diagonal": (lambda: Fn(lambda x, w: (x @ w).diagonal() + w.diag()[:4], (6, 6)), (4, 6)),
    "distances": (lambda: Fn(lambda x, w: torch.cdist(x, w), (3, 6)), (4, 6)),
    "complex": (lambda: Fn(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2j, n=6)), (4, 6)),
    "vmap": (lambda: Fn(lambda x, w: torch.func.vmap(lambda b: torch.tanh(x @ b))(w), (5, 6, 3)), (4, 6)),
    "literal index": (lambda: Fn(lambda x: x[:, [2, 0]] * torch.tensor([1.0, 2.0], device=x.device)), (4, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_value_of_the_graph_has_the_numbers_of_the_run(name: str):
    build, shape = CASES[name]
    torch.manual_seed(0)
    runtime = open_model(build(), shape)
    graph, recording = runtime.record(), runtime.recording()
    assert recording.meta and recording.training and graph.notes == ()
    assert not [n for n in graph.nodes if isinstance(n.op, ops.Opaque)]
    errors, compared, _ = differences(runtime)
    assert compared > 0
    assert errors[0][0] < 2e-5, errors[0]
    real = attempt(runtime.model, runtime._inputs, None, meta=False, level="whole", training=True)
    assert equal(graph, real.graph) == ""


def test_a_convolutional_net_is_lowered_to_the_plain_vocabulary():
    graph = open_model(small_cnn(), (2, 3, 8, 8)).record()
    assert [type(n.op).__name__ for n in graph.nodes if not isinstance(n.op, ops.Reshape)] == [
        "Contract", "Pointwise", "Normalize", "Pointwise", "Pointwise", "Pointwise", "Pool", "Contract", "Pointwise",
        "Dropout", "Normalize", "Pointwise", "Pointwise",
    ]  # fmt: skip
    assert [n.scope for n in graph.nodes if isinstance(n.op, ops.Contract)] == ["0", "5"]


def test_grouped_convolutions_get_a_batch_label():
    graph = open_model(nn.Conv2d(4, 8, 3, groups=2, bias=False), (2, 4, 6, 6)).record()
    (op,) = [n.op for n in graph.nodes if isinstance(n.op, ops.Contract)]
    batch = set(op.a) & set(op.b) & set(op.out)
    taps = {w.tap for w in op.windows}
    contracted = (set(op.a) & set(op.b)) - set(op.out)
    assert len(batch) == 1 and len(contracted) == 1 and len(taps) == 2


def test_a_masked_constant_chain_becomes_one_leaf_with_its_numbers():
    def masked(x, w):
        n = x.shape[0]
        mask = torch.arange(n)[:, None] >= torch.arange(n)[None]
        return torch.where(mask.to(x.device), x @ w, 0.0)

    graph = open_model(Fn(masked, (4, 4)), (4, 4)).record()
    (leaf,) = [leaf for leaf in graph.leaves.values() if leaf.role == "const"]
    np.testing.assert_array_equal(leaf.data, np.tril(np.ones((4, 4), bool)))


def test_tied_tables_are_one_leaf_with_two_names():
    table, head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
    head.weight = table.weight
    runtime = open_model(nn.Sequential(table, head), (2, 5))
    ((_, leaf),) = runtime.record().params()
    assert (leaf.name, leaf.aliases) == ("0.weight", ("1.weight",))
    assert runtime.parameters() == [("0.weight", ("1.weight",), (20, 8), "float32", True)]


def test_a_transposed_parameter_on_the_same_memory_resolves_to_the_first():
    class Auto(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(6, 4, bias=False)
            self.down = nn.Parameter(self.up.weight.data.t())

        def forward(self, x):
            return F.linear(self.up(x), self.down)

    graph = open_model(Auto(), (3, 6)).record()
    assert [(leaf.name, leaf.aliases) for _, leaf in graph.params()] == [("down", ("up.weight",))]
    assert any(isinstance(n.op, ops.Permute) for n in graph.nodes)


def test_data_and_detach_of_a_parameter_are_the_parameter():
    def use(x, w):
        return F.linear(x, w.data.detach().to(torch.float64).to(torch.float32))

    graph = open_model(Fn(use, (5, 6)), (4, 6)).record()
    (node,) = graph.nodes
    assert graph.leaves[node.inputs[1]].name == "weights.0" and graph.unused == ()


def test_a_path_that_depends_on_numbers_is_recorded_on_real_tensors_and_said_so():
    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x) if x.sum() > 0 else self.b(x)

    runtime = open_model(Fork(), torch.ones(2, 4))
    graph = runtime.record()
    assert not runtime.recording().meta and "recorded on real tensors because" in graph.notes[0]
    assert graph.unused == ("b.weight", "b.bias")


def test_a_model_that_differentiates_inside_is_recorded_with_its_gradient_operations():
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def residual(model, batch):
        x = batch.requires_grad_(True)
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return slope.square().mean()

    runtime = open_model(net, (8, 2), residual)
    graph = runtime.record()
    uses = [n for n in graph.nodes if isinstance(n.op, ops.Contract)]
    assert runtime.recording().level == "grad" and len(uses) == 4
    assert differences(runtime)[0][0][0] < 1e-5


def test_a_training_step_as_forward_leaves_weights_and_gradients_alone():
    net = nn.Linear(3, 2)
    before = net.weight.detach().clone()

    def step(model, batch):
        loss = model(batch).square().mean()
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=1.0).step()
        return loss

    runtime = open_model(net, (4, 3), step)
    runtime.record()
    runtime.run({}, [], lambda *_: None)
    assert torch.equal(net.weight, before) and net.weight.grad is None


class Messy(nn.Module):
    """Everything a run can leave behind."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("ema", torch.zeros(4))
        self.plain, self.calls, self.cache, self.kept = torch.zeros(4), 0, None, []

    def forward(self, x):
        random.random(), np.random.rand()
        y = F.dropout(self.norm(self.layer(x)), 0.5)
        self.calls += 1
        self.ema.mul_(0.9).add_(y.mean(0))
        self.plain += 1
        self.cache = y
        self.kept.append(y)
        self.register_buffer("fresh", y)
        return y + self.ema


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("use", ["record", "record on real tensors", "run", "gradients"])
def test_nothing_is_left_behind(use: str, training: bool):
    model = Messy().train(training)
    model.layer.weight.requires_grad_(False)
    handle = model.layer.register_forward_hook(lambda *_: None)
    spaces = [dict(vars(m)) for m in model.modules()]
    state = {k: v.clone() for k, v in model.state_dict().items()}
    python, legacy, seeds = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    runtime = open_model(model, (3, 4))
    match use:
        case "record":
            runtime.record()
        case "record on real tensors":
            attempt(model, runtime._inputs, None, meta=False, level="whole", training=True)
        case "run":
            runtime.run({}, range(50), lambda *_: None)
        case "gradients":
            runtime.gradients({}, 0)
    assert [dict(vars(m)) for m in model.modules()] == spaces or all(
        a.keys() == b.keys() and all(a[k] is b[k] for k in a)
        for a, b in zip(spaces, [vars(m) for m in model.modules()], strict=True)
    )
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert model.kept == [] and torch.equal(model.plain, torch.zeros(4)) and handle.id in model.layer._forward_hooks
    assert all(p.grad is None for p in model.parameters()) and not model.layer.weight.requires_grad
    assert random.getstate() == python and np.array_equal(np.random.get_state()[1], legacy)
    assert torch.equal(torch.get_rng_state(), seeds)


def test_a_model_that_writes_into_its_weights_is_recorded_on_copies():
    class Clipped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            if bool((x * 0).sum() == 0):  # asks for numbers, so that the run is real
                self.layer.weight.data.clamp_(-0.01, 0.01)
            return self.layer(x)

    model = Clipped()
    before = model.layer.weight.detach().clone()
    graph = open_model(model, (3, 4)).record()
    assert torch.equal(model.layer.weight, before)
    assert any(isinstance(n.op, ops.Pointwise) and n.op.fn == "clamp" for n in graph.nodes)


def test_branches_and_loops_given_as_functions_are_followed():
    def branch(x, w):
        return torch.cond((x @ w).sum() > 0, torch.sin, torch.cos, (x,))

    def loop(x, w):
        return torch.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t @ w), (torch.tensor(0), x))[1]

    taken = open_model(Fn(branch, (6, 6)), torch.ones(4, 6)).record()
    assert [n.op.fn for n in taken.nodes if isinstance(n.op, ops.Pointwise)][-1] in ("sin", "cos")
    looped = open_model(Fn(loop, (6, 6)), (4, 6))
    assert len([n for n in looped.record().nodes if isinstance(n.op, ops.Contract)]) == 3
    assert differences(looped)[0][0][0] < 1e-5

"""Whole models: recorded without data, without opaque operations, with the numbers of the run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from anyinit._frameworks.torch.recording import attempt, equal
from anyinit._frameworks.torch.runtime import open_model
from anyinit._graph import ops
from torch_numbers import differences

transformers = pytest.importorskip("transformers")

TEXT = dict(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
T5 = dict(vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
GPT2 = dict(vocab_size=128, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)


def ids(length: int = 12) -> torch.Tensor:
    return torch.randint(5, 100, (2, length), generator=torch.Generator().manual_seed(0))


MODELS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2, {"input_ids": ids()}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**TEXT, **SPECIAL, "num_key_value_heads": 2}, {"input_ids": ids()}),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {**TEXT, **SPECIAL, "num_key_value_heads": 2, "num_local_experts": 4},
        {"input_ids": ids()},
    ),
    "bert": ("BertForMaskedLM", "BertConfig", {**TEXT, "max_position_embeddings": 64}, {"input_ids": ids()}),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5, {"input_ids": ids(), "decoder_input_ids": ids(6)}),
    "resnet": (
        "ResNetForImageClassification",
        "ResNetConfig",
        {"depths": [1, 1, 1, 1]},
        {"pixel_values": (2, 3, 64, 64)},
    ),
    "vit": (
        "ViTForImageClassification",
        "ViTConfig",
        {**TEXT, "image_size": 32, "patch_size": 8},
        {"pixel_values": (2, 3, 32, 32)},
    ),
    "mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 1, "state_size": 4, **SPECIAL},
        {"input_ids": ids(6)},
    ),
}


def build(name: str) -> nn.Module:
    model, config, options, _ = MODELS[name]
    options = {k: v for k, v in options.items() if not (name == "vit" and k == "vocab_size")}
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**options))


@pytest.mark.parametrize("name", MODELS)
def test_a_transformers_model_is_recorded_whole(name: str):
    runtime = open_model(build(name), MODELS[name][3])
    graph = runtime.record()
    assert runtime.recording().meta
    assert not [n for n in graph.nodes if isinstance(n.op, ops.Opaque)]
    used = {leaf.name for _, leaf in graph.params()}
    assert used == {p[0] for p in runtime.parameters()} and graph.unused == ()
    real = attempt(runtime.model, runtime._inputs, None, meta=False, level="whole", training=True)
    assert equal(graph, real.graph) == ""


@pytest.mark.parametrize("name", [n for n in MODELS if n != "mixtral"])  # routing shares tokens unequally
def test_its_graph_has_the_numbers_of_its_run(name: str):
    errors, compared, _ = differences(open_model(build(name), MODELS[name][3]))
    assert compared > 40
    assert errors[0][0] < 2e-5, errors[0]


@pytest.mark.parametrize("name", ["gpt2", "bert", "resnet"])
def test_its_input_is_inferred(name: str):
    graph = open_model(build(name)).record()
    assert len([leaf for leaf in graph.leaves.values() if leaf.role == "input"]) == 1


def test_a_convolution_with_the_transposed_layout_is_contracted_over_its_rows():
    graph = open_model(build("gpt2"), MODELS["gpt2"][3]).record()
    by_name = {leaf.name: i for i, leaf in graph.params()}
    (node,) = [n for n in graph.nodes if by_name["transformer.h.0.attn.c_attn.weight"] in n.inputs]
    assert isinstance(node.op, ops.Contract)
    contracted = (set(node.op.a) & set(node.op.b)) - set(node.op.out)
    assert [node.op.b.index(label) for label in contracted] == [0]


WRAPPED = {
    "data parallel": lambda m: nn.DataParallel(m),
    "compiled": lambda m: torch.compile(m, backend="eager"),
    "scripted": lambda m: nn.Sequential(torch.jit.script(m)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_models_keep_their_parameter_names(name: str):
    model = WRAPPED[name](nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    runtime = open_model(model, (4, 6))
    graph = runtime.record()
    assert {leaf.name for _, leaf in graph.params()} == {n for n, _ in model.named_parameters()}
    assert [type(n.op).__name__ for n in graph.nodes] == ["Contract", "Pointwise", "Pointwise", "Contract", "Pointwise"]


def test_the_encoder_is_recorded_without_its_fused_path_in_evaluation_mode():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    runtime = open_model(nn.TransformerEncoder(layer, 2).eval(), (2, 5, 16))
    assert sum(isinstance(n.op, ops.Softmax) for n in runtime.record().nodes) == 2
    assert differences(runtime)[0][0][0] < 1e-5


class OwnGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 6, batch_first=True, bidirectional=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return out


def test_a_function_with_its_own_gradient_is_seen_through():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return OwnGradient.apply(self.layer(x))

    fns = [n.op.fn for n in open_model(Net(), (2, 4)).record().nodes if isinstance(n.op, ops.Pointwise)]
    assert fns == ["add", "sigmoid", "mul"]


def test_packed_sequences_are_unrolled_with_the_lengths_of_the_batch():
    torch.manual_seed(0)
    runtime = open_model(Packed(), (torch.randn(3, 5, 8), torch.tensor([5, 2, 3])))
    graph = runtime.record()
    assert not [n for n in graph.nodes if isinstance(n.op, ops.Opaque)]
    errors = [(error, node) for error, node in differences(runtime)[0] if graph.values[node.output].kind == "float"]
    assert errors[0][0] < 1e-5, errors[0]
    assert np.isfinite(errors[0][0]) and len(errors) >= 4


def test_only_the_first_steps_of_a_long_sequence_are_unrolled_and_it_says_so():
    graph = open_model(nn.GRU(3, 4, batch_first=True), (2, 200, 3)).record()
    assert "first 64 steps" in graph.notes[0]
    assert graph.values[graph.outputs[0]].shape == (2, 200, 4)

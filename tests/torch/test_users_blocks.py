"""Attention, recurrence and copies: packed weights, gates, cloned layers, tied heads."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import anyinit


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(30_000 + seed))


class Attend(nn.Module):
    """Attention to a context of another size, so that its weights are packed or apart."""

    def __init__(self, context: int, width: int = 64) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(width, 4, kdim=context, vdim=context, batch_first=True)
        self.context = nn.Linear(width, context)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c = self.context(x)
        return self.mix(x, c, c, need_weights=False)[0]


def test_packing_queries_and_keys_does_not_change_their_scale():
    packed, apart = Attend(64), Attend(128)
    for model in (packed, apart):
        anyinit.initialize(model, (8, 12, 64), seed=0)
    q, k, _ = packed.mix.in_proj_weight.detach().chunk(3)
    assert q.std().item() * 8 == pytest.approx(apart.mix.q_proj_weight.std().item() * 8, rel=0.05)
    assert k.std().item() * 8 == pytest.approx(apart.mix.k_proj_weight.std().item() * math.sqrt(128), rel=0.05)
    x = normal(32, 12, 64)
    assert (x @ q.T).square().mean().item() == pytest.approx(1.0, rel=0.2)


class Joined(nn.Module):
    """Query, key and value in one matrix."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(attention(*self.qkv(x).chunk(3, -1)))


class Split(nn.Module):
    """The same network with a matrix for each."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(attention(self.q(x), self.k(x), self.v(x)))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def test_packed_and_separate_weights_hold_the_same_bytes():
    joined, split = Joined(), Split()
    for model in (joined, split):
        anyinit.initialize(model, (4, 10, 32), seed=9)
    parts = torch.cat([split.q.weight, split.k.weight, split.v.weight])
    assert torch.equal(joined.qkv.weight, parts)
    assert torch.equal(joined.out.weight, split.out.weight)


def test_layers_that_were_copies_become_independent():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    anyinit.initialize(model, (4, 10, 32), seed=0)
    names = ("self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight")
    for name in names:
        stack = torch.stack([dict(one.named_parameters())[name].detach().flatten() for one in model.layers])
        apart = torch.corrcoef(stack) - torch.eye(3)
        assert apart.abs().max().item() < 5 / math.sqrt(stack.shape[1])


def test_gates_share_a_scale_and_the_state_stays_alive():
    model = nn.LSTM(16, 96, batch_first=True)
    anyinit.initialize(model, (8, 12, 16), seed=0)
    x = normal(32, 40, 16)
    with torch.no_grad():
        into, back = model.weight_ih_l0.chunk(4), model.weight_hh_l0.chunk(4)
        for blocks in (into, back):
            stds = [b.std().item() for b in blocks]
            assert max(stds) / min(stds) < 1.15
        for block in into:
            assert 0.25 < (x @ block.T).square().mean().item() < 4
        for block in back:
            assert torch.linalg.matrix_norm(block, 2).item() <= 2.5
        y, _ = model(x)
    assert torch.isfinite(y).all() and y[:, -1].std(0).min() > 1e-3


def test_a_language_model_with_transposed_weights_and_a_tied_head():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = dict(vocab_size=300, n_positions=32, n_embd=64, n_layer=6, n_head=4)
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))
    ids = torch.randint(0, 300, (4, 24), generator=torch.Generator().manual_seed(1))
    anyinit.initialize(model, ids, seed=0)
    assert model.lm_head.weight is model.transformer.wte.weight
    wide: list[float] = []
    stream: list[float] = []
    for block in model.transformer.h:
        block.mlp.c_fc.register_forward_hook(lambda m, i, o: wide.append(o.square().mean().item()))
        block.ln_1.register_forward_hook(lambda m, i, o: stream.append(i[0].square().mean().item()))
    with torch.no_grad():
        logits = model(ids).logits
    assert all(0.4 < v < 2.5 for v in wide)
    assert stream[-1] / stream[0] < 3
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flip(1).flatten()).item()
    assert loss < math.log(300) + 1


def test_tables_that_only_constants_look_up_have_draws_of_their_own():
    """Two tables of relative places, read by numbers that the forward call closes over."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.fc = nn.Embedding(9, 4), nn.Embedding(9, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = torch.arange(9)
            return self.fc(x) + self.one(places) * self.two(places)

    net, x = Net(), torch.randn(9, 4)
    report = anyinit.initialize(net, (), forward=lambda m, _: m(x), seed=0)
    assert not torch.equal(net.one.weight, net.two.weight)
    keys = [p.draw.key for w in report.plan.weights for p in w.parts if p.draw.std]
    assert len(set(keys)) == len(keys)


def test_attention_by_cosines_is_predicted_within_half_a_bit():
    """Queries and keys divided by their own norms: what stands under the division is positive."""

    class Cosine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out = nn.Linear(48, 8), nn.Linear(48, 8), nn.Linear(48, 48), nn.Linear(48, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k = (nn.functional.normalize(f(x), dim=-1) for f in (self.q, self.k))
            return self.out(torch.softmax(10 * q @ k.transpose(1, 2), -1) @ self.v(x))

    torch.manual_seed(0)
    net = Cosine()
    with torch.no_grad():
        net.q.bias.normal_(0, 0.5)
        net.k.bias.normal_(0, 0.5)
    x = torch.randn(16, 24, 48, generator=torch.Generator().manual_seed(1))
    draws = [anyinit.initialize(net, x, seed=s, bias="keep", correct="never").layers[-1] for s in range(8)]
    measured = sum(layer.measured_output or math.nan for layer in draws) / len(draws)
    assert abs(math.log2((draws[0].predicted_output or math.nan) / measured)) < 0.5

"""The zoo: models people use, and shapes of code that break tools which look at classes.

``ZOO[name]()`` builds ``(model, batch)``; a batch is a tensor, a tuple of positional inputs or a dictionary of
keywords. Sizes are chosen so that the whole zoo fits two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Build = Callable[[], tuple[nn.Module, Any]]
ZOO: dict[str, Build] = {}


def entry(build: Build) -> Build:
    """Register a builder under its own name."""
    ZOO[build.__name__] = build
    return build


def tokens(rows: int = 4, length: int = 32, vocabulary: int = 1000) -> torch.Tensor:
    """Random token ids."""
    return torch.randint(0, vocabulary, (rows, length))


@entry
def resnet50() -> tuple[nn.Module, Any]:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000)), torch.randn(8, 3, 96, 96)


@entry
def gpt2() -> tuple[nn.Module, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=2000, n_embd=256, n_layer=6, n_head=8, n_positions=64, use_cache=False)
    return GPT2LMHeadModel(config), {"input_ids": tokens()}


@entry
def llama() -> tuple[nn.Module, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    return LlamaForCausalLM(config), {"input_ids": tokens()}


@entry
def bert() -> tuple[nn.Module, Any]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8
    )
    return BertForMaskedLM(config), {"input_ids": tokens()}


@entry
def vit() -> tuple[nn.Module, Any]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=192, intermediate_size=768, num_hidden_layers=6, num_attention_heads=3, image_size=64, patch_size=8
    )
    return ViTForImageClassification(config), torch.randn(8, 3, 64, 64)


@entry
def convnext() -> tuple[nn.Module, Any]:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2])
    return ConvNextForImageClassification(config), torch.randn(8, 3, 64, 64)


@entry
def mlp_relu_20() -> tuple[nn.Module, Any]:
    layers = [m for _ in range(20) for m in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(256, 10)), torch.randn(256, 256)


@entry
def mlp_tanh_20() -> tuple[nn.Module, Any]:
    layers = [m for _ in range(20) for m in (nn.Linear(256, 256), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(256, 10)), torch.randn(256, 256)


@entry
def plain_cnn() -> tuple[nn.Module, Any]:
    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.GELU()]

    layers = [*block(3, 32, 1), *block(32, 64, 2), *block(64, 64, 1), *block(64, 128, 2), *block(128, 128, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), torch.randn(16, 3, 32, 32)


class Recurrent(nn.Module):
    """Two layers of long short-term memory over token embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(200, 64)
        self.cells = nn.LSTM(64, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 20)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(self.table(ids))[0][:, -1])


@entry
def lstm() -> tuple[nn.Module, Any]:
    return Recurrent(), tokens(16, 12, 200)


class Inline(nn.Module):
    """Weights without modules: an einsum over heads, a bare product, activations written out."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Parameter(torch.empty(64, 4, 32))
        self.merge = nn.Parameter(torch.empty(128, 64))
        self.out = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = torch.einsum("bi,iho->bho", x, self.heads)
        gated = split * torch.sigmoid(1.702 * split)
        return self.out(F.relu(gated.flatten(1) @ self.merge) ** 2)


@entry
def inline() -> tuple[nn.Module, Any]:
    return Inline(), torch.randn(64, 64)


class Experts(nn.Module):
    """Stacked experts applied as one batched product and mixed by a router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(64, 4)
        self.up = nn.Parameter(torch.empty(4, 64, 128))
        self.down = nn.Parameter(torch.empty(4, 128, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixture = self.router(x).softmax(-1)
        hidden = F.silu(torch.einsum("bi,eih->ebh", x, self.up))
        return torch.einsum("ebh,eho,be->bo", hidden, self.down, mixture)


@entry
def experts() -> tuple[nn.Module, Any]:
    return Experts(), torch.randn(64, 64)


class Tied(nn.Module):
    """One table as first and last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(500, 128)
        self.body = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128), nn.LayerNorm(128))
        self.head = nn.Linear(128, 500, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.table(ids)))


@entry
def tied() -> tuple[nn.Module, Any]:
    return Tied(), tokens(8, 16, 500)

"""The work of a plan grows with its blocks, and repeated blocks are not evaluated again. Counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import anyinit
from anyinit._core import field
from anyinit._rules import FORWARD
from anyinit._rules import pointwise as rules


class Residual(nn.Module):
    def __init__(self, blocks: int, width: int = 16) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            x = x + down(torch.relu(up(norm(x))))
        return x


def plain(blocks: int) -> nn.Module:
    return nn.Sequential(*(m for _ in range(blocks) for m in (nn.Linear(16, 16), nn.Tanh())))


def transformer(blocks: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)


NETS: dict[str, tuple[Callable[[int], nn.Module], tuple[int, ...]]] = {
    "plain": (plain, (4, 16)),
    "residual": (Residual, (4, 16)),
    "transformer": (transformer, (2, 4, 16)),
}

STEPS = {"plain": (32, 64, 96), "residual": (8, 16, 24), "transformer": (6, 12, 18)}


def evaluations(name: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rules applied and elementwise functions evaluated by one plan, with nothing remembered from before."""
    build, shape = NETS[name]
    for remembered in (field._one_field, field._moments, rules._on_one_field):
        remembered.cache_clear()
    counts: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for op, rule in list(FORWARD.items()):

            def counted(*args: object, rule: Callable[..., object] = rule) -> object:
                counts["rules"] += 1
                return rule(*args)

            patch.setitem(FORWARD, op, counted)
        anyinit.plan(build(blocks), shape, seed=0)
    counts["functions"] = rules._on_one_field.cache_info().misses
    return counts


@pytest.mark.parametrize("name", NETS)
def test_rules_applied_grow_in_proportion_to_blocks(name: str, monkeypatch: pytest.MonkeyPatch):
    few, some, many = (evaluations(name, n, monkeypatch)["rules"] for n in STEPS[name])
    assert some > few > 0
    assert many - some == some - few


def test_a_function_of_many_equal_layers_is_evaluated_as_often_as_of_few(monkeypatch: pytest.MonkeyPatch):
    few, many = (evaluations("plain", n, monkeypatch)["functions"] for n in (32, 96))
    assert many <= few + 8

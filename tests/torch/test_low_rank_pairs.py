"""Low-rank pairs beside a weight: their product starts at zero and the network starts as the one without them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyinit


class Beside(nn.Module):
    """``W x + b + s B A x``, the pair applied to its input on its own."""

    def __init__(self, fan_in: int, outputs: int, rank: int = 4, *, frozen: bool = True, pairs: int = 1) -> None:
        super().__init__()
        self.base = nn.Linear(fan_in, outputs).requires_grad_(not frozen)
        self.drop = nn.Dropout(0.1)
        self.A = nn.ModuleList(nn.Linear(fan_in, rank, bias=False) for _ in range(pairs))
        self.B = nn.ModuleList(nn.Linear(rank, outputs, bias=False) for _ in range(pairs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        for a, b in zip(self.A, self.B, strict=True):
            y = y + 2.0 * b(a(self.drop(x)))
        return y


class Within(nn.Module):
    """``(W + s B A) x``; ``turned``: the product written the other way round."""

    def __init__(self, fan_in: int, outputs: int, rank: int = 4, *, turned: bool = False) -> None:
        super().__init__()
        self.base, self.turned = nn.Linear(fan_in, outputs).requires_grad_(False), turned
        self.A, self.B = nn.Parameter(torch.randn(rank, fan_in)), nn.Parameter(torch.randn(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        product = (self.A.T @ self.B.T).T if self.turned else self.B @ self.A
        return F.linear(x, self.base.weight + 2.0 * product, self.base.bias)


class Table(nn.Module):
    """A pair beside an embedding."""

    def __init__(self, rows: int, width: int, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Embedding(rows, width).requires_grad_(False)
        self.A, self.B = nn.Embedding(rows, rank), nn.Linear(rank, width, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.base(ids) + 0.5 * self.B(self.A(ids))


def stack(make, **kind) -> nn.Sequential:
    return nn.Sequential(make(32, 64, **kind), nn.ReLU(), make(64, 48, **kind), nn.ReLU(), make(48, 30, **kind))


@pytest.mark.parametrize(
    ("make", "kind"),
    [(Beside, {}), (Beside, {"pairs": 3}), (Within, {}), (Within, {"turned": True})],
    ids=["beside", "three beside", "within", "within, turned"],
)
def test_a_net_with_adapters_starts_as_the_net_without_them(make, kind):
    torch.manual_seed(0)
    model, x = stack(make, **kind), torch.randn(64, 32)
    plain = nn.Sequential(*(m.base if hasattr(m, "base") else m for m in model))
    before = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    report = anyinit.initialize(model, x, seed=0)
    report.assert_healthy()
    torch.testing.assert_close(model.eval()(x), plain(x), rtol=0, atol=0)
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters() if n in before)
    F.cross_entropy(model(x), torch.zeros(64, dtype=torch.long)).backward()
    for name, p in model.named_parameters():
        if ".B" in name:
            assert not p.any() and p.grad is not None and p.grad.abs().max() > 0
        elif ".A" in name:
            assert p.all()


def test_what_trains_beside_a_pair_is_drawn_as_if_the_pair_were_not_there():
    torch.manual_seed(0)
    model, x = stack(Beside, frozen=False), torch.randn(64, 32)
    report = anyinit.initialize(model, x, seed=0)
    known = {r.name: r for r in report.layers}
    assert {r.role for r in known.values()} == {"weight"}
    assert [known[f"{k}.base.weight"].predicted for k in (0, 2, 4)] == pytest.approx([1, 1, 1], rel=0.02)
    assert not any(p.any() for n, p in model.named_parameters() if ".B." in n)


def test_a_pair_beside_a_table_starts_at_zero():
    torch.manual_seed(0)
    model, ids = nn.Sequential(Table(50, 32), nn.Linear(32, 10)), torch.randint(50, (8, 6))
    anyinit.initialize(model, ids, seed=0)
    assert not model[0].B.weight.any() and model[0].A.weight.any()


def test_a_wide_branch_without_activation_beside_a_projection_is_no_low_rank_pair():
    torch.manual_seed(0)
    model, x = nn.Sequential(Beside(32, 64, 96, frozen=False), nn.ReLU(), nn.Linear(64, 5)), torch.randn(64, 32)
    anyinit.initialize(model, x, seed=0)
    assert all(p.any() for n, p in model.named_parameters() if n.endswith("weight"))


def test_the_callers_own_scale_holds_for_a_last_factor():
    model, x = stack(Beside), torch.randn(64, 32)
    anyinit.initialize(model, x, seed=0, overrides={"0.B.0": {"std": 0.25}})
    assert model[0].B[0].weight.detach().std().item() == pytest.approx(0.25, rel=0.2)
    assert not model[2].B[0].weight.any()

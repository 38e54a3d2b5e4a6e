"""Empirical mode: every level is the wanted one to 1 %, whatever the network, the input or the way it comes in."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import anyinit
from anyinit.report import Report


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def skewed(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=rng()) ** 3 + 0.5


def mlp(act: Callable[[], nn.Module] = nn.GELU, into: int = 20, depth: int = 6) -> nn.Sequential:
    layers = [m for k in range(depth) for m in (nn.Linear(48 if k else into, 48), act())]
    return nn.Sequential(*layers, nn.Linear(48, 10))


class Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).square()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.a = nn.ModuleList(nn.Linear(32, 64) for _ in range(3))
        self.b = nn.ModuleList(nn.Linear(64, 32) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, a, b in zip(self.norms, self.a, self.b, strict=True):
            x = x + b(F.silu(a(norm(x))))
        return x


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 16, 3, padding=1)
        self.deep = nn.Conv2d(16, 32, 3, padding=1)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.out = nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = F.relu(self.down(x))
        y = self.up(F.relu(self.deep(F.max_pool2d(kept, 2))))
        return self.out(torch.cat([kept, F.relu(y)], 1))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value, self.out = nn.Linear(20, 64), nn.Linear(20, 64), nn.Linear(64, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(F.silu(self.gate(x)) * self.value(x))


class Letters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 24)
        self.block = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(24, 11)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.table(ids)))


class Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.state, self.head = nn.Linear(12, 48), nn.Linear(24, 48, bias=False), nn.Linear(24, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(len(x), 24)
        for t in range(x.shape[1]):
            gate, new = (self.into(x[:, t]) + self.state(h)).chunk(2, 1)
            h = h + torch.sigmoid(gate) * (torch.tanh(new) - h)
        return self.head(h)


class Opaque(nn.Module):
    """Sorts by an operation that no rule knows, in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.special.bessel_j0(3 * torch.cummax(self.a(x), dim=1)[0])
        return self.c(torch.relu(self.b(x)))


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=4), nn.SiLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * 9, 10),
    )  # fmt: skip


IDS = torch.randint(0, 11, (16, 9), generator=rng())
MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "gelu": (mlp, skewed(128, 20)),
    "tanh": (lambda: mlp(nn.Tanh), skewed(128, 20)),
    "relu squared": (lambda: mlp(Square), skewed(128, 20)),
    "convolutions": (convolutions, skewed(16, 3, 8, 8)),
    "residual": (Residual, skewed(64, 32)),
    "u-net": (UNet, skewed(8, 3, 8, 8)),
    "gated": (Gated, skewed(128, 20)),
    "letters": (Letters, IDS),
    "memory": (Memory, skewed(32, 7, 12)),
    "opaque": (Opaque, skewed(128, 20)),
}


def errors(report: Report) -> dict[str, float]:
    """Measured over wanted levels of what was corrected."""
    seen = [layer for layer in report.layers if layer.measured is not None and layer.predicted]
    return {layer.name: layer.measured / layer.predicted for layer in seen}


@pytest.mark.parametrize(
    ("name", "target"), [(n, t) for n in MODELS for t in ("auto", "unit") if (n, t) != ("tanh", "unit")]
)
def test_corrected_levels_are_exact_to_one_per_cent(name: str, target: str):
    build, x = MODELS[name]
    report = anyinit.initialize(build(), x, "empirical", seed=0, target=target)
    found = errors(report)
    assert len(found) >= 2
    assert found == pytest.approx(dict.fromkeys(found, 1.0), rel=0.01)
    assert not any("times the wanted one" in w for w in report.warnings)


def test_where_no_level_can_be_reached_the_level_before_is_exact():
    model, x, before = mlp(nn.Tanh), skewed(128, 20), list[float]()
    report = anyinit.initialize(model, x, "empirical", seed=0, target="unit")
    assert "unreachable" in report.layers[0].flags
    for module in model[:-1:2]:
        module.register_forward_hook(lambda *a: before.append(float(a[2].detach().double().square().mean())))
    with torch.no_grad():
        model(x)
    assert before == pytest.approx([1.0] * 6, rel=0.01)


def activations(model: nn.Sequential, x: torch.Tensor) -> list[float]:
    """Second moments behind every activation, by hooks of one's own."""
    found: list[float] = []
    kinds = (nn.GELU, nn.ReLU)
    hooks = [
        m.register_forward_hook(lambda *a: found.append(float(a[2].detach().double().square().mean())))
        for m in model
        if isinstance(m, kinds)
    ]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return found


def sources(x: torch.Tensor) -> dict[str, object]:
    """The same samples in several wrappings."""
    y = torch.randint(0, 10, (len(x),), generator=rng())
    return {
        "list": list(x.split(48)),
        "list of pairs": list(zip(x.split(48), y.split(48), strict=True)),
        "generator": (part for part in x.split(48)),
        "generator of pairs": zip(x.split(48), y.split(48), strict=True),
        "loader": DataLoader(TensorDataset(x, y), batch_size=48),
    }


@pytest.mark.parametrize("way", ["list", "list of pairs", "generator", "generator of pairs", "loader"])
def test_levels_hold_over_all_batches_however_they_come(way: str):
    x = skewed(240, 20) * torch.linspace(0.5, 3, 240)[:, None]  # batches differ in level
    model = mlp()
    anyinit.initialize(model, sources(x)[way], "empirical", seed=0, target="unit")
    assert activations(model, x) == pytest.approx([1.0] * 6, rel=0.01)
    alone = mlp()
    anyinit.initialize(alone, x[:48], "empirical", seed=0, target="unit")
    assert max(activations(alone, x)) > 1.5  # the first batch says little about the others


@pytest.mark.parametrize("size", [1e-30, 1e-9, 1e9, 1e30])
def test_tiny_and_huge_inputs(size: float):
    x, model = skewed(128, 20) * size, mlp(nn.ReLU)
    anyinit.initialize(model, x, "empirical", seed=0, target="unit")
    assert activations(model, x) == pytest.approx([1.0] * 6, rel=0.01)


@pytest.mark.parametrize("kind", ["constant", "sparse", "one-hot", "one column", "int8 pixels", "one sample"])
def test_constant_sparse_and_integer_inputs(kind: str):
    x = {
        "constant": torch.full((64, 20), 3.7),
        "sparse": (torch.rand(64, 20, generator=rng()) < 0.02).float() * 5,
        "one-hot": torch.eye(20),
        "one column": torch.zeros(64, 20).index_fill_(1, torch.tensor([3]), 1.0),
        "int8 pixels": torch.randint(0, 256, (64, 20), generator=rng(), dtype=torch.uint8),
        "one sample": skewed(1, 20),
    }[kind]
    model = mlp()
    if not x.is_floating_point():
        anyinit.initialize(model, x, "empirical", seed=0, target="unit", forward=lambda m, b: m(b.float()))
        x = x.float()
    else:
        anyinit.initialize(model, x, "empirical", seed=0, target="unit")
    assert activations(model, x) == pytest.approx([1.0] * 6, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype):
    model, x = mlp().to(dtype), skewed(128, 20).to(dtype)
    anyinit.initialize(model, x, "empirical", seed=0, target="unit")
    assert activations(model, x) == pytest.approx([1.0] * 6, rel=0.01)


@pytest.mark.parametrize("act", [nn.GELU, Square, nn.Tanh])
def test_a_batch_of_zeros_is_refused_and_the_model_left_alone(act: Callable[[], nn.Module]):
    model = mlp(act)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(anyinit.ConfigError, match=r"Nothing can be measured: the input is all zero.*real samples"):
        anyinit.initialize(model, torch.zeros(16, 20), "empirical")
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_weights_whose_input_dies_on_the_way_are_refused_too():
    class Dead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(20, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x - x)

    with pytest.raises(anyinit.ConfigError, match="output of every weight is zero"):
        anyinit.initialize(Dead(), skewed(16, 20), "empirical")


def test_an_endless_generator_ends_and_one_batch_at_a_time_is_held():
    from anyinit._solve import batches

    made = itertools.count()

    def endless() -> Iterator[torch.Tensor]:
        while True:
            next(made)
            yield torch.randn(32, 20, generator=rng(next(made)))

    model = mlp(depth=2)
    anyinit.initialize(model, endless(), "empirical", seed=0)
    assert next(made) <= 2 * batches.MOST + 2


def test_a_long_source_is_gone_through_again_and_not_kept():
    from anyinit._solve.batches import HELD, Batches

    class Big:
        nbytes = HELD

        def __init__(self, at: int) -> None:
            self.at = at

    class Source:
        def __iter__(self) -> Iterator[Big]:
            return map(Big, range(5))

    seen = Batches(Source())
    assert [b.at for b in seen] == [b.at for b in seen] == [0, 1, 2, 3, 4]
    assert len(seen.held) == 1
    once = Batches(map(Big, range(5)))
    assert [b.at for b in once] == [b.at for b in once] == [0]


def test_empty_sources_are_refused():
    with pytest.raises(anyinit.ConfigError, match="source of batches is empty"):
        anyinit.initialize(mlp(), iter(()), "empirical")


def test_analytic_mode_takes_the_first_batch_of_a_source():
    x = skewed(96, 20)
    one, two = mlp(), mlp()
    anyinit.initialize(one, x[:48], seed=0)
    anyinit.initialize(two, (p for p in x.split(48)), seed=0)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_progress_is_told_and_long_runs_print(capsys: pytest.CaptureFixture[str]):
    from anyinit._solve.empirical import Lines

    told: list[tuple[int, int, str]] = []
    anyinit.initialize(mlp(), list(skewed(96, 20).split(48)), "empirical", progress=lambda *a: told.append(a), seed=0)
    assert any(name == "6.weight" and done <= total for done, total, name in told)
    assert any(name == "batch 2" for _, _, name in told)
    capsys.readouterr()
    times = iter([0.0, 1.0, 11.0, 12.0, 17.0])
    lines = Lines(lambda: next(times))
    for k in range(4):
        lines(k, 4, f"{k}.weight")
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 2 and "1 of 4 layers, 11 s: 1.weight" in printed[0]


def test_a_batch_that_takes_another_path_is_named():
    class Forks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(20, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.relu(self.a(x)) if len(x) > 20 else self.a(x))

    with pytest.raises(anyinit.TraceError, match=r"another path through the model.*batch 1"):
        anyinit.initialize(Forks(), [skewed(32, 20), skewed(16, 20)], "empirical")

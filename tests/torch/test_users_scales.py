"""Levels in models people build, measured on the drawn weights with fresh inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import anyinit


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(10_000 + seed))


def level(x: torch.Tensor) -> float:
    return x.detach().square().mean().item()


def geometric(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def levels(
    build: Callable[[], nn.Sequential], shape: tuple[int, ...], kind: type[nn.Module], seeds: int = 3
) -> list[float]:
    """Geometric means over seeds of the second moment behind every layer of a kind."""
    rows: list[list[float]] = []
    for seed in range(seeds):
        model = build()
        anyinit.initialize(model, shape, seed=seed)
        x, row = normal(*shape, seed=seed), []
        with torch.no_grad():
            for layer in model:
                x = layer(x)
                if isinstance(layer, kind):
                    row.append(level(x))
        rows.append(row)
    return [geometric(list(column)) for column in zip(*rows, strict=True)]


def test_a_strided_transposed_convolution_counts_the_taps_that_reach_a_pixel():
    def up() -> list[nn.Module]:
        return [nn.ConvTranspose2d(48, 48, 4, stride=2, padding=1), nn.LeakyReLU(0.1)]

    logs = []
    for seed in range(3):
        model = nn.Sequential(*up(), *up(), *up())
        anyinit.initialize(model, (2, 48, 7, 7), seed=seed)
        x, row = normal(2, 48, 7, 7, seed=seed), []
        with torch.no_grad():
            for layer in model:
                x = layer(x)
                if isinstance(layer, nn.LeakyReLU):
                    row.append(level(x[:, :, 3:-3, 3:-3]))
        logs.append([math.log(b / a) for a, b in pairwise(row)])
    for column in zip(*logs, strict=True):
        assert abs(sum(column) / 3) < math.log(1.2)


def test_a_depthwise_filter_has_the_fan_of_its_taps():
    def pair() -> list[nn.Module]:
        taps = nn.Conv2d(96, 96, 3, groups=96, padding=1, padding_mode="circular")
        return [taps, nn.Conv2d(96, 96, 1), nn.ReLU()]

    def build() -> nn.Sequential:
        return nn.Sequential(*pair(), *pair(), *pair(), *pair())

    assert all(0.6 < v < 1.7 for v in levels(build, (4, 96, 8, 8), nn.ReLU))
    fans = {w.name: w.parts[0].fan for w in anyinit.plan(build(), (4, 96, 8, 8), seed=0).weights}
    assert fans["0.weight"] == 9 and fans["1.weight"] == 96


def test_groups_do_not_change_the_level_of_a_convolution():
    def build(groups: int) -> Callable[[], nn.Sequential]:
        def one() -> list[nn.Module]:
            return [nn.Conv1d(64, 64, 5, groups=groups, padding=2, padding_mode="circular"), nn.ReLU()]

        return lambda: nn.Sequential(*one(), *one(), *one())

    whole, split = (levels(build(g), (4, 64, 48), nn.ReLU)[-1] for g in (1, 8))
    assert 0.6 < whole < 1.7 and 0.6 < split < 1.7
    assert abs(math.log(whole / split)) < math.log(1.3)


@pytest.mark.parametrize("kind", [lambda: nn.LeakyReLU(0.3), lambda: nn.PReLU(init=0.3)], ids=["leaky", "learned"])
def test_a_slope_is_read_where_it_stands(kind: Callable[[], nn.Module]):
    def build() -> nn.Sequential:
        return nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(192, 192), kind())])

    found = levels(build, (64, 192), (nn.LeakyReLU, nn.PReLU))  # type: ignore[arg-type]
    assert abs(math.log(found[-1] / found[0])) < math.log(1.4)
    assert all(0.7 < v < 1.4 for v in found)


def test_a_learned_slope_keeps_its_value_and_that_is_no_failure():
    model = nn.Sequential(nn.Linear(32, 32), nn.PReLU(init=0.125), nn.Linear(32, 8))
    report = anyinit.initialize(model, (16, 32), seed=0)
    assert model[1].weight.item() == 0.125
    assert report.plan.unscaled == ()
    kept = next(w for w in report.plan.weights if w.name == "1.weight").parts[0]
    assert kept.draw.distribution == "keep" and kept.why == "a slope of an activation keeps its value"
    report.assert_healthy()


def test_selu_stays_at_its_published_fixed_point():
    at = anyinit.activation_profile("selu").moments(0.0, 1.0)
    assert at.mean == pytest.approx(0.0, abs=1e-7) and at.m2 == pytest.approx(1.0, abs=1e-7)
    model = nn.Sequential(*[m for _ in range(16) for m in (nn.Linear(256, 256), nn.SELU())])
    anyinit.initialize(model, (128, 256), seed=1)
    x = normal(128, 256)
    with torch.no_grad():
        for layer in model:
            x = layer(x)
            if isinstance(layer, nn.SELU):
                assert abs(x.mean().item()) < 0.25
                assert 0.6 < x.var().item() < 1.5


class Gated(nn.Module):
    """Two branches multiplied, one through a smooth gate."""

    def __init__(self, width: int = 128, hidden: int = 320) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.back = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(F.silu(self.gate(x)) * self.value(x))


@pytest.mark.parametrize("build", [Gated, lambda: nn.Sequential(nn.Linear(128, 512), nn.GLU(), nn.Linear(256, 128))])
def test_the_product_of_two_branches_is_scaled_as_one(build: Callable[[], nn.Module]):
    found = []
    for seed in range(4):
        model = build()
        anyinit.initialize(model, (64, 128), seed=seed)
        with torch.no_grad():
            found.append(level(model(normal(256, 128, seed=seed))))
    assert geometric(found) == pytest.approx(1.0, rel=0.25)


class Step(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.relu(self.a(x)))


def test_a_deep_stream_without_normalization_doubles_and_its_gradient_with_it():
    blocks = 32
    model = nn.Sequential(*[Step(96) for _ in range(blocks)])
    plan = anyinit.initialize(model, (64, 96), seed=0).plan
    shares = [w.parts[0].target for w in plan.weights if w.name.endswith("b.weight")]
    assert shares == pytest.approx([1 / blocks] * blocks, rel=1e-6)
    x = normal(128, 96).requires_grad_()
    y = model(x)
    assert level(y) == pytest.approx(2.0, rel=0.3)  # the stream's own level and as much from all branches
    c = normal(*y.shape, seed=1)
    (g,) = torch.autograd.grad(y, x, c)
    assert 0.5 < level(g) / level(c) < 8


class Widen(nn.Module):
    """A block by a name that says nothing, with no weight of its own."""

    def __init__(self, into: int, out: int, affine: bool) -> None:
        super().__init__()
        self.up, self.norm = nn.ConvTranspose2d(into, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out, affine=affine)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.up(x)))


def test_a_generator_neither_saturates_nor_forgets_its_latent():
    body = [nn.ConvTranspose2d(48, 64, 4), Widen(64, 48, True), Widen(48, 32, False)]
    model = nn.Sequential(*body, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
    anyinit.initialize(model, (16, 48, 1, 1), seed=0)
    with torch.no_grad():
        y = model(normal(32, 48, 1, 1))
    assert (y.abs() > 0.99).float().mean().item() < 0.1
    assert y.std(0).mean().item() > 0.1


def test_raw_pixels_are_absorbed_when_levels_are_measured():
    pixels = (torch.rand(128, 48, generator=torch.Generator().manual_seed(3)) * 255).round()
    model = nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
    report = anyinit.initialize(model, pixels, "empirical", seed=0)
    x, dead = pixels, []
    with torch.no_grad():
        for layer in model:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                assert 0.5 < level(x) < 2
                dead.append((x == 0).all(0).float().mean().item())
    assert max(dead) < 0.05 or any("zero for every sample" in w for w in report.plan.warnings)


class Wave(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(30.0 * x)


def test_a_factor_inside_an_activation_belongs_to_it():
    model = nn.Sequential(
        nn.Linear(2, 192), Wave(), nn.Linear(192, 192), Wave(), nn.Linear(192, 192), Wave(), nn.Linear(192, 1)
    )
    anyinit.initialize(model, (64, 2), seed=0)
    x = torch.rand(512, 2, generator=torch.Generator().manual_seed(5)) * 2 - 1
    with torch.no_grad():
        for at, layer in enumerate(model):
            x = layer(x)
            if at in {2, 4}:
                assert 0.3 < 30 * x.std().item() < 3


class Branching(nn.Module):
    """A path chosen by the data and a loop over a list."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(96, 96) for _ in range(3))
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = []
        if x.abs().mean() > 1e6:
            return x
        for step in list(self.steps):
            x = torch.relu(step(x))
            self.seen.append(x)
        return x


@pytest.mark.parametrize("mode", ["analytic", "empirical"])
def test_control_flow_is_followed(mode: str):
    model, x = Branching(), normal(128, 96)
    anyinit.initialize(model, x, mode, seed=2)
    with torch.no_grad():
        model(x)
    assert all(0.6 < level(v) < 1.7 for v in model.seen)


@pytest.mark.parametrize("kind", ["matrix", "convolution"])
def test_the_level_does_not_depend_on_the_width(kind: str):
    found = {}
    for width, seeds in ((32, 12), (96, 6), (256, 3)):
        if kind == "matrix":

            def build(n: int = width) -> nn.Sequential:
                return nn.Sequential(
                    nn.Linear(24, n), nn.GELU(), nn.Linear(n, n), nn.GELU(), nn.Linear(n, n), nn.GELU()
                )

            shape: tuple[int, ...] = (64, 24)
        else:

            def build(n: int = width // 2) -> nn.Sequential:
                return nn.Sequential(nn.Conv1d(8, n, 3), nn.GELU(), nn.Conv1d(n, n, 3), nn.GELU())

            shape = (16, 8, 18)
        found[width] = levels(build, shape, nn.GELU, seeds)[-1]
    assert max(found.values()) / min(found.values()) < 1.35


class Fused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(24, 48), nn.Linear(24, 32)
        self.mix = nn.Bilinear(48, 32, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(self.left(x[:, :24]), self.right(x[:, 24:]))


def test_a_bilinear_form_has_both_sizes_in_its_fan():
    found = []
    for seed in range(4):
        model = Fused()
        anyinit.initialize(model, (128, 48), seed=seed)
        with torch.no_grad():
            found.append(level(model(normal(256, 48, seed=seed))))
        assert model.mix.weight.std().item() == pytest.approx(1 / math.sqrt(48 * 32), rel=0.1)
    assert geometric(found) == pytest.approx(1.0, rel=0.3)


class Experts(nn.Module):
    """Weights and biases of every expert in one tensor each."""

    def __init__(self, count: int = 6) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.zeros(count, 48, 160)), nn.Parameter(torch.zeros(count, 160, 48))
        self.bias = nn.Parameter(torch.ones(count, 160))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.einsum("bi,eio->beo", x, self.up) + self.bias
        return torch.einsum("beo,eoi->bei", torch.relu(h), self.down)


def test_every_expert_has_the_fan_of_its_own_input_and_its_own_draw():
    model = Experts()
    plan = anyinit.initialize(model, (64, 48), seed=0).plan
    roles = {w.name: (w.parts[0].role, w.parts[0].fan) for w in plan.weights}
    assert roles["up"] == ("weight", 48) and roles["down"] == ("weight", 160)
    assert roles["bias"][0] == "bias" and not model.bias.any()
    with torch.no_grad():
        found = model(normal(512, 48)).square().mean((0, 2))
    assert ((found > 0.5) & (found < 2)).all()
    flat = model.up.detach().flatten(1)
    assert (torch.corrcoef(flat) - torch.eye(6)).abs().max().item() < 0.06

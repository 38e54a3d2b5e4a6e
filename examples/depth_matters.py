"""How deep can a plain network be before its first weights decide that it will not learn?

A SiLU network is fitted to sin(3x) cos(3y) on the square [-2, 2] x [-2, 2], at two depths, once as PyTorch sets it up
and once after ``anyinit.initialize``. The table puts the level of the signal (its second moment after the first and
after the last activation) beside the loss that training reaches; the picture shows the level at every layer and the
loss at every step.

    python examples/depth_matters.py                    # depths 10 and 30, one seed: one to two minutes
    python examples/depth_matters.py --seeds 4          # four seeds, with the range over seeds
    python examples/depth_matters.py --steps 0          # levels only
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import anyinit

WIDTH, POINTS, LEARNING_RATE = 128, 2048, 1e-3
OUT = Path(__file__).parent / "out"
STOCK, OURS = "PyTorch", "AnyInit"
COLOURS = {STOCK: "#D55E00", OURS: "#0072B2"}


@dataclass(frozen=True)
class Outcome:
    """One network: its level after every activation before training, and its loss at every step."""

    levels: list[float]
    losses: list[float]


def network(depth: int) -> nn.Sequential:
    """``depth`` hidden layers of 128 SiLU units between two coordinates and one number."""
    widths = [2] + [WIDTH] * depth
    hidden = [m for n, k in itertools.pairwise(widths) for m in (nn.Linear(n, k), nn.SiLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 1))


def surface(points: torch.Tensor) -> torch.Tensor:
    """What the network is to learn; its variance over the square is about 0.25."""
    x, y = points.split(1, dim=1)
    return torch.sin(3 * x) * torch.cos(3 * y)


def levels(model: nn.Sequential, points: torch.Tensor) -> list[float]:
    """Second moment after each activation."""
    found = []
    with torch.no_grad():
        for layer in model:
            points = layer(points)
            if isinstance(layer, nn.SiLU):
                found.append(points.square().mean().item())
    return found


def fit(model: nn.Sequential, points: torch.Tensor, steps: int) -> list[float]:
    """Losses of full-batch Adam."""
    wanted, losses = surface(points), []
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(points), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def run(depth: int, label: str, seed: int, steps: int) -> Outcome:
    """Build, initialize, measure and train one network."""
    torch.manual_seed(seed)
    model = network(depth)
    points = torch.rand(POINTS, 2) * 4 - 2
    if label == OURS:
        # The points themselves rather than their shape: their second moment is 4/3, not 1.
        anyinit.initialize(model, points, seed=seed)
    return Outcome(levels(model, points), fit(model, points, steps))


def span(values: Sequence[float], form: str) -> str:
    """One number, or the smallest and the largest of several."""
    low, high = format(min(values), form), format(max(values), form)
    return low if len(values) == 1 else f"{low} .. {high}"


def row(depth: int, label: str, outcomes: Sequence[Outcome]) -> str:
    """One line of the table."""
    first = span([o.levels[0] for o in outcomes], ".3f")
    last = span([o.levels[-1] for o in outcomes], ".2e")
    loss = span([o.losses[-1] for o in outcomes], ".5f") if outcomes[0].losses else "-"
    return f"{depth:5d}  {label:8s}  {first:>16s}  {last:>22s}  {loss:>20s}"


def picture(results: dict[tuple[int, str], list[Outcome]], path: Path) -> None:
    """Levels above, losses below, one column per depth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    depths = sorted({depth for depth, _ in results})
    trained = any(outcome.losses for outcomes in results.values() for outcome in outcomes)
    rows = 2 if trained else 1
    size = (4.5 * len(depths), 3.25 * rows)
    figure, axes = plt.subplots(rows, len(depths), figsize=size, squeeze=False, layout="constrained")
    for (depth, label), outcomes in results.items():
        panels = axes[:, depths.index(depth)]
        for i, outcome in enumerate(outcomes):
            look = {"color": COLOURS[label], "alpha": 0.9 if len(outcomes) == 1 else 0.5, "label": "" if i else label}
            panels[0].semilogy(range(1, depth + 1), outcome.levels, **look)
            if trained:
                panels[1].semilogy(outcome.losses, **look)
        panels[0].set(title=f"{depth} layers", xlabel="layer", ylabel="second moment after activation")
        if trained:
            panels[1].set(xlabel="step", ylabel="loss")
    for ax in axes.flat:
        ax.grid(True, alpha=0.3)
        ax.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--depths", type=int, nargs="+", default=[10, 30])
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, counted from 0")
    parser.add_argument("--steps", type=int, default=400, help="training steps; 0 prints levels only")
    parser.add_argument("--out", type=Path, default=OUT / "depth_matters.png")
    chosen = parser.parse_args()

    print(f"{'depth':>5s}  {'init':8s}  {'level, first':>16s}  {'level, last':>22s}  {'final loss':>20s}")
    results: dict[tuple[int, str], list[Outcome]] = {}
    for depth in chosen.depths:
        for label in (STOCK, OURS):
            results[depth, label] = [run(depth, label, seed, chosen.steps) for seed in range(chosen.seeds)]
            print(row(depth, label, results[depth, label]), flush=True)
    print("\nA loss near 0.25 is the variance of the surface: that network has learned nothing.")
    picture(results, chosen.out)
    print(f"Picture: {chosen.out}")


if __name__ == "__main__":
    main()

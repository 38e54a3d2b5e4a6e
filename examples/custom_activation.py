"""An activation nobody has heard of: relu(x)^3, in a shallow and in a deep network.

Nothing needs registering for the library to handle it, because activations are read from the operations that run.
Registering gives the function a name: it can then be profiled on its own and is called by that name in the report.
Written with NumPy, one function serves every framework.

    python examples/custom_activation.py
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

import anyinit

WIDTH, SAMPLES = 128, 4096


@anyinit.register_activation(name="relu3")
def relu3(x: np.ndarray) -> np.ndarray:
    """The cube of the positive part."""
    return np.maximum(x, 0) ** 3


class Cube(nn.Module):
    """The same function as a module; the recording sees its operations, not its class."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) ** 3


def show_profile() -> None:
    """Moments by quadrature beside their closed forms."""
    profile = anyinit.activation_profile("relu3")
    at_one = profile.moments(0.0, 1.0)
    rows = [
        ("mean at unit variance", at_one.mean, math.sqrt(2 / math.pi)),
        ("second moment", at_one.m2, 15 / 2),
        ("fourth moment", at_one.m4, 10395 / 2),
        ("degree", profile.homogeneous_degree, 3),
        ("chi, growth of a level error", profile.chi, 3),
        ("sigma*, unit level reproduced", profile.diagnostics.sigma_star, (2 / 15) ** (1 / 6)),
    ]
    print(f"{'relu(x)^3':32s}  {'quadrature':>18s}  {'closed form':>18s}")
    for what, got, exact in rows:
        print(f"{what:32s}  {got:18.12f}  {exact:18.12f}")


def show_depth(depth: int) -> None:
    """Initialize a network, run it on fresh data and print what the report advises."""
    layers = [m for _ in range(depth) for m in (nn.Linear(WIDTH, WIDTH, bias=False), Cube())]
    model = nn.Sequential(*layers)
    report = anyinit.initialize(model, (1024, WIDTH), seed=0)

    signal = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))
    seen = []
    with torch.no_grad():
        for layer in model:
            signal = layer(signal)
            if isinstance(layer, Cube):
                seen.append(signal.square().mean().item())
    shown = "  ".join(f"{level:.3g}" for level in seen[:6]) + ("  ..." if depth > 6 else "")
    print(f"\n{depth} layers: second moment after each activation\n  {shown}")
    for record in report.stability:
        print(f"  {record.kind}: chi {record.chi:.3g}, over {record.depth} layers {record.product:.3g}")
        if record.advice():
            print(f"    {record.advice()}")


if __name__ == "__main__":
    show_profile()
    show_depth(2)
    show_depth(20)

"""Norms and angles of nine activations through 100 layers of width 1000: the study's constants beside this library.

Run: PYTHONPATH=src python benchmarks/nine_activations.py [folder for the pictures]
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

import anyinit

NINE: dict[str, Any] = {
    "identity": "identity", "relu": "relu", "tanh": "tanh", "gelu": "gelu", "silu": "silu",
    "x Phi(x) - phi(x)": lambda x: x * ndtr(x) - np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "selu": "selu", "elu": "elu", "leaky relu": "leaky_relu",
}  # fmt: skip
STUDY = {
    "identity": 1.0, "relu": math.sqrt(2), "tanh": 5 / 3, "gelu": 1.70093, "silu": 1.78719,
    "x Phi(x) - phi(x)": 1.53353, "selu": 0.75, "elu": 1.269457, "leaky relu": math.sqrt(2 / (1 + 0.01**2)),
}  # fmt: skip

if __name__ == "__main__":
    for name, gain in (("study", STUDY), ("anyinit", "anyinit")):
        start = time.perf_counter()
        found = anyinit.propagate(NINE, gain=gain)
        print(f"{name}: {time.perf_counter() - start:.0f} s\n{found}\n")
        if len(sys.argv) > 1:
            figure, _ = found.plot()
            figure.savefig(Path(sys.argv[1]) / f"nine_{name}.png")

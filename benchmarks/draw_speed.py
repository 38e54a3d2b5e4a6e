"""Time of a draw against NumPy's and PyTorch's own, measured in turn in one run.

    python benchmarks/draw_speed.py [--values 16777216] [--repeats 5]

Each line is the best of the repeats, in nanoseconds per value (orthogonal: milliseconds per matrix), and the
ratio to the first line of its group. All fill memory that exists already, except ``draw``, which
returns a new array; contenders take turns, so a busy machine slows all of them alike.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable

import numpy as np

from anyinit._core.sampling import DISTRIBUTIONS, draw

Job = tuple[str, Callable[[], object]]


def elementwise(law: str, side: int) -> list[Job]:
    shape = (1, side, side)
    jobs: list[Job] = [
        (f"draw, {law}, float32", lambda: draw(0, 0, "", shape, law, 0.02)),
        (f"draw, {law}, float32, one thread", lambda: draw(0, 0, "", shape, law, 0.02, threads=1)),
        (f"draw, {law}, float64", lambda: draw(0, 0, "", shape, law, 0.02, "float64")),
    ]
    generator, out = np.random.default_rng(0), np.empty((side, side), np.float32)
    if law == "normal":
        jobs.append(("numpy standard_normal, float32", lambda: generator.standard_normal(dtype=np.float32, out=out)))
    if law == "uniform":
        jobs.append(("numpy random, float32", lambda: generator.random(dtype=np.float32, out=out)))
    return jobs + torch_elementwise(law, side)


def torch_elementwise(law: str, side: int) -> list[Job]:
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    tensor = torch.empty(side, side)
    fills: dict[str, Callable[[], object]] = {
        "normal": lambda: tensor.normal_(0, 0.02),
        "truncated_normal": lambda: torch.nn.init.trunc_normal_(tensor, std=0.02, a=-0.04, b=0.04),
        "uniform": lambda: tensor.uniform_(-0.02, 0.02),
    }
    return [(f"torch {law}, float32, {torch.get_num_threads()} threads", fills[law])]


def orthogonal(rows: int, cols: int) -> list[Job]:
    gaussian = np.random.default_rng(0).standard_normal((max(rows, cols), min(rows, cols)))
    jobs: list[Job] = [
        (f"draw, orthogonal {rows} x {cols}, float32", lambda: draw(0, 0, "", (1, rows, cols), "orthogonal")),
        ("the same, float64", lambda: draw(0, 0, "", (1, rows, cols), "orthogonal", dtype="float64")),
        ("numpy QR of a Gaussian, float64", lambda: np.linalg.qr(gaussian)),
    ]
    if importlib.util.find_spec("torch") is not None:
        import torch

        tensor = torch.empty(rows, cols)
        jobs.append(("torch orthogonal_, float32", lambda: torch.nn.init.orthogonal_(tensor)))
    return jobs


def race(jobs: list[Job], repeats: int, scale: float, unit: str) -> None:
    """Every job once to warm up, then in turn; prints best times and ratios to the first."""
    best = [float("inf")] * len(jobs)
    for turn in range(repeats + 1):
        for i, (_, job) in enumerate(jobs):
            start = time.perf_counter()
            job()
            if turn:
                best[i] = min(best[i], time.perf_counter() - start)
    for (name, _), seconds in zip(jobs, best, strict=True):
        print(f"{name:<48} {seconds * scale:9.2f} {unit}   {seconds / best[0]:6.2f} x")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=2**24)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    side = max(1, int(options.values**0.5))
    for law in DISTRIBUTIONS[:3]:
        race(elementwise(law, side), options.repeats, 1e9 / side**2, "ns")
    for rows, cols in ((64, 64), (768, 768), (512, 4608), (1000, 2048)):
        race(orthogonal(rows, cols), options.repeats, 1e3, "ms")


if __name__ == "__main__":
    main()

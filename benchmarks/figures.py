"""The figures of the tutorials, from the code on their pages: data to docs/data, pictures to docs/img.

python benchmarks/figures.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import anyinit

DOCS = Path(__file__).parents[1] / "docs"
DATA = DOCS / "data" / "norms.json"
PICTURE = DOCS / "img" / "norms.png"
PAGE = DOCS / "tutorials" / "norms.md"
LEVEL, COSINE = "#0072B2", "#D55E00"


def first_block(page: Path) -> dict[str, Any]:
    """What the first block of a page defines, once it was run."""
    found = re.search(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found.group(1), str(page), "exec"), names)
    return names


def predicted(f: Any, gain: float, level: float, cosine: float, depth: int) -> tuple[list[float], list[float]]:
    """Levels and cosines at infinite width: ``q' = gain^2 E f^2`` and ``c' = E f(u) f(v) / E f^2``."""
    profile = anyinit.activation_profile(f)
    levels, cosines = [level], [cosine]
    for _ in range(depth):
        here = profile.moments(0.0, levels[-1])
        turned = profile.hermite(64, variance=levels[-1]) ** 2
        cosines.append(float((turned * cosines[-1] ** np.arange(64)).sum() / here.m2))
        levels.append(gain**2 * here.m2)
    return levels, cosines


def norms() -> dict[str, dict[str, list[float]]]:
    """Measured and predicted curves of every activation of the page."""
    page = first_block(PAGE)
    curves: dict[str, dict[str, list[float]]] = {}
    for name, (f, gain) in page["ACTIVATIONS"].items():
        levels, cosines = page["levels"][name], page["cosines"][name]
        theory = predicted(f, float(gain), float(levels[0]), float(cosines[0]), len(levels) - 1)
        rows = zip(("level", "cosine", "level predicted", "cosine predicted"), (levels, cosines, *theory), strict=True)
        curves[name] = {what: [float(f"{v:.6g}") for v in values] for what, values in rows}
    return curves


def draw(curves: dict[str, dict[str, list[float]]], path: Path) -> None:
    """A grid of three by three: level on the left axis, cosine on the right one."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 3, figsize=(10, 7.5), sharex=True, layout="constrained")
    for i, (ax, (name, rows)) in enumerate(zip(axes.flat, curves.items(), strict=True)):
        twin = ax.twinx()
        for axis, what, colour in ((ax, "level", LEVEL), (twin, "cosine", COSINE)):
            axis.plot(rows[what], color=colour, linewidth=1.6)
            axis.plot(rows[f"{what} predicted"], color=colour, linewidth=1.2, linestyle="--")
            axis.tick_params(axis="y", labelcolor=colour)
        ax.set_title(name)
        ax.set_yscale("log")
        low, high = min(rows["level"] + rows["level predicted"]), max(rows["level"] + rows["level predicted"])
        ax.set_ylim(min(low / 2, 1e-2), max(high * 2, 1e1))
        ax.minorticks_off()
        twin.set_ylim(-1.05, 1.05)
        ax.grid(True, alpha=0.3)
        if i % 3 == 0:
            ax.set_ylabel(r"level $E[x^2]$", color=LEVEL)
        if i % 3 == 2:
            twin.set_ylabel("cosine of a pair", color=COSINE)
        if i >= 6:
            ax.set_xlabel("layer")
    handles = [plt.Line2D([], [], color="0.3", linestyle=style) for style in ("-", "--")]
    figure.legend(handles, ["measured, 400 units", "predicted, infinitely many"], ncol=2, loc="outside upper center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    found = norms()
    DATA.write_text(json.dumps(found, indent=None, separators=(",", ":")) + "\n")
    draw(found, PICTURE)

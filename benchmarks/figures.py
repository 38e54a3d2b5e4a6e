"""The figures of the tutorials, from the code on their pages: data to docs/data, pictures to docs/img.

Makes those whose framework is installed:

    python benchmarks/figures.py
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import anyinit

DOCS = Path(__file__).parents[1] / "docs"
LEVEL, COSINE, GREY = "#0072B2", "#D55E00", "0.3"
LOOKS = {"constant": "0.45", "Xavier": "#CC79A7", "He": COSINE, "PyTorch": COSINE, "AnyInit": LEVEL}
Curves = dict[str, dict[str, list[float]]]


def data(name: str) -> Curves:
    """What a figure shows, as it was when it was made."""
    return json.loads((DOCS / "data" / f"{name}.json").read_text())


def run(page: str, blocks: int | None = None) -> dict[str, Any]:
    """What the first ``blocks`` blocks of a tutorial define, once they were run."""
    path = DOCS / "tutorials" / f"{page}.md"
    module = ModuleType(f"tutorial_{page}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    for code in re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)[:blocks]:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, str(path), "exec"), module.__dict__)
    return module.__dict__


def rounded(values: Any) -> list[float]:
    return [float(f"{float(v):.6g}") for v in values]


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


def norms() -> Curves:
    """Measured and predicted levels and cosines of every activation."""
    page = run("norms", 1)
    curves: Curves = {}
    for name, (f, gain) in page["ACTIVATIONS"].items():
        levels, cosines = page["levels"][name], page["cosines"][name]
        theory = predicted(f, float(gain), float(levels[0]), float(cosines[0]), len(levels) - 1)
        rows = zip(("level", "cosine", "level predicted", "cosine predicted"), (levels, cosines, *theory), strict=True)
        curves[name] = {what: rounded(values) for what, values in rows}
    return curves


def depth() -> Curves:
    """Level behind every activation and gradient of every weight, per depth and start."""
    import torch

    page = run("depth", 2)
    curves: Curves = {}
    for layers in (10, 30):
        for start in ("PyTorch", "AnyInit"):
            torch.manual_seed(0)
            model = page["network"](layers)
            if start == "AnyInit":
                anyinit.initialize(model, page["points"], seed=0)
            levels = page["levels"](model)
            torch.nn.functional.mse_loss(model(page["points"]), page["surface"]).backward()
            weights = [p.grad for name, p in model.named_parameters() if name.endswith("weight")]
            curves[f"{layers} layers, {start}"] = {
                "level": rounded(levels),
                "gradient": rounded(g.square().mean().sqrt() for g in weights if g is not None),
            }
    return curves


def lecture() -> Curves:
    """Gradients of all parameters before training, and the fits after it."""
    import jax

    page = run("lecture")
    grid = np.linspace(-4, 4, 81)[:, None]
    curves: Curves = {}
    for name, model in page["models"].items():
        found = page["leaves"](jax.grad(page["loss"])(model, page["x"], page["y"])).values()
        curves[name] = {
            "gradients": rounded(np.concatenate([leaf.ravel() for leaf in found])),
            "fit": rounded(np.asarray(jax.vmap(page["fitted"][name])(grid)).ravel()),
        }
    shown = slice(0, 200)
    curves["data"] = {"x": rounded(page["x"][shown, 0]), "y": rounded(page["y"][shown, 0])}
    return curves


def levels_of(page: str, name: str) -> Callable[[], Curves]:
    """Levels and gradients of a tutorial's report, predicted and measured."""

    def compute() -> Curves:
        columns = run(page)[name].plot_data()
        numbers = {what: rounded(values) for what, values in columns.items() if what != "name"}
        return {"report": numbers | {"name": columns["name"]}}

    return compute


def draw_levels(plt: Any, curves: Curves) -> Any:
    """Levels with their band on the left, gradients on the right."""
    rows = curves["report"]
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    at = range(1, len(rows["predicted"]) + 1)
    axes[0].fill_between(at, rows["low"], rows["high"], color=LEVEL, alpha=0.2, linewidth=0, label="90 % of draws")
    for ax, what in zip(axes, ("", "_grad"), strict=True):
        ax.plot(at, rows[f"predicted{what}"], color=LEVEL, marker=".", label="predicted")
        if np.isfinite(rows[f"measured{what}"]).any():
            ax.plot(at, rows[f"measured{what}"], "x", color=COSINE, label="measured")
        ax.set(yscale="log", xlabel="weight, in order of use")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(True, alpha=0.3)
    axes[0].set_ylabel(r"level $E[x^2]$")
    axes[1].set_ylabel("gradient $E[g^2]$")
    figure.legend(*axes[0].get_legend_handles_labels(), ncol=3, loc="outside upper center", fontsize=9)
    return figure


def draw_norms(plt: Any, curves: Curves) -> Any:
    """A grid of three by three: level on the left axis, cosine on the right one."""
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
    handles = [plt.Line2D([], [], color=GREY, linestyle=style) for style in ("-", "--")]
    figure.legend(handles, ["measured, 400 units", "predicted, infinitely many"], ncol=2, loc="outside upper center")
    return figure


def draw_depth(plt: Any, curves: Curves) -> Any:
    """Levels on the left, gradients on the right."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    for name, rows in curves.items():
        layers, start = name.split(" layers, ")
        style = {"color": LOOKS[start], "linestyle": "-" if layers == "30" else "--", "label": name}
        axes[0].semilogy(range(1, len(rows["level"]) + 1), rows["level"], **style)
        axes[1].semilogy(range(1, len(rows["gradient"]) + 1), rows["gradient"], **style)
    axes[0].set(xlabel="layer", ylabel=r"level $E[a^2]$ behind the activation")
    axes[1].set(xlabel="weight, first to last", ylabel="root mean square of its gradient")
    for ax in axes:
        ax.grid(True, alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), ncol=4, loc="outside upper center", fontsize=9)
    return figure


def draw_lecture(plt: Any, curves: Curves) -> Any:
    """Gradient histograms above, fits below, one column for each start."""
    starts = [name for name in curves if name != "data"]
    figure, axes = plt.subplots(2, len(starts), figsize=(11, 5.6), sharey="row", layout="constrained")
    grid = np.linspace(-4, 4, 81)
    widest = 1.02 * max(abs(v) for name in starts for v in curves[name]["gradients"])
    for (above, below), name in zip(axes.T, starts, strict=True):
        values = np.array(curves[name]["gradients"])
        above.hist(values, bins=np.linspace(-widest, widest, 41), color=LOOKS[name])
        above.set(title=name, xlabel="gradient of one parameter", yscale="log")
        below.plot(curves["data"]["x"], curves["data"]["y"], ".", color="0.7", markersize=3, label="data")
        below.plot(grid, 1.5 * grid**2 - 2 * grid, "--", color=GREY, label="truth")
        below.plot(grid, curves[name]["fit"], color=LOOKS[name], label="fit")
        below.set(xlabel="x", ylim=(-4, 30))
        below.legend(frameon=False, fontsize=8)
        for ax in (above, below):
            ax.grid(True, alpha=0.3)
    axes[0, 0].set_ylabel("parameters")
    axes[1, 0].set_ylabel("y")
    return figure


FIGURES: dict[str, tuple[str, Callable[[], Curves], Callable[[Any, Curves], Any]]] = {
    "norms": ("torch", norms, draw_norms),
    "depth": ("torch", depth, draw_depth),
    "resnet": ("torch", levels_of("resnet", "report"), draw_levels),
    "gpt": ("torch", levels_of("gpt", "report"), draw_levels),
    "pinn": ("torch", levels_of("pinn", "pinn_report"), draw_levels),
    "lecture": ("equinox", lecture, draw_lecture),
}


def main() -> None:
    """Make every figure whose framework is installed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    (DOCS / "img").mkdir(exist_ok=True)
    for name, (needs, compute, draw) in FIGURES.items():
        if importlib.util.find_spec(needs) is None:
            continue
        curves = compute()
        (DOCS / "data" / f"{name}.json").write_text(json.dumps(curves, separators=(",", ":")) + "\n")
        figure = draw(plt, curves)
        figure.savefig(DOCS / "img" / f"{name}.png", dpi=110)
        plt.close(figure)


if __name__ == "__main__":
    main()

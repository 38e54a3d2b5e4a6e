"""One seed, one network: fingerprints of drawn weights that every framework must reproduce.

Each framework has a file of builders beside this one (``golden_torch.py``, ``golden_linen.py``, ...) with one builder
for each of :data:`NETS` and a function ``net`` that makes a :class:`Net` of it. A fingerprint lists, draw by draw in
canonical order, the layout, the law and the SHA-256 of the float32 bytes in that layout, and some outputs on a
fixed input, which
prove that the layouts mean the same. ``python tests/support/golden.py`` writes ``tests/golden/*.json`` from PyTorch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import anyinit
from anyinit import _api
from anyinit._core.layout import extract

FOLDER = Path(__file__).parents[1] / "golden"
SEED = 2024


@dataclass(frozen=True)
class Recipe:
    """What a framework's file calls the network, its options, the shape of its input (images have their channels
    last) and the golden file, which networks that must agree among each other share."""

    builder: str
    shape: tuple[int, ...]
    file: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


NETS = {
    "mlp": Recipe("MLP", (8, 16), "mlp"),
    "cnn": Recipe("CNN", (4, 8, 8, 3), "cnn"),
    "residual": Recipe("Residual", (4, 8, 8, 3), "residual"),
    "block packed": Recipe("Block", (2, 6, 16), "block", {"packed": True}),
    "block separate": Recipe("Block", (2, 6, 16), "block", {"packed": False}),
    "lstm": Recipe("LSTM", (3, 5, 8), "lstm"),
}


@dataclass(frozen=True)
class Net:
    """A network with its parameters where they live apart, and how it is run on a channels-last input:
    ``run(model, params, x)``. ``spec`` is the shape it takes itself."""

    model: Any
    run: Callable[[Any, Any, Any], Any]
    spec: tuple[int, ...]
    params: Any = None


def made(home: str, name: str) -> Net:
    """A network of :data:`NETS` by the builders of ``golden_<home>.py``."""
    recipe, builders = NETS[name], import_module(f"golden_{home}")
    return builders.net(getattr(builders, recipe.builder), recipe.shape, **recipe.options)


def channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an image with its channels in second place; other shapes as they are."""
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) == 4 else shape


def given(name: str) -> Any:
    """A fixed input, free of any random generator."""
    shape = NETS[name].shape
    return (1.5 * np.sin(1.0 + 0.7 * np.arange(np.prod(shape)) ** 1.1)).reshape(shape).astype(np.float32)


def fingerprint(net: Net, name: str, seed: int = SEED) -> dict[str, Any]:
    """What this framework makes of the seed: draws in canonical order and a few outputs."""
    report = anyinit.initialize(net.model, net.spec, params=net.params, seed=seed, correct="never")
    held = values(report, net)
    draws = []
    for weight in report.plan.weights:
        for part in weight.parts:
            how = part.draw
            if how.distribution in ("keep", "constant") or not how.std:
                continue
            canonical = extract(held[weight.name], how.view, how.groups, how.outs, how.ins)
            data = np.ascontiguousarray(canonical, "<f4").tobytes()
            draws.append((how.key, list(canonical.shape), how.distribution, hashlib.sha256(data).hexdigest()))
    out = np.asarray(net.run(report.model, report.params, given(name)), np.float64).reshape(-1)
    return {
        "draws": [list(d[1:]) for d in sorted(draws)],
        "output": [float(f"{v:.4g}") for v in out[:: max(1, out.size // 16)]],
    }


def values(report: Any, net: Net) -> Mapping[str, Any]:
    """The written parameters by name."""
    home = _api._backend(net.model)[1]
    extra = {} if report.params is None else {"params": report.params}
    model = net.model if report.model is None else report.model
    return home.open_model(model, net.spec, **extra).read([w.name for w in report.plan.weights])


def golden(name: str) -> dict[str, Any]:
    """The saved fingerprint of a network."""
    return json.loads((FOLDER / f"{NETS[name].file}.json").read_text())


def agree(found: Mapping[str, Any], wanted: Mapping[str, Any], *, function: bool = True) -> None:
    """Equal draws to the byte, equal function to rounding (not asked of transposed convolutions, whose kernels JAX
    applies without turning them round)."""
    assert found["draws"] == wanted["draws"]
    if not function:
        return
    np.testing.assert_allclose(found["output"], wanted["output"], rtol=2e-3, atol=2e-3)


def main() -> None:
    """Write the golden files."""
    FOLDER.mkdir(exist_ok=True)
    for name in NETS:
        text = json.dumps(fingerprint(made("torch", name), name), indent=1)
        (FOLDER / f"{NETS[name].file}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()

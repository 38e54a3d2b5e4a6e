"""How often a diagnosis accuses models of a zoo: with their own draws, and with this library's.

Run: PYTHONPATH=src python benchmarks/health.py FILE [names ...]
FILE holds ``REG``: names to ``(group, build)``, where ``build()`` gives a model, its inputs and its keywords.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from typing import Any

import torch

import anyinit
from anyinit.errors import AnyInitError


def models(path: str) -> dict[str, Any]:
    """The builders of a zoo by name."""
    spec = importlib.util.spec_from_file_location("zoo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: build for name, (_, build) in module.REG.items()}


def kinds(build: Any, ours: bool) -> list[str]:
    """Findings on a fresh model, in short."""
    torch.manual_seed(0)
    model, args, keywords = build()
    forward = (lambda m, _: m(*args, **keywords)) if args and keywords else None
    batch = keywords if not args else args if len(args) != 1 else args[0]
    if ours:
        anyinit.initialize(model, batch, seed=0, **({"forward": forward} if forward else {}))
    found = anyinit.diagnose(_Bound(model, forward) if forward else model, batch).findings
    return [f"{t.kind} at {t.where[0]}" for t in found]


class _Bound(torch.nn.Module):
    """A model whose call needs keywords."""

    def __init__(self, model: torch.nn.Module, run: Any) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self, *inputs: Any) -> Any:
        return self.run(self.model, inputs)


def main() -> None:
    warnings.simplefilter("ignore")
    builders = models(sys.argv[1])
    accused = {"stock": 0, "anyinit": 0}
    tried = 0
    for name in sys.argv[2:] or builders:
        try:
            found = {how: kinds(builders[name], how == "anyinit") for how in accused}
        except AnyInitError as error:
            print(f"{name}: {type(error).__name__}: {error.cause[:100]}", flush=True)
            continue
        tried += 1
        for how, what in found.items():
            accused[how] += bool(what)
            if what:
                print(f"{name} ({how}): {'; '.join(what)}", flush=True)
    print(", ".join(f"{how}: {n} of {tried} accused" for how, n in accused.items()))


if __name__ == "__main__":
    main()

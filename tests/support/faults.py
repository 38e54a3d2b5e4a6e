"""Faults planted in a sound network, and what a diagnosis has to say about each. No framework is imported here.

A network is a stack of ``(name of weight, name of bias)`` whose arrays a plant changes in place: weights ``(out, in)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]
DEPTH, WIDTH, INPUTS, CLASSES, SAMPLES = 4, 48, 24, 6, 64


@dataclass(frozen=True)
class Fault:
    """One plant. kind, where: of the finding it has to raise. activation, loss, optimizer: the setting it needs."""

    name: str
    plant: Callable[[Arrays], None]
    kind: str
    where: str
    activation: str = "relu"
    loss: bool = True
    optimizer: tuple[str, float] = ("adam", 1e-3)


def sound(rng: np.random.Generator) -> Arrays:
    """He-normal weights and zero biases of a plain network."""
    sizes = [INPUTS, *[WIDTH] * (DEPTH - 1), CLASSES]
    arrays: Arrays = {}
    for k in range(DEPTH):
        gain = 2 if k < DEPTH - 1 else 1
        arrays[f"w{k}"] = (rng.standard_normal((sizes[k + 1], sizes[k])) * np.sqrt(gain / sizes[k])).astype(np.float32)
        arrays[f"b{k}"] = np.zeros(sizes[k + 1], np.float32)
    return arrays


def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and one-hot classes."""
    x = rng.standard_normal((SAMPLES, INPUTS)).astype(np.float32)
    return x, np.eye(CLASSES, dtype=np.float32)[rng.integers(0, CLASSES, SAMPLES)]


def fill(name: str, value: float) -> Callable[[Arrays], None]:
    return lambda a: a[name].fill(value)


def times(factor: float, *names: str) -> Callable[[Arrays], None]:
    def plant(a: Arrays) -> None:
        for name in names:
            a[name] *= np.float32(factor)

    return plant


def every(value: float) -> Callable[[Arrays], None]:
    def plant(a: Arrays) -> None:
        for k in range(DEPTH):
            a[f"w{k}"].fill(value)

    return plant


def put(name: str, value: float, at: int = 7) -> Callable[[Arrays], None]:
    def plant(a: Arrays) -> None:
        a[name].reshape(-1)[at] = value

    return plant


def rows(name: str) -> Callable[[Arrays], None]:
    def plant(a: Arrays) -> None:
        a[name][:] = a[name][:1]

    return plant


def columns(name: str) -> Callable[[Arrays], None]:
    def plant(a: Arrays) -> None:
        a[name][:] = a[name][:, :1]

    return plant


def copied(source: str, target: str) -> Callable[[Arrays], None]:
    def plant(a: Arrays) -> None:
        a[target][:] = a[source]

    return plant


def garbage(a: Arrays) -> None:
    a["w1"].reshape(-1)[::5] = 1e-38


def sparse(a: Arrays) -> None:
    """All of a weight's level in three entries."""
    a["w1"] *= np.float32(1e-3)
    a["w1"].reshape(-1)[[5, 700, 1500]] = 8.0


def flat(a: Arrays) -> None:
    """Arguments about seven, where the slope of tanh is 3e-6 and not yet rounded to zero."""
    a["w1"] *= np.float32(0.1)
    a["b1"].fill(7.0)


def symmetric_pair(a: Arrays) -> None:
    """Equal rows, and behind them equal columns: nothing ever tells the units apart."""
    rows("w1")(a)
    columns("w2")(a)


LAST = f"w{DEPTH - 1}"
FAULTS = [
    Fault("every weight zero", every(0.0), "zero weights", "w0"),
    Fault("every weight zero behind tanh", every(0.0), "zero weights", "w0", activation="tanh"),
    Fault("every weight the same constant", every(0.1), "identical units", "w0"),
    Fault("every weight the same constant behind tanh", every(0.02), "identical units", "w1", activation="tanh"),
    Fault("one hidden weight zero", fill("w1", 0.0), "zero weights", "w1"),
    Fault("the first weight zero", fill("w0", 0.0), "zero weights", "w0"),
    Fault("equal rows before equal columns", symmetric_pair, "identical units", "w1", activation="tanh"),
    Fault("equal rows in one layer", rows("w1"), "identical rows", "w1"),
    Fault("a constant weight", fill("w2", 0.05), "identical rows", "w2", activation="tanh"),
    Fault("equal columns", columns("w1"), "identical columns", "w1", activation="tanh"),
    Fault("NaN in a weight", put("w1", np.nan), "not finite", "w1"),
    Fault("infinity in a weight", put("w2", np.inf), "not finite", "w2"),
    Fault("NaN in a bias", put("b1", np.nan), "not finite", "b1"),
    Fault("memory nobody wrote to, tiny", garbage, "uninitialized", "w1"),
    Fault("memory nobody wrote to, huge", put("w1", 3e9), "uninitialized", "w1"),
    Fault("overflow", times(1e15, "w0", "w1", "w2", LAST), "not finite", "w2"),
    Fault("a layer copied", copied("w1", "w2"), "clones", "w2"),
    Fault("scales that vanish", times(1e-2, "w0", "w1", "w2", LAST), "vanishing signal", LAST, activation="tanh"),
    Fault("scales that explode", times(40, "w0", "w1", "w2"), "exploding signal", "w2"),
    Fault("one weight far too large", times(100, "w1"), "scale", "w1"),
    Fault("one weight far too small", times(1e-4, "w1"), "scale", "w1"),
    Fault("units that never fire", fill("b1", -30.0), "dead units", "w1"),
    Fault("units that always fire", fill("b1", 30.0), "always on", "w1"),
    Fault("a large bias hides the input", fill("b1", 1e4), "inputs forgotten", "w1"),
    Fault("saturated tanh by scale", times(30, "w1"), "saturated", "w1", activation="tanh"),
    Fault("saturated tanh by bias", fill("b1", 9.0), "saturated", "w1", activation="tanh"),
    Fault("closed sigmoid gates", fill("b2", -12.0), "saturated", "w2", activation="sigmoid"),
    Fault("a few huge entries", sparse, "outliers", "w1"),
    Fault("logits far too large", times(30, LAST), "first loss", "output"),
    Fault("a step longer than the weight", times(1.0), "step too large", "w0", optimizer=("sgd", 1e4)),
    Fault("a step that rounds away", times(1.0), "step too small", "w0", optimizer=("adam", 1e-12)),
    Fault("a gradient that dies in a flat layer", flat, "vanishing gradient", "w0", activation="tanh"),
    Fault("branches that vanish, without a loss", times(1e-3, "w1", "w2"), "vanishing signal", "w2", loss=False),
]

"""What is measured of layers and weights, as plain data, and how one array is summarized."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BINS = 41
REACH = 4.0


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """Signals at one weight: at its own output, and behind the activation that follows.

    level, mean, kurtosis: second moment, mean and fourth standardized moment behind the activation. output: second
        moment at the weight's own operation; inflow: of what enters it. units: width.
    spread: share of the level that differs between samples. tokens: between the tokens of a sample.
    dead, always_on: shares of units that are zero (never zero) for every sample, where the activation can be zero.
    saturated: share of entries where a bounded activation's slope is below 5 % of its largest.
    rank: effective rank of the units over the samples (Roy & Vetterli 2007).
    None where a quantity does not exist.
    """

    name: str
    activation: str
    units: int
    level: float
    mean: float
    kurtosis: float
    output: float
    inflow: float | None
    spread: float | None
    dead: float | None
    always_on: float | None
    saturated: float | None
    rank: float | None
    tokens: float | None
    normalized: bool = False


@dataclass(frozen=True, slots=True)
class WeightFacts:
    """One parameter tensor and its gradient.

    rms, kurtosis, zeros: of the entries; strange: share with a magnitude that no draw has.
    gradient: second moment of the gradient, None without one; gradient_zeros: share of exact zeros in it; peak: share
        of its entries below a hundredth of its root mean square (0.8 % for a Gaussian).
    update: root mean square of the first optimizer step over that of the weight.
    counts: histogram of the gradient in units of its root mean square, ``BINS`` bins from -4 to 4.
    alike, gradient_alike: axes along which all slices are equal; outs: axes that count outputs.
    """

    name: str
    shape: tuple[int, ...]
    role: str
    trainable: bool
    rms: float
    kurtosis: float
    zeros: float
    finite: bool
    strange: float
    gradient: float | None = None
    gradient_finite: bool = True
    gradient_zeros: float | None = None
    peak: float | None = None
    update: float | None = None
    alike: tuple[int, ...] = ()
    gradient_alike: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    outs: tuple[int, ...] = ()

    @property
    def equal_rows(self) -> bool:
        """Whether several outputs have the same weights."""
        return any(axis in self.alike for axis in self.outs)

    @property
    def equal_columns(self) -> bool:
        """Whether an output weighs all of several inputs alike; of matrices only, whose other axis is that."""
        return len(self.shape) == 2 and bool(self.outs) and bool(set(self.alike) - set(self.outs))

    @property
    def dense_kurtosis(self) -> float:
        """Kurtosis of the entries that are not zero; 0 of fewer than 64."""
        return self.kurtosis * (1 - self.zeros) if math.prod(self.shape) >= 64 else 0.0


@dataclass
class Facts:
    """Everything measured of one model on one batch.

    attention: ``(where, entropy / log(keys))`` of every softmax that weighs values. clones: groups of parameters with
    the same numbers. loss, classes: the first loss and the number of classes it is over, where the caller gave one.
    blocked: weights without a gradient even when zeros in front of them are lifted.
    """

    layers: list[LayerFacts] = field(default_factory=list[LayerFacts])
    weights: list[WeightFacts] = field(default_factory=list[WeightFacts])
    attention: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    clones: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    blocked: list[str] = field(default_factory=list[str])
    unused: list[str] = field(default_factory=list[str])
    input_spread: float | None = None
    output_spread: float | None = None
    output_finite: bool = True
    loss: float | None = None
    classes: int | None = None
    samples: int = 0
    notes: list[str] = field(default_factory=list[str])


def moments(x: Array) -> tuple[float, float, float]:
    """Second moment, mean and kurtosis (3 for a Gaussian; 0 for a constant)."""
    wide = np.abs(x).astype(np.float64) if np.iscomplexobj(x) else np.asarray(x, dtype=np.float64)
    if not np.all(np.isfinite(wide)):
        return math.nan, math.nan, math.nan
    mean = float(wide.mean()) if wide.size else 0.0
    centred = wide - mean
    variance = float(np.mean(centred**2)) if wide.size else 0.0
    level = float(np.mean(wide**2)) if wide.size else 0.0
    if not variance > 1e-30 * max(level, 1e-300):
        return level, mean, 0.0
    return level, mean, float(np.mean((centred / np.sqrt(variance)) ** 4))


def spread(x: Array, axis: int = 0) -> float | None:
    """Share of the second moment that differs along an axis: 0 where all its slices are equal; None without two, and
    where there is nothing but zeros."""
    if x.ndim <= axis or x.shape[axis] < 2:
        return None
    wide = np.asarray(x, dtype=np.complex128 if np.iscomplexobj(x) else np.float64)
    if not np.all(np.isfinite(wide)):
        return None
    level = float(np.mean(np.abs(wide) ** 2))
    if level <= 0:
        return None
    return float(np.mean(np.var(wide, axis=axis)) / level)


def histogram(gradient: Array) -> tuple[int, ...]:
    """Counts of a gradient in units of its root mean square; what lies beyond the range is in the outer bins."""
    flat = np.real(gradient).ravel().astype(np.float64)
    scale = float(np.sqrt(np.mean(flat**2))) if flat.size else 0.0
    if not np.isfinite(scale) or scale == 0:
        return ()
    clipped = np.clip(flat / scale, -REACH, REACH)
    return tuple(int(n) for n in np.histogram(clipped, BINS, (-REACH, REACH))[0])


def equal_slices(x: Array) -> tuple[int, ...]:
    """Axes of two or more entries along which all slices hold the same numbers, to a millionth of the largest."""
    if x.size < 2 or not np.all(np.isfinite(x)):
        return ()
    tolerance = 1e-6 * float(np.max(np.abs(x)))
    return tuple(
        axis
        for axis, n in enumerate(x.shape)
        if n > 1 and float(np.max(np.abs(x - np.take(x, [0], axis=axis)))) <= tolerance
    )

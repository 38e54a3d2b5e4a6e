"""What a task is, and the fixed data that tasks share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tasks import data

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """One model on one fixed data set.

    build: makes the model with its own default initialization. loss: ``loss(model, batch)``. batch: ``batch(rng)``
    draws a training batch, ``batch.split()`` holds some data back. constant: loss of the best constant prediction.
    forward: what AnyInit records in place of ``model(inputs)``, where the loss asks for more than a plain call.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: Rows | Windows
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    constant: float
    steps: int
    forward: Callable[[Any, Any], torch.Tensor] | None = None


def feeds(layer: nn.Module, activation: str) -> nn.Module:
    """Note which activation a layer feeds, for starting points that set the gain by it."""
    layer.feeds = activation  # type: ignore[assignment]
    return layer


def digits() -> Batch:
    """1,797 handwritten digits of 8 x 8 pixels, standardized as a whole, and their classes."""
    images, classes = data.digits()
    x = torch.tensor(images)
    return (x - x.mean()) / x.std(), torch.tensor(classes)


@functools.cache
def surface() -> Batch:
    """A smooth function of two coordinates in [-1, 1] at 2,304 points, standardized."""
    side = torch.linspace(-1, 1, 48)
    x = torch.cartesian_prod(side, side)
    y = torch.sin(3 * x[:, 0]) * torch.cos(2 * x[:, 1]) + 0.5 * torch.tanh(4 * (x[:, 0] - x[:, 1]))
    return x, ((y - y.mean()) / y.std())[:, None]


def picture() -> Batch:
    """A photograph at 42 x 64 pixels, grey, standardized, and pixel coordinates."""
    small = torch.tensor(data.photograph())
    x = torch.cartesian_prod(torch.linspace(-1, 1, 42), torch.linspace(-1, 1, 64))
    return x, ((small - small.mean()) / small.std()).reshape(-1, 1)


def letters() -> tuple[torch.Tensor, int]:
    """A text as indices of letters, and the size of the alphabet."""
    found, count = data.letters()
    return torch.tensor(found), count


class Rows:
    """Batches of ``size`` random rows."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, size: int) -> None:
        self.x, self.y, self.size = x, y, size

    def __call__(self, rng: torch.Generator) -> Batch:
        at = torch.randint(0, len(self.x), (self.size,), generator=rng)
        return self.x[at], self.y[at]

    def split(self) -> tuple[Rows, Batch]:
        """Batches of four fifths of the rows, and the other fifth."""
        order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(5))
        held, kept = order[: len(order) // 5], order[len(order) // 5 :]
        return Rows(self.x[kept], self.y[kept], self.size), (self.x[held], self.y[held])


class Windows:
    """Batches of ``size`` random pieces of a text and the same pieces one letter on."""

    def __init__(self, text: torch.Tensor, length: int, size: int) -> None:
        self.text, self.length, self.size = text, length, size

    def __call__(self, rng: torch.Generator) -> Batch:
        at = torch.randint(0, len(self.text) - self.length - 1, (self.size, 1), generator=rng)
        at = at + torch.arange(self.length + 1)
        return self.text[at[:, :-1]], self.text[at[:, 1:]]

    def split(self) -> tuple[Windows, Batch]:
        """Batches of the first nine tenths of the text, and the last tenth in pieces."""
        end = len(self.text) * 9 // 10
        rest = self.text[end:]
        pieces = rest[: len(rest) // (self.length + 1) * (self.length + 1)].unflatten(0, (-1, self.length + 1))
        return Windows(self.text[:end], self.length, self.size), (pieces[:, :-1], pieces[:, 1:])


def rows(x: torch.Tensor, y: torch.Tensor, size: int) -> Rows:
    """Batches of ``size`` random rows."""
    return Rows(x, y, size)


def windows(length: int, size: int) -> Windows:
    """Batches of ``size`` random pieces of text and the same pieces one letter on."""
    return Windows(letters()[0], length, size)


def squares(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean squared error."""
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def classes(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Cross entropy, over the last axis of the logits."""
    logits = model(batch[0])
    return nn.functional.cross_entropy(logits.flatten(0, -2), batch[1].flatten())


def entropy(labels: torch.Tensor) -> float:
    """Cross entropy of the class frequencies: the best prediction that ignores the input."""
    p = torch.bincount(labels.flatten()).double()
    p = p[p > 0] / p.sum()
    return float(-(p * p.log()).sum())


def spread(values: torch.Tensor) -> float:
    """Mean squared error of the mean."""
    return float(values.double().var(unbiased=False)) or math.nan

"""What a task in JAX or Keras is, one shape for all libraries: pure functions of parameters and state."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any


class Model(Protocol):
    """One library's model, kept apart from its values."""

    def fresh(self, seed: int, inputs: Any) -> Any:
        """What AnyInit is handed, with the library's own default draw."""
        ...

    def placed(self, held: Any, inputs: Any, **options: Any) -> Any:
        """The same after :func:`anyinit.initialize`."""
        ...

    def split(self, held: Any) -> tuple[Tree, Tree]:
        """Its parameters and its state, as trees."""
        ...

    def apply(self, params: Tree, state: Tree, inputs: Any) -> tuple[Any, Tree]:
        """Outputs in training mode, and the state after them."""
        ...


@dataclass(frozen=True)
class Task:
    """One model on one fixed data set.

    batch: arrays of a batch from a NumPy generator. loss: of outputs and targets, or of ``(call, inputs, targets)``
    where ``whole``, ``call`` being the model. activation: what the weights feed whose path does not match ``linear``.
    tables: pattern of the paths that textbook schemes leave alone. forward: what AnyInit records in place of the model.
    """

    name: str
    model: Model
    batch: Callable[[np.random.Generator], tuple[Any, Any]]
    loss: Callable[..., Any]
    constant: float
    steps: int
    activation: str
    linear: str
    tables: tuple[str, ...] = ()
    forward: Callable[[Any, Any], Any] | None = None
    whole: bool = False

    def gained(self, params: Tree, gain: float) -> Tree:
        """``params`` with every matrix that feeds the activation multiplied by ``gain``."""

        def one(path: Any, leaf: Any) -> Any:
            name = jax.tree_util.keystr(path)
            plain = leaf.ndim < 2 or re.search(self.linear, name) or any(re.search(t, name) for t in self.tables)
            return leaf if plain else leaf * gain

        return jax.tree_util.tree_map_with_path(one, params)

    def objective(self, params: Tree, state: Tree, inputs: Any, targets: Any) -> tuple[Any, Tree]:
        """Loss and state after it."""
        if self.whole:
            return self.loss(lambda x: self.model.apply(params, state, x)[0], inputs, targets), state
        outputs, state = self.model.apply(params, state, inputs)
        return self.loss(outputs, targets), state


def squares(outputs: Any, targets: Any) -> Any:
    """Mean squared error."""
    return jnp.mean(jnp.square(outputs - targets))


def classes(logits: Any, targets: Any) -> Any:
    """Cross entropy over the last axis."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    return -picked.mean()


def entropy(labels: Any) -> float:
    """Cross entropy of the class frequencies: the best prediction that ignores the input."""
    p = np.bincount(np.ravel(labels)) / np.size(labels)
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def spread(values: Any) -> float:
    """Mean squared error of the mean."""
    return float(np.var(np.asarray(values, np.float64))) or math.nan


def rows(x: Any, y: Any, size: int) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    """Batches of ``size`` random rows."""

    def batch(rng: np.random.Generator) -> tuple[Any, Any]:
        at = rng.integers(0, len(x), size)
        return x[at], y[at]

    return batch


def windows(text: Any, length: int, size: int) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    """Batches of ``size`` random pieces of text and the same pieces one letter on."""

    def batch(rng: np.random.Generator) -> tuple[Any, Any]:
        at = rng.integers(0, len(text) - length - 1, (size, 1)) + np.arange(length + 1)
        return text[at[:, :-1]].astype(np.int32), text[at[:, 1:]].astype(np.int32)

    return batch

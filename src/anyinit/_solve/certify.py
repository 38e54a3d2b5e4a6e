"""Certificates: what can be computed at a starting point and says something about training from there.

None of them ranks two good starting points; each one, where it fails, names a way in which training is slow or fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anyinit._graph.graph import Graph
from anyinit._graph.ops import Contract
from anyinit._graph.runtime import Array, Runtime
from anyinit._solve.correct import square_mean
from anyinit._solve.plan import Certificate
from anyinit._solve.roles import Uses

SAMPLES = 16  # samples whose gradients are compared; the kernel has this many rows


class Differentiable(Runtime, Protocol):
    """A runtime that can tell samples apart."""

    def sample_gradients(self, weights: Mapping[str, Array], seed: int, count: int) -> Iterator[dict[str, Array]]:
        """As ``gradients``, for one sample of the batch (first axis of the outputs) after the other."""
        ...


def measure(graph: Graph, uses: Uses, runtime: Differentiable, weights: Mapping[str, Array]) -> tuple[Certificate, ...]:
    """The certificates of a model with ``weights`` on the runtime's batch.

    * *gradient ratio*, decades between the largest and the smallest second moment of a weight's gradient;
    * *forward spread*, decades between the largest and the smallest second moment that a weight is applied to;
    * *angle*, mean cosine of two samples where the last weight reads them;
    * *feature rank*, effective rank there: exp of the entropy of the spectrum (Roy & Vetterli 2007);
    * *kernel condition*, decades between the extreme eigenvalues of the tangent kernel of ``SAMPLES`` samples (Jacot et
      al. 2018), one random projection of the outputs each.
    """
    read = _reads(graph, uses)
    levels: list[float] = []
    last: list[NDArray[np.float64]] = []

    def visit(value: int, array: Array) -> None:
        levels.append(square_mean(array))
        if value == read[-1]:
            last[:] = [np.asarray(array, dtype=np.float64).reshape(len(array), -1)[: 4 * SAMPLES]]

    if read:
        runtime.run(weights, set(read), visit)
    found = [_decades("forward spread", levels)] if levels else []
    if last and len(last[0]) > 1:
        found += _features(last[0])
    return (*found, *_gradients(graph, runtime, weights))


def _reads(graph: Graph, uses: Uses) -> list[int]:
    """Values that weights are applied to, in order; inputs of the model are left out."""
    out = dict[int, None]()
    for node in graph.nodes:
        if isinstance(node.op, Contract) and any(i in uses.origin for i in node.inputs):
            out.update((i, None) for i in node.inputs if i in uses.live and i not in graph.leaves)
    return list(out)


def effective_rank(gram: NDArray[np.float64]) -> float:
    """``exp`` of the entropy of a Gram matrix's spectrum (Roy & Vetterli 2007): the number of directions in use."""
    spectrum = np.clip(np.linalg.eigvalsh(gram), 0, None)
    share = spectrum / max(float(spectrum.sum()), 1e-300)
    return math.exp(-float(np.sum(share * np.log(np.maximum(share, 1e-300)))))


def _features(x: NDArray[np.float64]) -> list[Certificate]:
    gram = x @ x.T
    norms = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    cosines = gram / np.outer(norms, norms)
    n = len(x)
    return [
        Certificate("angle", float((cosines.sum() - n) / (n * (n - 1)))),
        Certificate("feature rank", effective_rank(gram)),
    ]


def _gradients(graph: Graph, runtime: Differentiable, weights: Mapping[str, Array]) -> list[Certificate]:
    wide = {leaf.name for i, leaf in graph.params() if sum(n > 1 for n in graph.values[i].shape) > 1}
    rows: list[NDArray[np.float64]] = []
    squares: dict[str, float] = {}
    for found in islice(runtime.sample_gradients(weights, 0, SAMPLES), SAMPLES):
        rows.append(np.concatenate([_real(g) for g in found.values()]))
        for name, g in found.items():
            if name in wide:
                squares[name] = squares.get(name, 0.0) + float(np.mean(np.square(_real(g))))
    out = [_decades("gradient ratio", list(squares.values()))] if squares else []
    if len(rows) > 1:
        whole = np.stack(rows)
        spectrum = np.linalg.eigvalsh(whole @ whole.T)
        out.append(_decades("kernel condition", [float(spectrum[-1]), float(spectrum[0])]))
    return out


def _real(g: Array) -> NDArray[np.float64]:
    flat = np.ravel(g)
    parts = np.concatenate([flat.real, flat.imag]) if np.iscomplexobj(flat) else flat
    return np.asarray(parts, dtype=np.float64)


def _decades(name: str, values: list[float]) -> Certificate:
    """Decades from the least to the largest; infinite where one is zero or no number."""
    low, high = min(values), max(values)
    good = low > 0 and math.isfinite(high)
    return Certificate(name, math.log10(high / low) if good else math.inf)

"""An input for a model that came without one: what its first weight takes, tried on shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp

from anyinit._frameworks.jax.inputs import Batch
from anyinit._frameworks.jax.program import PARAM, Slot

BATCH, LENGTH = 16, 16
SIDES = (32, 28, 64, 224, 16, 8)
"""Sides of an image, in the order they are tried."""


def inferred(slots: Sequence[Slot], runs: Callable[[Batch], bool]) -> tuple[Batch, str] | None:
    """The first input the model runs on, and the weight it was read off; ``None`` if there is none."""
    for slot in slots:
        if slot.role != PARAM:
            continue
        for spec in _candidates(tuple(slot.value.shape)):
            batch = Batch((spec,), {})
            if runs(batch):
                return batch, slot.name
    return None


def _candidates(shape: tuple[int, ...]) -> Iterator[jax.ShapeDtypeStruct]:
    """Inputs a weight of this shape may take: rows for matrices, images for filters in either layout, ids."""
    if len(shape) == 2:
        for width in dict.fromkeys(shape):
            yield jax.ShapeDtypeStruct((BATCH, width), jnp.float32)
            yield jax.ShapeDtypeStruct((BATCH, LENGTH, width), jnp.float32)
        yield jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
        yield jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    elif len(shape) in (3, 4, 5):
        space = len(shape) - 2
        for side in SIDES:
            yield jax.ShapeDtypeStruct((4, *(side,) * space, shape[-2]), jnp.float32)
            yield jax.ShapeDtypeStruct((4, shape[1], *(side,) * space), jnp.float32)
        if len(shape) == 3:
            yield jax.ShapeDtypeStruct((BATCH, LENGTH, shape[0]), jnp.float32)

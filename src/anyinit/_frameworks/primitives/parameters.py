"""Parameters asked for and handed in by name: what fits and what does not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anyinit.errors import PlanError

Array = NDArray[Any]


def known(names: Collection[str], places: Mapping[str, int]) -> list[tuple[str, int]]:
    """The place of every name.

    Raises:
        PlanError: the model has no such parameter.
    """
    for name in names:
        if name not in places:
            raise PlanError(
                "The model has no such parameter", value=name, remedy="Names are those of the recorded graph."
            )
    return [(name, places[name]) for name in names]


def fitting(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """A value for a parameter as an array.

    Raises:
        PlanError: it has another shape, or entries that are not finite.
    """
    data = np.asarray(value)
    if data.shape != shape:
        raise PlanError(f"Parameter {name} has shape {shape}", value=data.shape, remedy="Make the plan for this model.")
    if not np.isfinite(data).all():
        raise PlanError(f"The values for {name} are not finite", remedy="Nothing was written.")
    return data

"""The variables of a Keras model: their names and what each is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anyinit._frameworks.primitives.flat import BUFFER, PARAM


@dataclass(frozen=True, slots=True)
class Named:
    """One variable with its name; ``trainable`` is off for a parameter that was frozen."""

    name: str
    variable: Any
    role: str
    trainable: bool


def named(model: Any) -> list[Named]:
    """Every variable of a model once, under its path; of equal paths the later ones are numbered.

    Parameters are what layers made as trainable, frozen or not; running statistics, seeds and metrics are buffers.
    """
    made = {id(v) for layer in model._flatten_layers() for v in layer._trainable_variables}
    made |= {id(v) for v in model.trainable_variables}
    taken, out = dict[str, int](), list[Named]()
    for variable in (*model.trainable_variables, *model.non_trainable_variables):
        path = str(variable.path).replace("/", ".")
        again = taken[path] = taken.get(path, 0) + 1
        number = "float" in str(variable.dtype) or "complex" in str(variable.dtype)
        role = PARAM if id(variable) in made and number else BUFFER
        out.append(Named(path if again == 1 else f"{path}_{again}", variable, role, bool(variable.trainable)))
    return out

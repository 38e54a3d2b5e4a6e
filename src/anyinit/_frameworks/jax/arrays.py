"""What arrays a model and its batch hold: alive, and on devices that one computation can use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax

from anyinit.errors import AnyInitError, ConfigError, TraceError

SHOWN = 4
MISFIT = "The model could not be run on this input: the params do not fit it"


def usable(named: Iterable[tuple[str, Any]]) -> None:
    """Refuse arrays that cannot be computed with.

    Raises:
        ConfigError: arrays were deleted, as buffers are that were donated to a call, or are bound to different devices.
    """
    held = [(n, x) for n, x in named if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)]
    gone = [n for n, x in held if x.is_deleted()]
    if gone:
        raise ConfigError(
            f"{_counted(gone)} deleted: donated to a call, most likely",
            value=_listed(gone),
            remedy="Pass the arrays which that call returned; jax.ShapeDtypeStruct where shapes are enough.",
        )
    homes = dict[frozenset[Any], str]()
    for n, x in held:
        if bound(x):
            homes.setdefault(frozenset(x.devices()), n)
    if len(homes) > 1:
        raise ConfigError(
            "Arrays are on different devices, which no single computation can use",
            value="; ".join(f"{n} on {', '.join(sorted(map(str, home)))}" for home, n in homes.items()),
            remedy="Move them to one device, or shard all of them over one mesh, with jax.device_put; or plan on "
            "shapes alone and apply the plan part by part.",
        )


def bound(array: Any) -> bool:
    """Whether an array was placed on its devices on purpose, so that computations have to go there."""
    return bool(getattr(array, "committed", getattr(array, "_committed", True)))


def _counted(names: list[str]) -> str:
    return "1 array was" if len(names) == 1 else f"{len(names)} arrays were"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def misfit(given: dict[str, Any], needed: dict[str, Any]) -> AnyInitError | None:
    """The error of parameters that are not those the model makes for itself on the same input, by name; ``None`` where
    nothing is missing and every shape agrees. Where shapes alone differ, the input may as well be the wrong one."""
    missing = [n for n in needed if n not in given]
    shapes = [(n, tuple(given[n].shape), tuple(needed[n].shape)) for n in needed if n in given and n not in missing]
    wrong = [f"{n} has shape {have} where {want} is needed" for n, have, want in shapes if have != want]
    if not missing and not wrong:
        return None
    extra = [n for n in given if n not in needed]
    told = [f"missing: {_listed(missing)}"] if missing else []
    told += wrong[:SHOWN]
    told += [f"not asked for: {_listed(extra)}"] if extra else []
    kind, cause = (ConfigError, "The params do not fit this model") if missing else (TraceError, MISFIT)
    return kind(
        cause,
        value="; ".join(told),
        remedy="Pass what the model's init returned, all collections of it, or no params at all; and check the shape "
        "and type of the input.",
    )

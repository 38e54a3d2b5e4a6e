"""The home of the statistics rules: one file for each family of operations."""

from anyinit._rules import (
    attention,
    contract,
    gather,
    merge,
    order,
    pointwise,
    pool,
    random,
    reduce,
    structure,
    transform,
)
from anyinit._rules.base import ADJOINT, FORWARD

__all__ = [
    "ADJOINT",
    "FORWARD",
    "attention",
    "contract",
    "gather",
    "merge",
    "order",
    "pointwise",
    "pool",
    "random",
    "reduce",
    "structure",
    "transform",
]

"""Loads every file of translations; one file per family of operations."""

from anyinit._frameworks.torch import (
    translate_attention,
    translate_contract,
    translate_norm,
    translate_pointwise,
    translate_random,
    translate_recurrent,
    translate_reduce,
    translate_structure,
)

__all__ = [
    "translate_attention",
    "translate_contract",
    "translate_norm",
    "translate_pointwise",
    "translate_random",
    "translate_recurrent",
    "translate_reduce",
    "translate_structure",
]

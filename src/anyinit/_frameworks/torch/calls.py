"""What the recorder must know about an ATen operation, read off its schema once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

SILENT = frozenset(
    {"detach", "detach_", "alias", "lift_fresh", "lift", "to", "_to_copy", "contiguous", "item", "_local_scalar_dense"}
    | {"resolve_conj", "resolve_neg", "requires_grad_", "is_nonzero", "_has_compatible_shallow_copy_type", "equal"}
    | {
        "sym_size",
        "sym_stride",
        "sym_numel",
        "sym_storage_offset",
        "is_same_size",
        "is_pinned",
        "clone",
        "_is_zerotensor",
    }
)
"""Calls that produce no number of their own and may differ between a run with and without data."""

LIKE = frozenset(
    {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"}
    | {"new_empty_strided"}
)
"""Calls whose result depends on the shape of their argument only."""

SHAPED = frozenset({"expand_as", "view_as", "reshape_as", "type_as"})
"""Calls that take nothing but shape or type from their second argument."""

EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
"""Calls whose contents are undefined; the recorder makes them zero."""

FIXED = {"_pack_padded_sequence": (1,)}
"""Results that are read off the batch and then held fixed, by position: how many rows each step has."""

READS = frozenset({"item", "_local_scalar_dense", "is_nonzero", "equal", "allclose"})
"""Calls that hand a number to Python."""


def plain_form(func: Any) -> Any:
    """For an operation that takes functions (a branch, a loop, attention with a score function): the
    Python code that does it step by step, None for an ordinary operation."""
    if not isinstance(func, torch._ops.HigherOrderOperator):
        return None
    if func.name() == "cond":
        return _branch
    kernel = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    if kernel is None:
        raise NotImplementedError(f"{func.name()} cannot be followed step by step")
    return kernel


def _branch(chosen: Any, if_true: Any, if_false: Any, operands: Any) -> Any:
    return if_true(*operands) if chosen else if_false(*operands)


@dataclass(frozen=True, slots=True)
class Call:
    """One ATen overload. ``mutated`` are the names of arguments it writes to."""

    name: str
    base: str
    overload: str
    arguments: tuple[str, ...]
    mutated: tuple[str, ...]
    random: bool
    silent: bool
    reshapes: bool

    @property
    def labels(self) -> tuple[str, str]:
        """Registry keys, most specific first."""
        return f"{self.base}.{self.overload}", self.base


def operands(call: Call, given: list[Any]) -> list[Any]:
    """Of the tensors given to a call, those whose numbers decide the result."""
    return [] if call.base in LIKE else given[:1] if call.base in SHAPED else given


_CALLS: dict[Any, Call] = {}


def describe(func: Any) -> Call:
    """The description of an operation, cached."""
    call = _CALLS.get(func)
    if call is None:
        call = _CALLS[func] = _describe(func)
    return call


def _describe(func: Any) -> Call:
    schema = func._schema
    space, plain = schema.name.split("::", 1)
    name = plain if space == "aten" else schema.name
    mutated = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    inplace = bool(mutated) and name.endswith("_") and not name.endswith("__")
    base = name[:-1] if inplace else name
    tags = getattr(func, "tags", [])
    random = torch.Tag.nondeterministic_seeded in tags and name not in ("dropout",)
    return Call(
        name, base, schema.overload_name or "default", tuple(a.name for a in schema.arguments), mutated, random,
        name in SILENT, torch.Tag.inplace_view in tags,
    )  # fmt: skip

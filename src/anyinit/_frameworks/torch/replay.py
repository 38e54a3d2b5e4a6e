"""Running a recorded model again on real numbers, watching and replacing its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from anyinit._frameworks.torch.calls import EMPTY, FIXED, describe, operands, plain_form
from anyinit._frameworks.torch.memory import LIMIT, storage_key, to_numpy
from anyinit._frameworks.torch.trees import tensors
from anyinit.errors import TraceError

Visit = Callable[[int, np.ndarray[Any, Any]], np.ndarray[Any, Any] | None]

COPIES = EMPTY | {"copy_"}
"""Calls autograd makes or saves depending on who else holds a tensor."""


class Replay(TorchDispatchMode):
    """Counts calls as the recorder did, shows watched results and puts replacements in their place.

    Args:
        calls: names of the recorded calls in order.
        watched: for the ordinal of a call, the value id of each watched position among its results.
        visit: called with the value id and its contents in execution order.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self, calls: list[str], watched: Mapping[int, Mapping[int, int]], visit: Visit) -> None:
        super().__init__()
        self._calls, self._watched, self._visit = calls, watched, visit
        self._step = -1
        self._dependent: dict[int, StorageWeakRef] = {}

    supports_higher_order_operators = True

    def depends(self, tensor: torch.Tensor) -> None:
        """The contents of this memory depend on the input or a weight."""
        if tensor.layout != torch.strided:
            return
        storage = tensor.untyped_storage()
        if storage._cdata not in self._dependent:  # the weak reference keeps the address from being used again
            self._dependent[storage._cdata] = StorageWeakRef(storage)

    def _constant(self, tensor: torch.Tensor) -> bool:
        return storage_key(tensor) not in self._dependent and tensor.numel() <= LIMIT

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (plain := plain_form(func)) is not None:
            with self:
                return plain(*args, **(kwargs or {}))
        call = describe(func)
        given = list(tensors((args, kwargs)))
        constant = not call.random and all(map(self._constant, operands(call, given)))
        out = func(*args, **(kwargs or {}))
        made = list(tensors(out))
        if constant and all(t.numel() <= LIMIT for t in made):
            return out
        for index, t in enumerate(made):
            if index not in FIXED.get(call.base, ()):
                self.depends(t)
        if call.mutated:
            bound = dict(zip(call.arguments, args, strict=False)) | (kwargs or {})
            for t in tensors([bound.get(name) for name in call.mutated]):
                self.depends(t)
        if call.silent:
            return out
        if not self._advance(call.name):
            return out
        wanted = self._watched.get(self._step)
        return out if wanted is None else self._shown(out, wanted, bool(call.mutated))

    def _advance(self, name: str) -> bool:
        """Move to the recorded call of this name; False for a copy that only one of the runs makes."""
        step = self._step + 1
        while step < len(self._calls) and self._calls[step] != name and self._calls[step] in COPIES:
            step += 1
        if step < len(self._calls) and self._calls[step] == name:
            self._step = step
            return True
        if name in COPIES:
            return False
        expected = self._calls[self._step + 1] if self._step + 1 < len(self._calls) else "the end"
        raise TraceError(
            "The model took another path than when it was recorded",
            value=f"call {self._step + 1} is {name}, recorded was {expected}",
            remedy="Give the batch as input_spec, so that both runs see the same numbers.",
        )

    def _shown(self, out: Any, wanted: Mapping[int, int], inplace: bool) -> Any:
        count = iter(range(1 << 30))

        def walk(tree: Any) -> Any:
            if isinstance(tree, torch.Tensor):
                value = wanted.get(next(count))
                return tree if value is None else self._one(tree, value, inplace)
            return type(tree)([walk(item) for item in tree]) if isinstance(tree, (list, tuple)) else tree

        return walk(out)

    def _one(self, tensor: torch.Tensor, value: int, inplace: bool) -> torch.Tensor:
        new = self._visit(value, to_numpy(tensor))
        if new is None:
            return tensor
        replacement = torch.from_numpy(np.ascontiguousarray(new)).to(tensor.device, tensor.dtype)
        if inplace:
            return tensor.copy_(replacement)
        replacement = replacement.reshape(tensor.shape)
        self.depends(replacement)
        return replacement

    def finish(self) -> None:
        """The whole recording must have been replayed."""
        if any(name not in COPIES for name in self._calls[self._step + 1 :]):
            raise TraceError(
                "The model stopped before the end of the recorded run",
                value=f"{self._step + 1} of {len(self._calls)} calls",
                remedy="Give the batch as input_spec, so that both runs see the same numbers.",
            )

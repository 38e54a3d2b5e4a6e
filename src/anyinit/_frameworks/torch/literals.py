"""Keeping the numbers of tensors written down in the model's code while it runs without data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LITERALS = (torch.tensor, torch.as_tensor, torch.asarray)


class Literals(TorchFunctionMode):
    """``torch.tensor([1.0], device="meta")`` would forget its numbers before any operation is seen; here
    it is made on the CPU. Lists used as indices become tensors for the same reason."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _LITERALS and _meta(kwargs.get("device")) and not (args and isinstance(args[0], Tensor)):
            return func(*args, **{**kwargs, "device": "cpu"})
        if func is Tensor.new_tensor and args[0].is_meta and not isinstance(args[1], Tensor):
            return torch.tensor(args[1], **{"dtype": args[0].dtype, **kwargs, "device": "cpu"})
        if func in (Tensor.__getitem__, Tensor.__setitem__) and args[0].is_meta:
            args = (args[0], _indices(args[1]), *args[2:])
        return func(*args, **kwargs)


def _meta(device: Any) -> bool:
    return device is not None and torch.device(device).type == "meta"


def _indices(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(torch.tensor(part) if isinstance(part, list) else part for part in index)
    return torch.tensor(index) if isinstance(index, list) else index

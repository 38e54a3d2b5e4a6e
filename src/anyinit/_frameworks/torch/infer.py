"""An input for a model that came without one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from anyinit._frameworks.torch import adapters
from anyinit._frameworks.torch.inputs import Slot, dtype_of

BATCH, LENGTH = 16, 16


def inferred(model: nn.Module) -> Any:
    """An input specification read off the model, or None: example inputs it carries, a
    transformers or timm configuration, else the first weight."""
    inner = adapters.unwrapped(model)
    example = getattr(inner, "example_input_array", None)  # Lightning's convention
    if example is not None:
        return example
    for maker in (_from_config, _from_default_cfg, _from_first_weight):
        found = maker(inner)
        if found is not None:
            return found
    return None


def _from_config(model: nn.Module) -> Any:
    config = adapters.config_of(model)
    main = getattr(model, "main_input_name", None)
    if config is None or not isinstance(main, str):
        return None
    if main == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        return {main: Slot((4, getattr(config, "num_channels", 3), height, width), dtype_of(model))}
    vocabulary = getattr(config, "vocab_size", None)
    if main != "input_ids" or not isinstance(vocabulary, int):
        return None
    limit = getattr(config, "max_position_embeddings", None) or LENGTH
    ids = Slot((4, min(LENGTH, int(limit))), torch.int64, vocabulary)
    both = getattr(config, "is_encoder_decoder", False)
    return {main: ids, "decoder_input_ids": ids} if both else {main: ids}


def _from_default_cfg(model: nn.Module) -> Any:
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    size = config.get("input_size") if isinstance(config, dict) else None
    return (4, *size) if size else None


def _from_first_weight(model: nn.Module) -> Any:
    """The first module with a weight says what it takes, provided it is called first."""
    for module in model.modules():
        own = [p for p in module.parameters(recurse=False) if p.ndim > 1]
        if not own:
            continue
        if isinstance(module, nn.parameter.UninitializedTensorMixin) or any(
            isinstance(p, nn.parameter.UninitializedTensorMixin) for p in own
        ):
            return None
        match module:
            case nn.Linear():
                return (BATCH, module.in_features)
            case nn.Embedding() | nn.EmbeddingBag():
                return (BATCH, LENGTH)
            case nn.modules.conv._ConvNd():
                n = len(module.kernel_size)
                return (4, module.in_channels, *_space(model, module, n))
            case nn.RNNBase():
                lead = (BATCH, LENGTH) if module.batch_first else (LENGTH, BATCH)
                return (*lead, module.input_size)
            case _:
                return None
    return None


def _space(model: nn.Module, first: Any, n: int) -> tuple[int, ...]:
    """A spatial size the whole model takes: tried without data, smallest usable first."""
    device = next(model.parameters()).device
    sizes = {1: (64, 128, 256, 1024, 4096, 16000), 2: (32, 28, 64, 96, 128, 224, 256, 299, 512), 3: (16, 32, 64, 112)}[
        n
    ]
    del device
    for size in sizes:
        if _takes(model, (4, first.in_channels, *(size,) * n), first.weight.dtype):
            return (size,) * n
    return (sizes[0],) * n


def _takes(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    from anyinit._frameworks.torch.runtime import runs_without_data

    return runs_without_data(model, torch.empty(shape, dtype=dtype, device="meta"))

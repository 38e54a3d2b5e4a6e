"""Everything a run may change besides its result, put back exactly."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from anyinit._frameworks.torch import adapters

_DICTS = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks")


@contextmanager
def rng_kept() -> Generator[None]:
    """Python's, NumPy's and PyTorch's random states are as before afterwards."""
    python, legacy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def seed_noise(seed: int) -> None:
    """Seed the noise of a run; a device that was never used is not touched, not even with a pending seed."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def modules_kept(model: torch.nn.Module) -> Generator[None]:
    """Attributes, flags, caches, hooks and registered tensors of every module are as before.

    Attributes are kept by reference; lists, dicts, sets and deques among them also by content.
    """
    saved = [(module, dict(vars(module)), _contents(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes, contents in saved:
            space = vars(module)
            space.clear()
            space.update(attributes)
            for container, content in contents:
                _refill(container, content)


def _contents(attributes: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    plain = [v for v in attributes.values() if type(v) in (list, set, deque) or isinstance(v, MutableMapping)]
    return [(v, dict(v) if isinstance(v, MutableMapping) else list(v)) for v in plain]


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, MutableMapping):
        if dict(container) is not content and not _same_items(container, content):
            container.clear()
            container.update(content)
    elif len(container) != len(content) or any(a is not b for a, b in zip(container, content, strict=True)):
        container.clear()
        (container.update if isinstance(container, set) else container.extend)(content)


def _same_items(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> bool:
    return len(a) == len(b) and all(x is y and a[x] is b[y] for x, y in zip(a, b, strict=True))


@contextmanager
def grads_kept(model: torch.nn.Module) -> Generator[None]:
    """Parameters have no gradient inside and their own again afterwards."""
    saved = [(p, p.grad, p.requires_grad) for p in model.parameters()]
    try:
        for p, grad, _ in saved:
            if grad is not None:
                p.grad = None
        yield
    finally:
        for p, grad, wanted in saved:
            if p.grad is not grad:
                p.grad = grad
            if p.requires_grad != wanted:
                p.requires_grad_(wanted)


@contextmanager
def unchanged(model: torch.nn.Module, *, training: bool = True) -> Generator[None]:
    """A run of the model, in training or evaluation mode, that leaves no trace on it or on the process."""
    with ExitStack() as stack:
        stack.enter_context(rng_kept())
        stack.enter_context(grads_kept(model))
        stack.enter_context(modules_kept(model))
        stack.enter_context(adapters.plain_execution())
        scripted = [m for m in model.modules() if isinstance(m, torch.jit.ScriptModule)]
        flags = [m.training for m in scripted]
        for module in model.modules():
            if module in scripted:
                module.train(training)
            else:
                vars(module)["training"] = training
        try:
            yield
        finally:
            for module, flag in zip(scripted, flags, strict=True):
                module.training = flag


class Scopes:
    """Path of the module that is running, by hooks that exist only while it is entered."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._names = {id(module): name for name, module in model.named_modules()}
        self._stack: list[str] = [""]
        self._handles: list[Any] = []

    def __call__(self) -> str:
        return self._stack[-1]

    def __enter__(self) -> Scopes:
        module = torch.nn.modules.module
        self._handles = [
            module.register_module_forward_pre_hook(self._push),
            module.register_module_forward_hook(self._pop, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _push(self, module: torch.nn.Module, _: Any) -> None:
        self._stack.append(self._names.get(id(module), self._stack[-1]))

    def _pop(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        if len(self._stack) > 1:
            self._stack.pop()

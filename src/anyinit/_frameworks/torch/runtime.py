"""The PyTorch runtime: recording, running, differentiating, reading and writing one model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn

    from anyinit._frameworks.torch.recording import Recording
    from anyinit._graph.graph import Graph

Array = np.ndarray[Any, Any]


def recognizes(model: object) -> bool:
    """Whether an object is a PyTorch module; never imports PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def open_model(model: nn.Module, input_spec: Any = None, forward: Callable[..., Any] | None = None) -> TorchRuntime:
    """The runtime of a model.

    Args:
        model: any module. Lazy parameters are given their shapes by one run on the input.
        input_spec: shape, tensor, array, tuple or dict of them, a callable returning one, or None.
        forward: ``forward(model, batch)`` is run instead of ``model(*batch)``.

    Raises:
        ConfigError: the input cannot be used or inferred.
        TraceError: giving lazy parameters their shapes failed in the model itself.
    """
    return TorchRuntime(model, input_spec, forward)


class TorchRuntime:
    """Implements :class:`anyinit._graph.runtime.Runtime` for a PyTorch module.

    ``batch_given``: the input holds the caller's own numbers and not only shapes.
    """

    def __init__(self, model: nn.Module, input_spec: Any = None, forward: Callable[..., Any] | None = None) -> None:
        from anyinit._frameworks.torch import inputs, lazy

        self.model, self._forward = model, forward
        self._inputs = inputs.parse(model, input_spec, forward)
        lazy.materialize(model, self._inputs, forward)
        self._recording: Recording | None = None

    # --- facts ------------------------------------------------------------------------------

    @property
    def batch_given(self) -> bool:
        """Whether the caller gave numbers, not only a shape."""
        return self._inputs.given

    def input_arrays(self) -> dict[str, Array]:
        """The caller's batch by the names of the input leaves; empty when only a shape was given."""
        return self._inputs.arrays()

    def inputs_used(self) -> dict[str, Array]:
        """What :meth:`run` feeds, by the names of the input leaves: the batch, else synthetic input."""
        from anyinit._frameworks.torch.memory import to_numpy

        return {name: to_numpy(t) for name, t in self._inputs.named(self._inputs.real())}

    def parameters(self) -> list[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]]:
        """``(name, aliases, shape, dtype, trainable)`` of every parameter, in the model's own order;
        parameters that share memory appear once."""
        from anyinit._frameworks.torch import effective
        from anyinit._frameworks.torch.recording import named_leaves

        computed = effective.find(self.model)
        weights = {item.name: item.value() for item in computed}
        leaves = named_leaves(self.model, computed, weights)
        owner = {id(p): weights[item.name] for item in computed for p in item.originals}
        facts: dict[str, tuple[str, tuple[str, ...], tuple[int, ...], str, bool]] = {}
        for p in self.model.parameters():
            tensor = owner.get(id(p), p)
            leaf = leaves[id(tensor)]
            facts.setdefault(leaf.name, (leaf.name, leaf.aliases, tuple(tensor.shape), leaf.dtype, leaf.trainable))
        return list(facts.values())

    def decided(self) -> dict[str, str]:
        """Weights that no draw can set, with the reason: a parametrization decides their numbers."""
        from anyinit._frameworks.torch import effective

        return {
            item.name: f"its parametrization ({item.kind}) decides its numbers"
            for item in effective.find(self.model)
            if item.invert is None and any(p.requires_grad for p in item.originals)
        }

    def paths_of(self, thing: object) -> tuple[str, ...] | None:
        """Names under which a module stands in the model (the model itself: ``*``); None for anything else."""
        from torch import nn

        if not isinstance(thing, nn.Module):
            return None
        modules = self.model.named_modules(remove_duplicate=False)
        return tuple(name or "*" for name, module in modules if module is thing)

    def record(self) -> Graph:
        """The graph of one run in training mode; cached."""
        return self.recording().graph

    def recording(self) -> Recording:
        """The graph with the tape that finds its values again."""
        if self._recording is None:
            self._recording = self._record()
        return self._recording

    def _record(self) -> Recording:
        """A shape says nothing about the type: what was taken for numbers may be ids, and the reverse."""
        from anyinit._frameworks.torch import inputs, recording
        from anyinit._frameworks.torch.record import IdsNeededError
        from anyinit.errors import TraceError

        found: Recording | None = None
        try:
            found = recording.record(self.model, self._inputs, self._forward)
            pair = None if found.training else self._inputs.as_pair()
            if pair is None:
                return found
            other, cause = pair, None  # batch statistics need a second sample
        except IdsNeededError as error:
            other, cause = self._inputs.as_ids(error.vocabulary), error
        except TraceError as error:
            other, cause = self._inputs.as_numbers(inputs.dtype_of(self.model)), error
        if other is not None:
            try:
                second = recording.record(self.model, other, self._forward)
            except (TraceError, IdsNeededError):
                if found is not None:
                    return found
            else:
                self._inputs = other
                return second
        if isinstance(cause, TraceError):
            raise cause
        raise TraceError("The model looks rows up with numbers that are no ids", value=str(cause),
                         remedy="Pass integers, or a shape for ids only.") from cause  # fmt: skip

    # --- weights ----------------------------------------------------------------------------

    def read(self, names: Collection[str]) -> dict[str, Array]:
        """Parameters by name, half types widened to float32."""
        from anyinit._frameworks.torch import weights

        return weights.read(self.model, names)

    def stock(self, names: Collection[str], seed: int) -> dict[str, Array]:
        """What the model's own modules would draw for these parameters; the model is left as it is."""
        from anyinit._frameworks.torch import stock

        return stock.redrawn(self.model, names, seed)

    def write(self, values: Mapping[str, Array], *, rollback: bool = True) -> None:
        """Set parameters in place; all or nothing (values that do not fit are refused before the first write;
        ``rollback`` restores the model when a write itself fails)."""
        from anyinit._frameworks.torch import weights

        weights.write(self.model, values, rollback=rollback)

    # --- runs -------------------------------------------------------------------------------

    def run(
        self, weights: Mapping[str, Array], watch: Collection[int], visit: Callable[[int, Array], Array | None]
    ) -> None:
        """One run on real data with ``weights`` in place of the model's own; see the protocol.

        Raises:
            TraceError: the run took another path than the recorded one, or the model refused real numbers.
        """
        from anyinit._frameworks.torch.recording import whole_operations
        from anyinit._frameworks.torch.replay import Replay

        rec = self.recording()
        watched: dict[int, dict[int, int]] = {}
        for value in watch:
            if value in rec.tape.results:
                step, position = rec.tape.results[value]
                watched.setdefault(step, {})[position] = value
        replay = Replay(rec.tape.calls, watched, visit)
        tree = self._inputs.real()
        for _, tensor in self._inputs.named(tree):
            replay.depends(tensor)
        with ExitStack() as stack:
            for tensor in self._prepare(stack, weights, rec).values():
                replay.depends(tensor)
            with replay, whole_operations(rec.level):
                self._call(tree)
        replay.finish()

    def gradients(self, weights: Mapping[str, Array], seed: int | None) -> dict[str, Array]:
        """Gradients of ``sum(output * c)``, ``c`` standard normal from ``seed`` or 1, by parameter name."""
        return next(self._gradients(weights, seed, None), {})

    def sample_gradients(self, weights: Mapping[str, Array], seed: int, count: int) -> Iterator[dict[str, Array]]:
        """As :meth:`gradients`, for one sample (first axis of the outputs) after the other, ``count`` at most."""
        return self._gradients(weights, seed, count)

    def _gradients(
        self, weights: Mapping[str, Array], seed: int | None, count: int | None
    ) -> Iterator[dict[str, Array]]:
        import torch

        from anyinit._frameworks.torch.memory import to_numpy
        from anyinit._frameworks.torch.trees import flatten
        from anyinit.errors import TraceError

        rec = self.recording()
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        found: list[dict[str, Array]] = []
        with ExitStack() as stack, torch.enable_grad():
            used = self._prepare(stack, weights, rec, copied=True)  # a model may take a step of its own inside
            named = [(n, p) for n, p in used.items() if p.requires_grad]
            stack.enter_context(torch.enable_grad())
            result = self._call(self._inputs.real())
            outs = [t for t in flatten(result) if t.requires_grad]
            if not outs or not named:
                return
            products = [_weighted(t, generator) for t in outs]
            for loss in _losses(products, count):
                try:
                    grads = torch.autograd.grad(
                        loss, [p for _, p in named], allow_unused=True, retain_graph=count is not None
                    )
                except RuntimeError as error:
                    raise TraceError(
                        f"The output of the model could not be differentiated: {error}",
                        value=type(self.model).__name__, remedy="Check that a training step of this model works.",
                    ) from error  # fmt: skip
                pairs = zip(named, grads, strict=True)
                found.append({n: to_numpy(g.to_dense()) for (n, _), g in pairs if g is not None})
        yield from found

    def _call(self, tree: Any) -> Any:
        """The model on real numbers; types that do not fit show here first, since recording needs no numbers."""
        from anyinit._frameworks.torch.recording import refused

        try:
            return self._inputs.call(self.model, self._forward, tree)
        except RuntimeError as error:
            raise refused(error, self._inputs) from error

    def _prepare(
        self, stack: ExitStack, weights: Mapping[str, Array], rec: Recording, *, copied: bool = False
    ) -> dict[str, Tensor]:
        """Enter everything a run on other weights needs; returns the weights it uses. ``copied``: none of them is the
        model's own memory."""
        from anyinit._frameworks.torch.guard import seed_noise, unchanged
        from anyinit._frameworks.torch.recording import level_of
        from anyinit._frameworks.torch.weights import substituted

        stack.enter_context(unchanged(self.model, training=rec.training))
        used = stack.enter_context(substituted(self.model, weights, all_copied=copied or rec.writes))
        stack.enter_context(level_of(rec.level))
        seed_noise(0)
        return used


def _weighted(out: Tensor, generator: Any) -> Tensor:
    """``Re out * c`` in float32 or wider."""
    import torch

    wide = (
        out
        if out.dtype in (torch.float64, torch.complex128)
        else out.to(torch.complex64 if out.is_complex() else torch.float32)
    )
    if generator is None:
        return wide.real if wide.is_complex() else wide
    c = torch.randn(out.shape, generator=generator, dtype=torch.complex64 if out.is_complex() else torch.float32)
    product = wide * c.to(out.device, wide.dtype)
    return product.real if product.is_complex() else product


def _losses(products: list[Tensor], count: int | None) -> Iterator[Tensor]:
    """The sum of all, or that of each sample."""
    import torch

    if count is None:
        yield torch.stack([p.sum() for p in products]).sum()
        return
    batched = [p for p in products if p.ndim > 0]
    for i in range(min([count, *(len(p) for p in batched)]) if batched else 0):
        yield torch.stack([p[i].sum() for p in batched]).sum()


def runs_without_data(model: nn.Module, batch: Tensor) -> bool:
    """Whether the model takes a meta tensor of this shape."""
    from anyinit._frameworks.torch.inputs import Inputs
    from anyinit._frameworks.torch.recording import attempt

    try:
        attempt(model, Inputs(batch, "one", False, batch.device), None, meta=True, level="whole", training=True)
    except Exception:  # noqa: BLE001  (any error of the model's means: not this shape)
        return False
    return True

"""``JaxRuntime``: the runtime protocol for every framework on JAX."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from anyinit._frameworks.jax import open_model, recognizes
from anyinit._frameworks.jax.arrays import bound, usable
from anyinit._frameworks.jax.flatten import Flat, as_jax, evaluate, needed_for
from anyinit._frameworks.jax.inputs import Batch, keyed
from anyinit._frameworks.jax.program import PARAM, READS, Program
from anyinit._frameworks.jax.record import Recording, record, translate
from anyinit._frameworks.primitives.bounds import integer_bounds
from anyinit._frameworks.primitives.parameters import fitting, known
from anyinit._graph.graph import Graph
from anyinit.errors import AnyInitError, PlanError, could_not_run

Array = NDArray[Any]
Visit = Callable[[int, Array], Array | None]
Seen = tuple[int, tuple[int, ...]]


class JaxRuntime:
    """One model with its input. ``result`` is the model (or parameter tree) with what was last written."""

    def __init__(self, program: Program, batch: Batch) -> None:
        usable([*((s.name, s.value) for s in program.slots), *zip(batch.names(), batch.leaves(), strict=True)])
        self._program, self._batch = program, batch
        self._values: list[Any] = [s.value for s in program.slots]
        self._recording: Recording | None = None
        self._highs: dict[int, int] = {}
        self.result: Any = None

    # ---- facts ------------------------------------------------------------------------------
    @property
    def batch_given(self) -> bool:
        """Whether the caller gave numbers, not only shapes."""
        return not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in self._batch.leaves())

    def input_arrays(self) -> dict[str, Array]:
        """The caller's arrays by the names of the input leaves; empty when only shapes were given."""
        named = zip(self._batch.names(), self._batch.leaves(), strict=True)
        return {n: widened(x) for n, x in named if not isinstance(x, jax.ShapeDtypeStruct) and not keyed(x)}

    def inputs_used(self) -> dict[str, Array]:
        """What :meth:`run` feeds, by the names of the input leaves: the batch, else synthetic input."""
        self._recorded()
        real = jax.tree_util.tree_leaves(self._batch.synthetic(self._highs))
        return {n: widened(x) for n, x in zip(self._batch.names(), real, strict=True) if not keyed(x)}

    def parameters(self) -> list[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]]:
        """``(name, aliases, shape, dtype, trainable)`` of every parameter, in the model's own order."""
        slots = (s for s in self._program.slots if s.role == PARAM)
        return [(s.name, s.aliases, tuple(s.value.shape), str(s.value.dtype), s.trainable) for s in slots]

    @property
    def model_result(self) -> Any:
        """The new module of a framework whose modules hold their parameters; ``None`` before a write."""
        return None if self._program.apart else self.result

    @property
    def params_result(self) -> Any:
        """The new parameter tree of a model that keeps its parameters apart; ``None`` before a write."""
        return self.result if self._program.apart else None

    # ---- recording --------------------------------------------------------------------------
    def record(self) -> Graph:
        """The graph of one run, recorded on shapes alone; cached."""
        return self._recorded().graph

    def _recorded(self) -> Recording:
        if self._recording is None:
            try:
                self._recording = self._record()
            except AnyInitError:
                raise
            except Exception as error:
                raise self._program.refused(error) or could_not_run(error) from error
            self._highs = integer_bounds(self._recording.graph, self._batch.names())
        return self._recording

    def _record(self) -> Recording:
        """On shapes alone; on numbers where the model reads values in Python."""
        try:
            return record(self._program, self._batch, self._decide)
        except READS:
            from anyinit._frameworks.jax.eager import record_eagerly

            whole = (self._concrete()[: len(self._values)], *self._batch.synthetic(self._highs))
            leaves, structure = jax.tree_util.tree_flatten(whole)
            flat, tree = record_eagerly(self._program.call, leaves, structure)
            return translate(self._program, self._batch, flat, tree)

    def _concrete(self) -> list[Any]:
        """Values of all leaves for a run that only decides the path: stand-ins where a weight has none."""
        rng = np.random.default_rng(0)
        weights = [_stand_in(v, rng) if isinstance(v, jax.ShapeDtypeStruct) else v for v in self._values]
        return [*weights, *jax.tree_util.tree_leaves(self._batch.synthetic(self._highs))]

    def _decide(self, flat: Flat, var: int) -> Any:
        """The value of a variable that steers control flow, from the model's own weights and input."""
        env = dict(zip(flat.inputs, self._concrete(), strict=True))
        evaluate(flat, needed_for(flat, var), env)
        return np.asarray(env[var])

    # ---- parameters -------------------------------------------------------------------------
    def read(self, names: Collection[str]) -> dict[str, Array]:
        """Parameters by name; half types widened to float32."""
        asked = known(names, self._places())
        if any(isinstance(self._values[at], jax.ShapeDtypeStruct) for _, at in asked):
            self._realize()
        return {name: widened(self._values[at]) for name, at in asked}

    def write(self, values: Mapping[str, Array], *, rollback: bool = True) -> None:
        """Build the new object (``result``); NNX modules are updated in place, with all values ready before. All or
        nothing, with or without ``rollback``."""
        new = self._checked(values)
        if self._program.realize is not None:
            missing = [i for i, v in enumerate(self._values) if isinstance(v, jax.ShapeDtypeStruct) and i not in new]
            new.update(zip(missing, self._program.realize(missing) if missing else (), strict=True))
        merged = [new.get(i, v) for i, v in enumerate(self._values)]
        self.result = self._program.rebuild(merged)
        self._values = merged

    def _places(self) -> dict[str, int]:
        return {s.name: i for i, s in enumerate(self._program.slots)}

    def _realize(self) -> None:
        """Give what has no value yet the framework's own."""
        places = [i for i, v in enumerate(self._values) if isinstance(v, jax.ShapeDtypeStruct)]
        if places and self._program.realize is None:
            name = self._program.slots[places[0]].name
            raise PlanError(
                "The parameters are abstract: they have no values yet", value=name, remedy="Pass arrays in params."
            )
        if places and self._program.realize is not None:
            for place, value in zip(places, self._program.realize(places), strict=True):
                self._values[place] = value

    def _checked(self, values: Mapping[str, Array]) -> dict[int, Any]:
        """Arrays in the parameters' own type and place, or an error before anything changed."""
        out = dict[int, Any]()
        for name, at in known(values, self._places()):
            old = self._values[at]
            out[at] = _placed(fitting(name, values[name], tuple(old.shape)).astype(old.dtype), old)
        return out

    # ---- running ----------------------------------------------------------------------------
    def _arguments(self, weights: Mapping[str, Array]) -> list[Any]:
        """Concrete values of all leaves, the model's then the batch's."""
        self._recorded()
        given = self._checked(weights)
        if any(isinstance(v, jax.ShapeDtypeStruct) and i not in given for i, v in enumerate(self._values)):
            self._realize()
        values = [given.get(i, v) for i, v in enumerate(self._values)]
        return [*values, *jax.tree_util.tree_leaves(self._batch.synthetic(self._highs))]

    def run(self, weights: Mapping[str, Array], watch: Collection[int], visit: Visit) -> None:
        """Evaluate the recorded program equation by equation; see the protocol."""
        recording = self._recorded()
        flat, graph, watched = recording.flat, recording.graph, dict[int, list[Seen]]()
        for value in sorted(watch):
            if value in recording.observed:
                watched.setdefault(recording.observed[value], []).append((value, graph.values[value].shape))
        env = dict(zip(flat.inputs, map(as_jax, self._arguments(weights)), strict=True))
        env.update((v, as_jax(x)) for v, x in flat.known.items())
        for var in flat.inputs:
            _shown(env, var, watched, visit)
        for step, gone in zip(flat.steps, flat.last_uses(), strict=True):
            env.update(zip(step.outs, step.call(*(env[v] for v in step.ins)), strict=True))
            for var in step.outs:
                _shown(env, var, watched, visit)
            for var in gone:
                env.pop(var, None)

    def gradients(self, weights: Mapping[str, Array], seed: int | None) -> dict[str, Array]:
        """Gradients of ``sum(output * c)``, ``c`` standard normal from ``seed`` or 1, for every parameter. The
        model's own backward pass is taken; where it has none (while loops), that of the recorded program."""
        return next(self._gradients(weights, seed, None), {})

    def sample_gradients(self, weights: Mapping[str, Array], seed: int, count: int) -> Iterator[dict[str, Array]]:
        """As :meth:`gradients`, for one sample (first axis of the outputs) after the other, ``count`` at most."""
        return self._gradients(weights, seed, count)

    def _gradients(
        self, weights: Mapping[str, Array], seed: int | None, count: int | None
    ) -> Iterator[dict[str, Array]]:
        recording, values = self._recorded(), list(map(as_jax, self._arguments(weights)))
        slots, flat = self._program.slots, recording.flat
        moving = [i for i, s in enumerate(slots) if s.role == PARAM and s.name not in recording.graph.unused]
        rng = np.random.default_rng(seed)
        outs = [flat.avals[v] for v in flat.outputs]
        probes = [
            (np.ones(a.shape) if seed is None else rng.standard_normal(a.shape))
            if jnp.issubdtype(a.dtype, jnp.inexact)
            else None
            for a in outs
        ]

        def loss(model: Callable[[list[Any]], Sequence[Any]], chosen: Sequence[Any], along: Sequence[Any]) -> Any:
            whole = list(values)
            for place, value in zip(moving, chosen, strict=True):
                whole[place] = value
            pairs = zip(model(whole), along, strict=True)
            return sum(jnp.sum(jnp.real(e) * c) for e, c in pairs if c is not None)

        start, back = [values[i] for i in moving], jax.jit(jax.grad(partial(loss, self._model)))
        for along in _rows(probes, count):
            try:
                found = back(start, along)
            except (ValueError, TypeError):
                back = jax.jit(jax.grad(partial(loss, self._flat)))
                found = back(start, along)
            yield {slots[i].name: widened(g) for i, g in zip(moving, found, strict=True)}

    def _model(self, values: list[Any]) -> Sequence[Any]:
        """Outputs of the model itself on all leaves."""
        count = len(self._program.slots)
        structure = jax.tree_util.tree_structure((self._batch.args, self._batch.kwargs))
        args, kwargs = structure.unflatten(values[count:])
        return jax.tree_util.tree_leaves(self._program.call(values[:count], args, kwargs))

    def _flat(self, values: list[Any]) -> Sequence[Any]:
        """Outputs of the recorded program on all leaves."""
        flat = self._recorded().flat
        env = dict(zip(flat.inputs, values, strict=True))
        evaluate(flat, flat.steps, env)
        return [env[v] if v in env else as_jax(flat.known[v]) for v in flat.outputs]


def _rows(probes: Sequence[Any], count: int | None) -> Iterator[list[Any]]:
    """The probes of all samples, or those of one sample after the other with the rest at zero."""
    if count is None:
        yield [None if c is None else jnp.asarray(c, jnp.float32) for c in probes]
        return
    batched = [None if c is None or c.ndim == 0 else c for c in probes]
    for i in range(
        min([count, *(len(c) for c in batched if c is not None)]) if any(c is not None for c in batched) else 0
    ):
        kept = [
            None if c is None else np.where(np.arange(len(c)).reshape(-1, *[1] * (c.ndim - 1)) == i, c, 0.0)
            for c in batched
        ]
        yield [None if c is None else jnp.asarray(c, jnp.float32) for c in kept]


def _shown(env: dict[int, Any], var: int, watched: Mapping[int, list[Seen]], visit: Visit) -> None:
    """Show a watched variable, in the shape of its value; what comes back replaces it."""
    for value, shape in watched.get(var, ()):
        replacement = visit(value, widened(env[var]).reshape(shape))
        if replacement is not None:
            env[var] = jnp.asarray(replacement).astype(env[var].dtype).reshape(env[var].shape)


def widened(value: Any) -> Array:
    """A NumPy array; half types as float32."""
    data = np.asarray(value)
    return data.astype(np.float32) if jnp.issubdtype(data.dtype, jnp.floating) and data.dtype.itemsize < 4 else data


def _placed(data: Array, old: Any) -> Any:
    """A JAX array on the devices of the one it replaces, and no more bound to them than that one was."""
    return jax.device_put(data, old.sharding) if isinstance(old, jax.Array) and bound(old) else jnp.asarray(data)


def _stand_in(aval: Any, rng: np.random.Generator) -> Any:
    """Values for a parameter that has none: normal, scaled by its largest dimension."""
    if not jnp.issubdtype(aval.dtype, jnp.inexact):
        return jnp.zeros(aval.shape, aval.dtype)
    return jnp.asarray(rng.standard_normal(aval.shape) / np.sqrt(max(aval.shape, default=1)), aval.dtype)


__all__ = ["JaxRuntime", "open_model", "recognizes"]

"""``TensorFlowRuntime``: the runtime protocol for models with TensorFlow variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from anyinit._frameworks.primitives.bounds import integer_bounds
from anyinit._frameworks.primitives.flat import PARAM, Flat, needed_for
from anyinit._frameworks.primitives.parameters import fitting, known
from anyinit._frameworks.primitives.record import Recording
from anyinit._frameworks.tensorflow import open_model, recognizes
from anyinit._frameworks.tensorflow.flatten import evaluate
from anyinit._frameworks.tensorflow.inputs import Batch
from anyinit._frameworks.tensorflow.program import Program
from anyinit._frameworks.tensorflow.record import record
from anyinit._graph.graph import Graph
from anyinit.errors import AnyInitError, could_not_run

Array = NDArray[Any]
Visit = Callable[[int, Array], Array | None]
Seen = tuple[int, tuple[int, ...]]


class TensorFlowRuntime:
    """One model with its input; its variables are written in place."""

    def __init__(self, program: Program, batch: Batch) -> None:
        self._program, self._batch = program, batch
        self._recording: Recording | None = None
        self._highs: dict[int, int] = {}

    # ---- facts ------------------------------------------------------------------------------
    @property
    def batch_given(self) -> bool:
        """Whether the caller gave numbers, not only shapes."""
        return self._batch.given()

    def input_arrays(self) -> dict[str, Array]:
        """The caller's arrays by the names of the input leaves; empty when only shapes were given."""
        named = zip(self._batch.names(), self._batch.leaves(), strict=True)
        return {n: widened(x) for n, x in named if not isinstance(x, tf.TensorSpec)}

    def inputs_used(self) -> dict[str, Array]:
        """What :meth:`run` feeds, by the names of the input leaves: the batch, else synthetic input."""
        self.record()
        real = self._batch.synthetic(self._highs)
        return {n: widened(x) for n, x in zip(self._batch.names(), real, strict=True)}

    def parameters(self) -> list[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]]:
        """``(name, aliases, shape, dtype, trainable)`` of every parameter, in the model's own order."""
        self.record()
        slots = (s for s in self._program.slots if s.role == PARAM)
        return [(s.name, s.aliases, s.shape, s.variable.dtype.name, s.trainable) for s in slots]

    # ---- recording --------------------------------------------------------------------------
    def record(self) -> Graph:
        """The graph of one run, recorded on shapes alone; cached."""
        return self._recorded().graph

    def _recorded(self) -> Recording:
        if self._recording is None:
            try:
                self._recording = record(self._program, self._batch, self._decide)
            except AnyInitError:
                raise
            except Exception as error:
                raise could_not_run(error) from error
            self._highs = integer_bounds(self._recording.graph, self._batch.names())
        return self._recording

    def _decide(self, flat: Flat, var: int) -> Any:
        """The value of a variable that steers control flow, from the model's own weights and input."""
        given = [s.variable for s in self._program.slots]
        leaves = [*map(tf.convert_to_tensor, given), *self._batch.synthetic(self._highs)]
        env = dict(zip(flat.inputs, leaves, strict=False))
        if not flat.inputs:
            return None
        evaluate(flat, needed_for(flat, var), env)
        return env[var].numpy()

    # ---- parameters -------------------------------------------------------------------------
    def _slots(self) -> dict[str, int]:
        return {s.name: i for i, s in enumerate(self._program.slots)}

    def read(self, names: Collection[str]) -> dict[str, Array]:
        """Parameters by name; half types widened to float32."""
        self.record()
        return {name: widened(self._program.slots[at].variable) for name, at in known(names, self._slots())}

    def write(self, values: Mapping[str, Array], *, rollback: bool = True) -> None:
        """Assign the variables, all checked before the first; one that fails undoes those before it."""
        new = self._checked(values)
        before = list[tuple[Any, Any]]()
        try:
            for place, value in new.items():
                variable = self._program.slots[place].variable
                if rollback:
                    before.append((variable, tf.identity(variable)))
                variable.assign(value)
        except BaseException:
            for variable, old in before:
                variable.assign(old)
            raise

    def _checked(self, values: Mapping[str, Array]) -> dict[int, Any]:
        """Tensors in the parameters' own type and place, or an error before anything changed."""
        self.record()
        out = dict[int, Any]()
        for name, at in known(values, self._slots()):
            slot = self._program.slots[at]
            data = fitting(name, values[name], slot.shape)
            out[at] = tf.constant(data.astype(slot.variable.dtype.as_numpy_dtype))
        return out

    # ---- running ----------------------------------------------------------------------------
    def _arguments(self, weights: Mapping[str, Array]) -> list[Any]:
        """Concrete values of all leaves, the model's then the batch's."""
        given = self._checked(weights)
        held = [given.get(i, s.variable) for i, s in enumerate(self._program.slots)]
        return [*map(tf.convert_to_tensor, held), *self._batch.synthetic(self._highs)]

    def run(self, weights: Mapping[str, Array], watch: Collection[int], visit: Visit) -> None:
        """Evaluate the recorded program operation by operation; see the protocol."""
        recording = self._recorded()
        flat, graph, watched = recording.flat, recording.graph, dict[int, list[Seen]]()
        for value in sorted(watch):
            if value in recording.observed:
                watched.setdefault(recording.observed[value], []).append((value, graph.values[value].shape))
        env = dict(zip(flat.inputs, self._arguments(weights), strict=True))
        env.update((v, tf.constant(x)) for v, x in flat.known.items())
        for var in flat.inputs:
            _shown(env, var, watched, visit)
        for step, gone in zip(flat.steps, flat.last_uses(), strict=True):
            env.update(zip(step.outs, step.call(*(env[v] for v in step.ins)), strict=True))
            for var in step.outs:
                _shown(env, var, watched, visit)
            for var in gone:
                env.pop(var, None)

    def gradients(self, weights: Mapping[str, Array], seed: int | None) -> dict[str, Array]:
        """Gradients of ``sum(output * c)``, ``c`` standard normal from ``seed`` or 1, for every parameter: those of
        the recorded program, by TensorFlow's own gradients of its operations."""
        return next(self._gradients(weights, seed, None), {})

    def sample_gradients(self, weights: Mapping[str, Array], seed: int, count: int) -> Iterator[dict[str, Array]]:
        """As :meth:`gradients`, for one sample (first axis of the outputs) after the other, ``count`` at most."""
        return self._gradients(weights, seed, count)

    def _gradients(
        self, weights: Mapping[str, Array], seed: int | None, count: int | None
    ) -> Iterator[dict[str, Array]]:
        recording, values = self._recorded(), self._arguments(weights)
        flat, rng = recording.flat, np.random.default_rng(seed)
        moving = {
            i: s.name
            for i, s in enumerate(self._program.slots)
            if s.role == PARAM and s.name not in recording.graph.unused
        }
        with tf.GradientTape(persistent=count is not None, watch_accessed_variables=False) as tape:
            for place in moving:
                tape.watch(values[place])
            env = dict(zip(flat.inputs, values, strict=True))
            evaluate(flat, flat.steps, env)
            losses = list(_losses([_weighted(flat, env, var, rng, seed) for var in flat.outputs], count))
        for loss in losses:
            found: Sequence[Any] = tape.gradient(loss, [values[i] for i in moving])
            yield {
                name: widened(tf.convert_to_tensor(g))
                for name, g in zip(moving.values(), found, strict=True)
                if g is not None
            }


def _weighted(flat: Flat, env: Mapping[int, Any], var: int, rng: np.random.Generator, seed: int | None) -> Any:
    """``Re out * c`` in float32; ``None`` for an output that holds no numbers."""
    shape = flat.avals[var].shape
    probe = np.ones(shape) if seed is None else rng.standard_normal(shape)
    out = env[var] if var in env else tf.constant(flat.known[var])
    if not (out.dtype.is_floating or out.dtype.is_complex):
        return None
    return tf.cast(tf.math.real(out), tf.float32) * tf.constant(probe, tf.float32)


def _losses(products: Sequence[Any], count: int | None) -> Iterator[Any]:
    """The sum of all, or that of each sample."""
    held = [p for p in products if p is not None]
    if count is None:
        yield sum(map(tf.reduce_sum, held), tf.zeros(()))
        return
    batched = [p for p in held if p.shape.rank]
    for i in range(min([count, *(p.shape[0] for p in batched)]) if batched else 0):
        yield sum((tf.reduce_sum(p[i]) for p in batched), tf.zeros(()))


def _shown(env: dict[int, Any], var: int, watched: Mapping[int, list[Seen]], visit: Visit) -> None:
    """Show a watched variable, in the shape of its value; what comes back replaces it."""
    for value, shape in watched.get(var, ()):
        replacement = visit(value, widened(env[var]).reshape(shape))
        if replacement is not None:
            env[var] = tf.reshape(tf.cast(tf.constant(replacement), env[var].dtype), env[var].shape)


def widened(value: Any) -> Array:
    """A NumPy array; half types as float32."""
    data = tf.convert_to_tensor(value)
    return (tf.cast(data, tf.float32) if data.dtype in (tf.bfloat16, tf.float16) else data).numpy()


__all__ = ["TensorFlowRuntime", "open_model", "recognizes"]

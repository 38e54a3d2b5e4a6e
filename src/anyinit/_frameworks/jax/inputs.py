"""What the model is run on: a batch, an abstract value, a shape, or a callable that returns one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyinit._frameworks.jax.arrays import usable
from anyinit._frameworks.jax.program import part_of
from anyinit._frameworks.primitives.inputs import arguments, is_shape, shape, sound
from anyinit.errors import ConfigError

REMEDY = "Pass input_spec: a shape such as (32, 64), a batch, a tuple or dict of them, or jax.ShapeDtypeStruct."


@dataclass(frozen=True, slots=True)
class Batch:
    """Positional and keyword arguments of the model; leaves are arrays or ``ShapeDtypeStruct``. ``note``: how
    they were found, for the report."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    note: str = ""

    def abstract(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as shapes and types."""
        return jax.tree_util.tree_map(_shape_of, (self.args, self.kwargs))

    def leaves(self) -> list[Any]:
        """The flattened arguments."""
        return jax.tree_util.tree_leaves((self.args, self.kwargs))

    def names(self) -> list[str]:
        """A name for every leaf: ``input.0`` or its keyword, then its place inside."""
        named = list[str]()
        for path, _ in jax.tree_util.tree_flatten_with_path((self.args, self.kwargs))[0]:
            place = ".".join(part_of(k) for k in path[1:])
            named.append(f"input.{place}" if path[0].idx == 0 else place)
        return named

    def synthetic(self, highs: Mapping[int, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Real arguments: the caller's own arrays; else standard normal floats and uniform integers from
        seed 0. ``highs[i]`` bounds the integers of leaf ``i``."""
        rng = np.random.default_rng(0)
        leaves, treedef = jax.tree_util.tree_flatten((self.args, self.kwargs))
        return treedef.unflatten([_real(leaf, rng, highs.get(i, 2)) for i, leaf in enumerate(leaves)])


def _shape_of(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _real(leaf: Any, rng: np.random.Generator, high: int) -> Any:
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape) if leaf.shape else jax.random.key(0)
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
        return jnp.asarray(rng.standard_normal(leaf.shape)).astype(leaf.dtype)
    return jnp.asarray(rng.integers(0, high, leaf.shape)).astype(leaf.dtype)


def parse(spec: Any) -> Batch:
    """The batch an ``input_spec`` means."""
    return Batch(*arguments(spec, _value, REMEDY))


def _value(spec: Any) -> Any:
    """One argument: arrays are checked, shapes become float32 arrays to be."""
    if is_shape(spec):
        return jax.ShapeDtypeStruct(shape(spec, REMEDY), jnp.float32)
    if isinstance(spec, Mapping):
        return {k: _value(v) for k, v in spec.items()}
    if isinstance(spec, (tuple, list)):
        return type(spec)(_value(v) for v in spec) if not hasattr(spec, "_fields") else type(spec)(*map(_value, spec))
    if isinstance(spec, (jax.Array, np.ndarray, np.generic, int, float, complex)) or hasattr(spec, "__array__"):
        return _checked(spec)
    if hasattr(spec, "shape") and hasattr(spec, "dtype"):
        return jax.ShapeDtypeStruct(
            tuple(spec.shape), jnp.dtype(str(np.dtype(spec.dtype))) if not keyed(spec) else spec.dtype
        )
    leaves, treedef = jax.tree_util.tree_flatten(spec)
    if leaves and leaves[0] is not spec:
        return treedef.unflatten([_value(leaf) for leaf in leaves])
    raise ConfigError("This is no input a JAX model can take", value=type(spec).__name__, remedy=REMEDY)


def keyed(spec: Any) -> bool:
    """Whether an array holds random keys."""
    return jax.dtypes.issubdtype(spec.dtype, jax.dtypes.prng_key)


def _checked(spec: Any) -> Any:
    if not isinstance(spec, jax.Array) and np.asarray(spec).dtype.kind in "OSUMm":
        raise ConfigError("The batch holds no numbers", value=str(np.asarray(spec).dtype), remedy=REMEDY)
    array = spec if isinstance(spec, jax.Array) else jnp.asarray(np.asarray(spec))
    usable([("input", array)])
    if keyed(array):
        return array
    sound(array.size, not jnp.issubdtype(array.dtype, jnp.inexact) or bool(jnp.isfinite(array).all()), array.shape)
    return array

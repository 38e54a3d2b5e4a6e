"""What JAX libraries take as ``kernel_init=``. Importing this module imports JAX."""

from anyinit._frameworks.jax.initializer import initializer

__all__ = ["initializer"]

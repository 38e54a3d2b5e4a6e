"""What Keras layers take as ``kernel_initializer=``. Importing this module imports Keras."""

from anyinit._frameworks.keras.initializer import initializer

__all__ = ["initializer"]

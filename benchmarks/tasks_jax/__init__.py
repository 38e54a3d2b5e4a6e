"""Tasks in JAX and Keras for the training benchmark."""

"""Small training tasks and the starting points that compete on them; ``benchmarks/training.py`` runs them."""

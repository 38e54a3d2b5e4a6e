"""What a model is like at its start, whoever initialized it: measured, judged, shown."""

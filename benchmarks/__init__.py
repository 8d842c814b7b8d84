"""Measurements against a floor: `python -m benchmarks.run`, `python -m benchmarks.soak`."""

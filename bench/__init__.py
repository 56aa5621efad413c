"""Benchmarks: `python -m bench NAME`. Figures that are compared come from one run on one machine and one server."""

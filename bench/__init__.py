"""Benchmarks: `python -m bench NAME`. What is compared is measured in one run, on one machine, on one server."""

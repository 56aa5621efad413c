"""Mutants: one-line changes of sereno's own SQL and Python, each of which a named test must find.

The list is data, in the `.toml` files here. `make mutants` applies one after another to a copy of the sources and runs
its test. A mutant that survives shows a promise that no test checks.
"""

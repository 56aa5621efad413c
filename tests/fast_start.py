"""A plugin for `pytest -n`: the process that starts the others does not import what only they need."""

import os

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Load only the conftest.py of the repository, as if it were the path to test."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        early_config.known_args_namespace.file_or_dir = ["conftest.py"]

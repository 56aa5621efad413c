"""For all tests, including those of the examples: the tier, and compiled modules."""

import os
import sys

import pytest

from tests.tiers import SELECTIONS, select

# Each of the many programs that are started would otherwise compile all its modules again, which takes longer than its
# work.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=tuple(SELECTIONS),
        default="all",
        help="quick: make test; slow: what make test-all runs besides; all: both; storm: make storm",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected, others = select(items, config.getoption("--tier"))
    if others and not all("::" in argument for argument in config.args):
        items[:] = selected
        config.hook.pytest_deselected(items=others)

"""For all tests, including those of the examples: tiers, short failures, and what makes the suite faster."""

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.tiers import QUICK, SELECTIONS, is_slow_module, select

# Each of the many programs that are started would otherwise compile all its modules again, which takes longer than its
# work.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Modules stay: to look for garbage while hundreds of them are imported is in vain.
gc.disable()

# Lines of each captured output of a failed test that are printed without -v: the last ones.
SHOWN_LINES = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=tuple(SELECTIONS),
        default="all",
        help="quick: make test; slow: what make test-all runs besides; all: both; storm: make storm",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a module without quick tests for a quick run."""
    return True if config.getoption("--tier") == QUICK and is_slow_module(collection_path) else None


def pytest_collection_finish() -> None:
    """Exempt everything that was imported from the garbage collections of the tests."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected, others = select(items, config.getoption("--tier"))
    # A test that is named by its id runs in any case.
    if others and not all("::" in argument for argument in config.args):
        items[:] = selected
        config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.config.get_verbosity() <= 0:
        report.sections = [(title, _last_lines(text)) for title, text in report.sections]
    return report


def _last_lines(text: str) -> str:
    lines = text.splitlines(keepends=True)
    left_out = len(lines) - SHOWN_LINES
    return text if left_out <= 0 else f"… {left_out} lines more; -v prints them\n{''.join(lines[-SHOWN_LINES:])}"


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Undo what a command that runs in this process sets: other lines would be logged in the tests after it."""
    loggers = [logging.getLogger(name) for name in (None, "sereno")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        for handler in set(logger.handlers) - set(handlers):
            logger.removeHandler(handler)

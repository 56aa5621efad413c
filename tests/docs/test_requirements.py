"""examples/REQUIREMENTS.md is complete: each requirement has a status, a reason unless it is met, and a test."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "examples" / "REQUIREMENTS.md"
# The sections in order, with their numbers of requirements.
SECTIONS = {"tenders": 60, "separate_worker": 42, "reminders": 55, "reconciliation": 68, "triggers": 48}
HEADER = ["#", "requirement", "status", "where it is", "test"]

# A bar inside a cell is escaped.
_BAR = re.compile(r"(?<!\\)\|")
_STATUS = re.compile(r"met|(?:otherwise|partial): \S.*")
_TEST = re.compile(r"`([^`\s]+\.py)::(\w+)(?:\[[^`]*\])?`")


def test_every_requirement_has_a_status_and_a_test_that_exists(subtests: pytest.Subtests) -> None:
    sections = dict(_sections())
    assert list(sections) == list(SECTIONS)
    for name, count in SECTIONS.items():
        with subtests.test(name):
            header, dashes, *rows = sections[name]
            assert header == HEADER
            assert all(set(cell) <= {"-", ":"} for cell in dashes)
            assert [problem for row in rows for problem in _problems(row)] == []
            assert [row[0] for row in rows] == [str(number) for number in range(1, count + 1)]


def _sections() -> Iterator[tuple[str, list[list[str]]]]:
    """Return the rows of the table below each heading."""
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        yield name.strip(), [_cells(line) for line in body.splitlines() if line.startswith("|")]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _BAR.split(line)[1:-1]]


def _problems(row: list[str]) -> Iterator[str]:
    if len(row) != len(HEADER):
        yield f"{row[0]}: {len(row)} cells"
        return
    number, requirement, status, place, test = row
    if not requirement or not place:
        yield f"{number}: an empty cell"
    if _STATUS.fullmatch(status) is None:
        yield f"{number}: {status!r} is not `met`, `otherwise: reason` or `partial: reason`"
    named = _TEST.findall(test)
    if not named:
        yield f"{number}: it names no test as `path/to/test_file.py::test_function`"
    for path, function in named:
        if function not in _functions(path):
            yield f"{number}: there is no {path}::{function}"


@cache
def _functions(path: str) -> frozenset[str]:
    """Return the names of the tests of a file, relative to the repository; none if there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    found = ast.walk(ast.parse(file.read_text()))
    functions = (node for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))

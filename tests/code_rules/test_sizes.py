"""Limits on the length of files and functions. The aim is 300 lines a file and 40 a function."""

import ast
from collections.abc import Iterator

from tests.code_rules.sources import SOURCES, nodes, texts

FILE_LINES = 400
FUNCTION_LINES = 60

# schema.sql is generated; a migration holds the whole schema of one capability.
EXEMPT = {SOURCES / "database" / "schema.sql", *(SOURCES / "database" / "migrations").glob("*.sql")}


def test_no_file_exceeds_the_limit() -> None:
    lengths = {
        str(path.relative_to(SOURCES)): len(text.splitlines()) for path, text in texts().items() if path not in EXEMPT
    }
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_no_function_exceeds_the_limit() -> None:
    lengths = dict(_function_lengths())
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}


def _function_lengths() -> Iterator[tuple[str, int]]:
    for path, node in nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path.relative_to(SOURCES)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1

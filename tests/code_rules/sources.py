"""The sources, parsed once per process for all rules."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "sereno"

# The kinds of nodes that a rule reads.
Node = ast.Call | ast.FunctionDef | ast.AsyncFunctionDef | ast.Import | ast.ImportFrom
# A tuple: `isinstance` with a union takes several times as long.
_KINDS = (ast.Call, ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)


@cache
def texts() -> dict[Path, str]:
    """Return the text of every Python and SQL file."""
    return {path: path.read_text() for pattern in ("*.py", "*.sql") for path in sorted(SOURCES.rglob(pattern))}


def nodes() -> Iterator[tuple[Path, Node]]:
    """Return every definition, import and call, with its file."""
    for path, found in _nodes().items():
        yield from ((path, node) for node in found)


@cache
def _nodes() -> dict[Path, list[Node]]:
    # To look for garbage among millions of nodes takes as long as to parse.
    gc.disable()
    try:
        return {
            path: [node for node in ast.walk(ast.parse(text)) if isinstance(node, _KINDS)]
            for path, text in texts().items()
            if path.suffix == ".py"
        }
    finally:
        gc.enable()

"""Pydantic type adapters, built once per process.

FastAPI builds them again for each of the hundred routes of each server. That is two thirds of a server's start time,
and a test run starts about seven hundred servers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi._compat import v2
from pydantic import TypeAdapter

_known: dict[tuple[Any, str, str], TypeAdapter[Any]] = {}


@contextmanager
def known_types() -> Iterator[None]:
    """Make FastAPI use the cached adapter for the same type and description."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2, "TypeAdapter", _adapter)
        yield


def _adapter(described: Any, *, config: Any = None) -> TypeAdapter[Any]:
    key = (described.__origin__, repr(described.__metadata__), repr(config))
    if key not in _known:
        _known[key] = TypeAdapter(described, config=config)
    return _known[key]

"""Pydantic adapters of types, built once a process.

FastAPI builds them again for each of the hundred routes of each server. A server that starts once does not care; but
it is two thirds of the time of a start, and a run of the tests starts some seven hundred.
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
    """Meanwhile FastAPI gets the cached adapter for the same type and description."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2, "TypeAdapter", _adapter)
        yield


def _adapter(described: Any, *, config: Any = None) -> TypeAdapter[Any]:
    key = (described.__origin__, repr(described.__metadata__), repr(config))
    if key not in _known:
        _known[key] = TypeAdapter(described, config=config)
    return _known[key]

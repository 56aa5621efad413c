"""What types look like, worked out once a process.

FastAPI works it out anew for each of the hundred routes of each server. That is nothing to a server that starts once,
and two thirds of the work of starting one, which a run of the tests does some seven hundred times.
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
    """Meanwhile FastAPI is given what it was given before for the same type, described in the same words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2, "TypeAdapter", _adapter)
        yield


def _adapter(described: Any, *, config: Any = None) -> TypeAdapter[Any]:
    key = (described.__origin__, repr(described.__metadata__), repr(config))
    if key not in _known:
        _known[key] = TypeAdapter(described, config=config)
    return _known[key]

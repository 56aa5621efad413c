"""Reads the HTML of a page without a browser."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx

from tests.facts import until
from tests.server.api.conftest import Ask, Served

# The mark of a value that the database has not returned in time.
MISSING = re.compile(r'class="(dim )?missing"')

Read = Callable[..., httpx.Response]


def reader(ask: Ask, served: Served) -> Read:
    """`read("jobs", "viewer", "ann", q="state:dead")`: as a user of ann; redirects are not followed.

    A page without some of its values, because a query took too long, is read again, as its script does.
    """
    client = cache(ask)

    def read(path: str, role: str = "viewer", whose: str | None = None, **params: Any) -> httpx.Response:
        def complete() -> httpx.Response | None:
            # No parameters at all: empty ones would replace those of the path.
            answer = client(role, whose).get(f"{served.url}/{path}", params=params or None)
            return None if MISSING.search(answer.text) else answer

        found = until(complete)
        assert found is not None
        return found

    return read

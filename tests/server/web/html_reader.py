"""Reads the HTML of a page without a browser."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served

Read = Callable[..., httpx.Response]


def reader(ask: Ask, served: Served) -> Read:
    """`read("jobs", "viewer", "ann", q="state:dead")`: as a user of ann; redirects are not followed."""

    def read(path: str, role: str = "viewer", whose: str | None = None, **params: Any) -> httpx.Response:
        headers = {"Authorization": ask(role, whose).headers["Authorization"]}
        options: dict[str, Any] = {"verify": NO_CERTIFICATES, "trust_env": False, "timeout": 30}
        return httpx.get(f"{served.url}/{path}", params=params, headers=headers, **options)

    return read

"""A page as it is answered, without a browser: for what it says, and to whom."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served

Read = Callable[..., httpx.Response]


def reader(ask: Ask, served: Served) -> Read:
    """`read("jobs", "viewer", "ann", q="state:dead")`: somebody of ann looks; a redirect is answered as it is."""

    def read(path: str, role: str = "viewer", whose: str | None = None, **params: Any) -> httpx.Response:
        headers = {"Authorization": ask(role, whose).headers["Authorization"]}
        options: dict[str, Any] = {"verify": NO_CERTIFICATES, "trust_env": False, "timeout": 30}
        return httpx.get(f"{served.url}/{path}", params=params, headers=headers, **options)

    return read

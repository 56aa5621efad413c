"""The command line, curl and Python equivalents of a page or an action."""

import json
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from sereno.server.web.page_request import PageRequest


def copies(
    page: PageRequest,
    *,
    cli: list[str] | None,
    method: str = "GET",
    path: str,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
) -> dict[str, str]:
    """Return equivalent calls; they take the token from the environment."""
    url = _address(page, path, query)
    found = {}
    if cli is not None:
        found["CLI"] = shlex.join(["sereno", *cli])
    found["curl"] = _curl(method, url, body)
    found["Python"] = _python(method, url, body)
    return found


def _address(page: PageRequest, path: str, query: Mapping[str, Any] | None) -> str:
    root = page.context.settings.public_url or str(page.request.base_url)
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    return f"{root.rstrip('/')}/api/v1/{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")


def _curl(method: str, url: str, body: Any) -> str:
    words = ["curl", "-sS", *(["-X", method] if method != "GET" else [])]
    line = shlex.join(words) + ' -H "Authorization: Bearer $SERENO_TOKEN"'
    if body is not None:
        line += " -H 'Content-Type: application/json' -d " + shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"{line} {shlex.quote(url)}"


def _python(method: str, url: str, body: Any) -> str:
    given = f", json={body!r}" if body is not None else ""
    return (
        "import os\n\nimport httpx\n\n"
        'headers = {"Authorization": f"Bearer {os.environ[\'SERENO_TOKEN\']}"}\n'
        f"response = httpx.request({method!r}, {url!r}, headers=headers{given})\n"
        "print(response.raise_for_status().json())\n"
    )

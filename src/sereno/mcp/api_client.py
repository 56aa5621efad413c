"""The HTTP API of a running server, called with the token of the one who calls a tool."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import httpx2
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from sereno.errors import ConfigurationError
from sereno.mcp.bounds import visible

# The largest page of the API has 4 MB of texts and JSON.
LARGEST_RESPONSE = 8 * 1024 * 1024
# Seconds. A query of the server ends after 2; a change of a hundred jobs takes less than one.
TIMEOUT = 30.0
# Characters of an error that a tool returns.
LONGEST_ERROR = 1_000
# A name that the URL of a request would not keep: it names a directory.
_DOTS = re.compile(r"\.{1,2}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a tool: the token, and the address of the client if the call came over HTTP."""

    token: str | None
    address: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers of a request in the caller's name.

        A forwarded request is never one of the server's own machine: a server without tokens refuses it.
        """
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return headers if self.address is None else {**headers, "X-Forwarded-For": self.address}

    def __repr__(self) -> str:
        return f"Caller(address={self.address!r})"


class APIClient:
    """Calls the API. `caller`: returns who calls the tool of this context."""

    def __init__(self, url: str, http: httpx2.AsyncClient, caller: Callable[[Context[Any, Any]], Caller]) -> None:
        self._url = f"{url.rstrip('/')}/api/v1"
        self._http = http
        self.caller = caller

    async def get(self, context: Context[Any, Any], path: str, **query: Any) -> Any:
        """Return the response to a GET; parameters that are None are left out."""
        given = {name: _parameter(value) for name, value in query.items() if value is not None}
        return await self._send(self._request(context, "GET", path, params=given))

    async def post(self, context: Context[Any, Any], path: str, body: Mapping[str, Any], key: str | None = None) -> Any:
        """Return the response to a POST; with the same `key`, it is done once."""
        more = {} if key is None else {"Idempotency-Key": key}
        given = {name: value for name, value in body.items() if value is not None}
        return await self._send(self._request(context, "POST", path, json=given, headers=more))

    async def status(self, caller: Caller) -> int:
        """Return the status with which the API receives this caller; 503 while it does not respond."""
        try:
            response = await self._http.get(f"{self._url}/me", headers=caller.headers())
        except httpx2.HTTPError:
            return int(HTTPStatus.SERVICE_UNAVAILABLE)
        return response.status_code

    def _request(
        self,
        context: Context[Any, Any],
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> httpx2.Request:
        sent = {**self.caller(context).headers(), **(headers or {})}
        return self._http.build_request(method, f"{self._url}{path}", headers=sent, **more)

    async def _send(self, request: httpx2.Request) -> Any:
        try:
            response = await self._http.send(request, stream=True)
            try:
                raw = await _body(response)
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            raise ToolError(f"the server at {self._url} does not respond ({type(error).__name__})") from None
        content = _decoded(raw)
        if not isinstance(content, dict):
            raise ToolError(f"{response.status_code}: there is no sereno server at {self._url}")
        if not response.is_success:
            detail = str(content.get("detail") or content.get("title"))
            raise ToolError(visible(f"{response.status_code}: {detail[:LONGEST_ERROR]}"))
        return content


def path_of(*words: str | int) -> str:
    """Return a path of the API, with its words quoted."""
    for word in words:
        if _DOTS.fullmatch(str(word)):
            raise ToolError(f"{word!r} cannot be named here")
    return "".join(f"/{quote(str(word), safe='')}" for word in words)


def check_url(url: str, *, allow_http: bool, is_loopback: Callable[[str], bool]) -> str:
    """Return the URL of a server. A token is sent in the clear only on this machine, or where that is allowed."""
    found = _split(url)
    if found is None:
        raise ConfigurationError("--url: write the address of sereno server, such as https://sereno.example.org")
    if found.username is not None or found.query or found.fragment:
        raise ConfigurationError("--url: leave out user, query and fragment; the token is SERENO_TOKEN")
    host = found.hostname or ""
    if found.scheme == "http" and not allow_http and not is_loopback(host):
        raise ConfigurationError(f"--url: http would send the token to {host} in the clear: use https, or --allow-http")
    return url.rstrip("/")


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL with a host and, if there is one, a valid port; None for anything else."""
    try:
        found = urlsplit(url)
        is_address = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        return None
    return found if is_address else None


def _parameter(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


async def _body(response: httpx2.Response) -> bytes:
    raw = bytearray()
    async for chunk in response.aiter_bytes():
        raw += chunk
        if len(raw) > LARGEST_RESPONSE:
            raise ToolError("the response of the server is too large: ask for less at once")
    return bytes(raw)


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None

"""A local stand-in for the CRM: a real HTTP server with injectable faults."""

import asyncio
from random import Random

from aiohttp import web

from sereno.testing.provider import Provider, Request


class Crm(Provider):
    """Stores one entry for each Idempotency-Key, and refuses addresses that end in .invalid.

    `trouble`: the share of calls that fail. While `open` is cleared, requests wait.
    """

    def __init__(self, trouble: float = 0.0, seed: int = 7) -> None:
        super().__init__()
        self.entries: dict[str, Request] = {}
        self.trouble = trouble
        self.open = asyncio.Event()
        self.open.set()
        # Requests that are being answered, and the most there were at once.
        self.at_once = self.most_at_once = 0
        self._chance = Random(seed)  # noqa: S311 - trouble with a seed, so that a demo can be repeated

    def calls(self, key: str) -> int:
        """Return the number of requests with this key."""
        return sum(request.headers["idempotency-key"] == key for request in self.log)

    async def answer(self, request: Request) -> web.StreamResponse:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.open.wait()
            return self._response(request)
        finally:
            self.at_once -= 1

    def _response(self, request: Request) -> web.StreamResponse:
        if self._chance.random() < self.trouble:
            status = self._chance.choice([429, 503, 503])
            return web.Response(status=status, headers={"Retry-After": "2"})
        if request.json()["email"].endswith(".invalid"):
            return web.Response(status=422)
        self.entries.setdefault(request.headers["idempotency-key"], request)
        return web.json_response({"ok": True}, status=201)

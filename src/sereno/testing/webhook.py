"""A webhook receiver that verifies signatures and counts repeats."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from sereno.testing.provider import Provider, Request


class WebhookReceiver(Provider):
    """Accepts requests that are signed with one of its secrets.

    `accepted`: the first body by webhook-id. `repeats`: number of repeats by webhook-id. `rejected`: requests without a
    valid signature. `status`, `headers` and `body` are its response; with a status other than 2xx it accepts nothing. A
    body may be an asynchronous iterator, for a slow response.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__()
        self.secrets = list(secrets)
        self.status = 204
        self.headers: Mapping[str, str] = {}
        self.body: Any = None
        self.accepted: dict[str, Any] = {}
        self.repeats: Counter[str] = Counter()
        self.rejected: list[Request] = []

    async def answer(self, request: Request) -> web.StreamResponse:
        if not any(self._is_signed(request, secret) for secret in self.secrets):
            self.rejected.append(request)
            return web.Response(status=401, text="invalid signature")
        if self.status // 100 == 2:  # noqa: PLR2004 - 2xx
            self._accept(request)
        return web.Response(status=self.status, headers=dict(self.headers), body=self.body)

    def _accept(self, request: Request) -> None:
        key = request.headers["webhook-id"]
        if key in self.accepted:
            self.repeats[key] += 1
        else:
            self.accepted[key] = request.json()

    def _is_signed(self, request: Request, secret: str) -> bool:
        try:
            Webhook(secret).verify(request.body, dict(request.headers), json_parse=False)
        except (WebhookVerificationError, ValueError):
            # ValueError: a body that is not text, or a signature that is not base64.
            return False
        return True

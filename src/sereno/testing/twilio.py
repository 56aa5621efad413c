"""A local Twilio: makes the checks of the real one, returns its error codes, and signs its callbacks."""

import base64
import re
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from aiohttp import web

from sereno.channels.contract import Callback
from sereno.channels.twilio import signature
from sereno.testing.provider import RETRY_AFTER, Provider, Request

LONGEST = 1600

# Twilio's magic numbers for testing errors, and the code of each.
NUMBERS: Mapping[str, int] = {
    "+15005550001": 21211,
    "+15005550002": 21612,
    "+15005550003": 21408,
    "+15005550004": 21610,
    "+15005550009": 21614,
}
STATUSES: Mapping[int, int] = {20003: 401, 20404: 404, 20429: 429, 20500: 500, 20503: 503}

_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")


class TwilioProvider(Provider):
    """`refuses`: error code by number. `sent`: accepted forms by sid."""

    def __init__(self) -> None:
        super().__init__()
        self.account_sid = f"AC{secrets.token_hex(16)}"
        self.auth_token = secrets.token_hex(16)
        self.from_number = "+15005550006"
        self.refuses: dict[str, int] = dict(NUMBERS)
        self.sent: dict[str, dict[str, str]] = {}

    @property
    def account(self) -> dict[str, str]:
        return {
            "url": self.url,
            "account_sid": self.account_sid,
            "auth_token": self.auth_token,
            "from_number": self.from_number,
        }

    async def answer(self, request: Request) -> web.StreamResponse:
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        code = self._code(request, form)
        if code is not None:
            status = STATUSES.get(code, 400)
            headers = {"Retry-After": str(RETRY_AFTER)} if status == web.HTTPTooManyRequests.status_code else {}
            more = f"https://www.twilio.com/docs/errors/{code}"
            content = {"code": code, "message": f"Refused with {code}", "more_info": more, "status": status}
            return web.json_response(content, status=status, headers=headers)
        sid = f"SM{secrets.token_hex(16)}"
        self.sent[sid] = form
        content = {"sid": sid, "account_sid": self.account_sid, "to": form["To"], "body": form["Body"]}
        return web.json_response({**content, "status": "queued", "error_code": None}, status=201)

    def _code(self, request: Request, form: Mapping[str, str]) -> int | None:
        basic = base64.b64encode(f"{self.account_sid}:{self.auth_token}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return 20003
        if request.path != f"/2010-04-01/Accounts/{self.account_sid}/Messages.json":
            return 20404
        if not form.get("From") and not form.get("MessagingServiceSid"):
            return 21603
        if not _PHONE.fullmatch(form.get("To", "")):
            return 21211
        if not form.get("Body"):
            return 21602
        if len(form["Body"]) > LONGEST:
            return 21617
        return self.refuses.get(form["To"])

    def callback(self, sid: str, status: str, *, url: str = "https://us.example/sms", error: str = "") -> Callback:
        """Return a status callback."""
        parameters = {"AccountSid": self.account_sid, "MessageSid": sid, "MessageStatus": status, "SmsSid": sid}
        if error:
            parameters["ErrorCode"] = error
        signed = signature(self.auth_token, url, parameters.items()).decode()
        return Callback(body=urlencode(parameters).encode(), headers={"x-twilio-signature": signed}, url=url)

"""Sign-in with a token: a cookie then identifies the user until it expires or the token is revoked."""

import ipaddress
import re
import time
from collections import OrderedDict
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response

from sereno.server.shared.authenticator import SIGNED_IN_SECONDS
from sereno.server.shared.request_bodies import read_body
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes

# Wrong tokens from one address per minute; further attempts have to wait.
MOST_TRIES = 10
TRIES_SECONDS = 60.0
MOST_ADDRESSES = 10_000
LARGEST_FORM = 4096
# A page and its query: all pages are on one level, so this cannot lead to another host or path.
OURS = re.compile(r"[a-z0-9-]*(\?.*)?")


class SignInAttempts:
    """Failed attempts by address. A token has 192 random bits: this limits load more than it prevents guessing."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def wait(self, address: str, now: float) -> int | None:
        """Return the seconds until the next attempt; None when it is allowed now."""
        recent = [at for at in self._failed.get(address, ()) if at > now - TRIES_SECONDS]
        return int(recent[0] + TRIES_SECONDS - now) + 1 if len(recent) >= MOST_TRIES else None

    def failed(self, address: str, now: float) -> None:
        recent = [at for at in self._failed.pop(address, ()) if at > now - TRIES_SECONDS]
        self._failed[address] = [*recent, now][-MOST_TRIES:]
        while len(self._failed) > MOST_ADDRESSES:
            self._failed.popitem(last=False)


def routes(pages: PageRoutes) -> None:
    """`/sign-in`, `/sign-out`."""
    tries = SignInAttempts()

    @pages.at("/sign-in", open_to_all=True)
    async def form(page: PageRequest) -> Response:
        if await page.context.authenticator.who(page.request) is not None:
            return _to(page, page.query.get("next", ""))
        return page.render("sign_in.html", next=page.query.get("next", ""), wrong=None)

    @pages.at("/sign-in", open_to_all=True, method="POST")
    async def sign_in(page: PageRequest) -> Response:
        authenticator = page.context.authenticator
        authenticator.check_origin(page.request)
        fields = parse_qs((await read_body(page.request, LARGEST_FORM)).decode("utf-8", "replace"))
        wanted = fields.get("next", [""])[0]
        principal = await authenticator.of_token(fields.get("token", [""])[0].strip())
        cookie = None if principal is None else authenticator.cookie(principal)
        if cookie is None:
            return _refuse(page, tries, wanted)
        response = _to(page, wanted)
        response.set_cookie(
            authenticator.cookie_name(page.request),
            cookie,
            max_age=SIGNED_IN_SECONDS,
            # Also when the server is mounted below another path: the prefix __Host- requires it.
            path="/",
            httponly=True,
            secure=authenticator.is_encrypted(page.request),
            samesite="lax",
        )
        return response

    @pages.at("/sign-out", open_to_all=True, method="POST")
    async def sign_out(page: PageRequest) -> Response:
        authenticator = page.context.authenticator
        authenticator.check_origin(page.request)
        await authenticator.sign_out(page.request)
        response = RedirectResponse(f"{page.base}sign-in", HTTPStatus.SEE_OTHER)
        # A browser ignores a change of a cookie with the prefix __Host- that is not Secure.
        is_encrypted = authenticator.is_encrypted(page.request)
        response.delete_cookie(
            authenticator.cookie_name(page.request), secure=is_encrypted, httponly=True, samesite="lax"
        )
        return response


def _refuse(page: PageRequest, tries: SignInAttempts, wanted: str) -> Response:
    """Count a wrong token; only wrong ones are refused, or one client would lock out all that share its address."""
    address = counted_address(page.request.client.host if page.request.client else "")
    wait = tries.wait(address, time.monotonic())
    if wait is not None:
        wrong = page.say("too many wrong tokens: try again in %(seconds)s s", seconds=wait)
        refused = page.render("sign_in.html", HTTPStatus.TOO_MANY_REQUESTS, next=wanted, wrong=wrong)
        refused.headers["Retry-After"] = str(wait)
        return refused
    tries.failed(address, time.monotonic())
    wrong = page.say("This token is invalid or has expired. Create a new one with sereno token create NAME.")
    return page.render("sign_in.html", HTTPStatus.FORBIDDEN, next=wanted, wrong=wrong)


def counted_address(host: str) -> str:
    """Return the address that attempts are counted by: for IPv6 its network, in which a client has 2^64 addresses."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _to(page: PageRequest, wanted: str) -> RedirectResponse:
    """Redirect to a page of this server, and to no other."""
    is_ours = OURS.fullmatch(wanted) is not None and wanted.isprintable()
    return RedirectResponse(f"{page.base}{wanted if is_ours else ''}", HTTPStatus.SEE_OTHER)

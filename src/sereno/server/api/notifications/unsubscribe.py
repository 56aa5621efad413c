"""The page of an unsubscribe link: a page with one button, and what the button does.

GET changes nothing, because programs that read mail follow links. Mail programs that know RFC 8058 send the POST
themselves. Outside `/api/v1`: people see the address, and it is in messages that are years old.
"""

from html import escape
from http import HTTPStatus

import psycopg
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from sereno.errors import ConfigurationError, DatabaseUnavailable, InvalidArguments
from sereno.notifications.recipients.unsubscribe import Unsubscribe, read_token
from sereno.server.shared.context import ServerContext

PATH = "/unsubscribe/{token}"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # The address of the page is a credential: it must not reach other sites.
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
}
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title></head>
<body>
<h1>{title}</h1>
<p>{words}</p>
{more}</body>
</html>
"""
BUTTON = '<form method="post"><button>Unsubscribe</button></form>\n'


def routes(context: ServerContext) -> list[Route]:
    """Return the routes: GET shows the page, POST unsubscribes."""

    async def show(request: Request) -> HTMLResponse:
        try:
            about = read_token(_secret(context), request.path_params["token"])
        except (InvalidArguments, ConfigurationError):
            return _not_valid()
        return _page("Unsubscribe", f"Do you want no more {_what(about)}?", more=BUTTON)

    async def act(request: Request) -> HTMLResponse:
        if context.settings.read_only:
            return _page("Not now", "Nothing can be changed here at the moment.", HTTPStatus.FORBIDDEN)
        try:
            about = read_token(_secret(context), request.path_params["token"])
            await context.app.recipients.aunsubscribe_with(request.path_params["token"])
        except (InvalidArguments, ConfigurationError):
            return _not_valid()
        except (DatabaseUnavailable, psycopg.OperationalError):
            return _page("Not now", "Please try again in a minute.", HTTPStatus.SERVICE_UNAVAILABLE)
        return _page("Done", f"You get no more {_what(about)}.")

    return [Route(PATH, show, methods=["GET"]), Route(PATH, act, methods=["POST"])]


def _secret(context: ServerContext) -> str:
    """Return the secret; without one, no link was ever created."""
    secret = context.settings.secret
    if secret is None:
        raise ConfigurationError("unsubscribe links are signed: set SERENO_SECRET")
    return secret


def _what(about: Unsubscribe) -> str:
    by = f"by {about.channel}"
    return f"messages {by} at this address" if about.category is None else f"messages about {about.category} {by}"


def _not_valid() -> HTMLResponse:
    words = "This link is incomplete. Please open it again from the message, or copy all of it."
    return _page("This link does not work", words, HTTPStatus.BAD_REQUEST)


def _page(title: str, words: str, status: HTTPStatus = HTTPStatus.OK, *, more: str = "") -> HTMLResponse:
    return HTMLResponse(PAGE.format(title=escape(title), words=escape(words), more=more), status, headers=HEADERS)

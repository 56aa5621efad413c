"""The page of an unsubscribe link: a page with one button, and what the button does.

GET changes nothing, because programs that read mail follow links. Mail programs that know RFC 8058 send the POST
themselves. Outside `/api/v1`: people see the address, and it is in messages that are years old.
"""

from functools import partial
from http import HTTPStatus

import psycopg
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from sereno.errors import ConfigurationError, DatabaseUnavailable, InvalidArguments
from sereno.notifications.recipients.unsubscribe import Unsubscribe, read_token
from sereno.notifications.recipients.unsubscribe_links import PATH
from sereno.server.shared.context import ServerContext
from sereno.server.web.messages import say
from sereno.server.web.notifications.link_page import language_of, notice, question
from sereno.server.web.notifications.preference_view import Say, channel_label, readable


def routes(context: ServerContext) -> list[Route]:
    """Return the routes: GET shows the page, POST unsubscribes."""

    async def show(request: Request) -> HTMLResponse:
        words: Say = partial(say, language_of(request))
        try:
            about = read_token(_secret(context), request.path_params["token"])
        except (InvalidArguments, ConfigurationError):
            return _not_valid(request, words)
        if about.category is None:
            asked = words("Do you want no more messages at this address (%(channel)s)?", **_named(words, about))
        else:
            asked = words("Do you want no more messages about %(category)s (%(channel)s)?", **_named(words, about))
        return question(request, words("Unsubscribe"), asked, words("Unsubscribe"))

    async def act(request: Request) -> HTMLResponse:
        words: Say = partial(say, language_of(request))
        if context.settings.read_only:
            refused = words("Nothing can be changed here at the moment.")
            return notice(request, words("Unsubscribe"), refused, HTTPStatus.FORBIDDEN)
        try:
            about = read_token(_secret(context), request.path_params["token"])
            await context.app.recipients.aunsubscribe_with(request.path_params["token"])
        except (InvalidArguments, ConfigurationError):
            return _not_valid(request, words)
        except (DatabaseUnavailable, psycopg.OperationalError):
            later = words("This does not work at the moment. Try again in a minute.")
            return notice(request, words("Unsubscribe"), later, HTTPStatus.SERVICE_UNAVAILABLE)
        if about.category is None:
            done = words("You get no more messages at this address (%(channel)s).", **_named(words, about))
        else:
            done = words("You get no more messages about %(category)s (%(channel)s).", **_named(words, about))
        return notice(request, words("Unsubscribed"), done)

    path = f"{PATH}{{token}}"
    return [Route(path, show, methods=["GET"]), Route(path, act, methods=["POST"])]


def _secret(context: ServerContext) -> str:
    """Return the secret; without one, no link was ever created."""
    secret = context.settings.secret
    if secret is None:
        raise ConfigurationError("unsubscribe links are signed: set SERENO_SECRET")
    return secret


def _named(words: Say, about: Unsubscribe) -> dict[str, str]:
    return {"category": readable(about.category or ""), "channel": channel_label(words, about.channel)}


def _not_valid(request: Request, words: Say) -> HTMLResponse:
    incomplete = words("This link is incomplete. Open it again from the message, or copy all of it.")
    return notice(request, words("Unsubscribe"), incomplete, HTTPStatus.BAD_REQUEST)

"""The page behind the link of a confirmation message: one button, which makes the address one that is used."""

from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sereno.errors import SerenoError
from sereno.notifications.recipients.address_token import PATH
from sereno.server.shared.busy import BUSY
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.preference_access import PreferenceAccess
from sereno.server.web.messages import say
from sereno.server.web.notifications.link_page import check_site, language_of, notice, problem, question
from sereno.server.web.notifications.preference_view import Say


def routes(context: ServerContext) -> list[Route]:
    """Return the routes: GET shows the page, POST confirms the address."""
    access = PreferenceAccess(context)

    async def show(request: Request) -> Response:
        words: Say = partial(say, language_of(request))
        try:
            claim = access.claim(request.path_params["token"], is_change=False)
        except HTTPError as error:
            return _problem(request, words, error)
        asked = words("Do you want to receive notifications at %(address)s?", address=claim.address)
        return question(request, words("Confirm your address"), asked, words("Confirm"))

    async def confirm(request: Request) -> Response:
        words: Say = partial(say, language_of(request))
        try:
            check_site(request)
            claim = access.claim(request.path_params["token"], is_change=True)
            await access.confirm_address(claim)
        except (HTTPError, SerenoError, *BUSY) as error:
            return _problem(request, words, error)
        return notice(request, words("Address confirmed"), words("You get your notifications at this address now."))

    path = f"{PATH}{{token}}"
    return [Route(path, show, methods=["GET"]), Route(path, confirm, methods=["POST"])]


def _problem(request: Request, words: Say, error: Exception) -> Response:
    gone = words("This link has expired, or the address was removed. Add it again.")
    told = {HTTPStatus.GONE: gone, HTTPStatus.NOT_FOUND: gone}
    return problem(request, words("Confirm your address"), error, told)

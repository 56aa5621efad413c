"""The page of the preference centre: what a signed link leads to."""

from http import HTTPStatus
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sereno.errors import InvalidArguments, InvalidSchedule, SerenoError
from sereno.notifications.recipients.preference_centre import PreferenceCentre, QuietSpan
from sereno.notifications.recipients.preference_links import PATH
from sereno.server.shared.busy import BUSY
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.preference_access import ExpiredToken, PreferenceAccess
from sereno.server.shared.request_bodies import read_body
from sereno.server.web.messages import say
from sereno.server.web.notifications.link_page import HEADERS, check_site, language_of, notice, render
from sereno.server.web.notifications.preference_form import LARGEST_FORM, InvalidQuietHours, changes, parse
from sereno.server.web.notifications.preference_view import centre_values


def routes(context: ServerContext) -> list[Route]:
    """Return the routes: GET shows the page, POST saves its form."""
    page = PreferencePage(context)
    path = f"{PATH}{{token}}"
    return [Route(path, page.show, methods=["GET"]), Route(path, page.save, methods=["POST"])]


class PreferencePage:
    """Shows and saves the preferences of the recipient whom the token in the address names."""

    def __init__(self, context: ServerContext) -> None:
        self._access = PreferenceAccess(context)

    async def show(self, request: Request) -> Response:
        try:
            owner = self._access.owner(request.path_params["token"], is_change=False)
            found = await self._access.read(owner.recipient, owner.tenant)
        except (HTTPError, SerenoError, *BUSY) as error:
            return _problem(request, error)
        return _centre(request, found, is_saved="saved" in request.query_params)

    async def save(self, request: Request) -> Response:
        try:
            check_site(request)
            owner = self._access.owner(request.path_params["token"], is_change=True)
            raw = await read_body(request, LARGEST_FORM)
            try:
                await self._access.change(owner.recipient, owner.tenant, changes(parse(raw)))
            except (InvalidArguments, InvalidSchedule) as error:
                found = await self._access.read(owner.recipient, owner.tenant)
                return _centre(request, found, error=error)
        except (HTTPError, SerenoError, *BUSY) as error:
            return _problem(request, error)
        # So that a reload does not send the form again. The address is relative: the server may be mounted anywhere.
        query = {"lang": request.query_params["lang"]} if "lang" in request.query_params else {}
        return RedirectResponse(f"?{urlencode({**query, 'saved': 1})}", HTTPStatus.SEE_OTHER, headers=HEADERS)


def _centre(
    request: Request, found: PreferenceCentre, *, is_saved: bool = False, error: SerenoError | None = None
) -> Response:
    language = language_of(request)
    wrong = None
    spans: list[QuietSpan] | None = None
    if isinstance(error, InvalidQuietHours):
        spans = error.spans
        wrong = say(language, "Nothing was saved: each span of quiet hours needs a start and a different end.")
    elif error is not None:
        wrong = say(
            language, "Nothing was saved: the choices have changed meanwhile, or are not valid. Check them again."
        )
    status = HTTPStatus.OK if error is None else HTTPStatus.UNPROCESSABLE_ENTITY
    values = centre_values(found, language, spans)
    return render(request, "preference_centre.html", status, is_saved=is_saved, wrong=wrong, **values)


def _problem(request: Request, error: Exception) -> Response:
    """Return a page that says what to do; it shows nothing of the recipient."""
    status, words = _explained(error, language_of(request))
    response = notice(request, say(language_of(request), "Your notifications"), words, status)
    headers = dict((error.headers if isinstance(error, HTTPError) else None) or {})
    # A browser has nothing to sign in with. Other headers say when to try again, and that a connection ends whose
    # request was not read to its end.
    headers.pop("WWW-Authenticate", None)
    response.headers.update(headers)
    return response


def _explained(error: Exception, language: str) -> tuple[HTTPStatus, str]:
    if isinstance(error, ExpiredToken):
        return HTTPStatus.GONE, say(language, "This link has expired. Open the one in a newer message.")
    if not isinstance(error, HTTPError):
        words = say(language, "This does not work at the moment. Try again in a minute.")
        return HTTPStatus.SERVICE_UNAVAILABLE, words
    match error.status:
        case HTTPStatus.UNAUTHORIZED:
            words = say(language, "This link is incomplete. Open it again from the message, or copy all of it.")
            return HTTPStatus.BAD_REQUEST, words
        case HTTPStatus.NOT_FOUND:
            return error.status, say(language, "There are no preferences for this link any more.")
        case HTTPStatus.TOO_MANY_REQUESTS:
            return error.status, say(language, "Too many requests. Try again in a minute.")
    return error.status, say(language, "Nothing can be changed here at the moment.")

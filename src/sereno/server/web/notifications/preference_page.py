"""The page of the preference centre: what a signed link leads to."""

from http import HTTPStatus
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sereno.errors import InvalidAddress, InvalidArguments, InvalidSchedule, SerenoError
from sereno.notifications.recipients.preference_centre import PreferenceCentre, QuietSpan
from sereno.notifications.recipients.preference_links import PATH
from sereno.notifications.recipients.preference_token import PreferenceOwner
from sereno.server.shared.busy import BUSY
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.preference_access import OF_MESSAGE, PreferenceAccess
from sereno.server.shared.request_bodies import read_body
from sereno.server.web.messages import say
from sereno.server.web.notifications.link_page import HEADERS, check_site, language_of, problem, render
from sereno.server.web.notifications.preference_form import LARGEST_FORM, InvalidQuietHours, changes, parse
from sereno.server.web.notifications.preference_view import centre_values

# What was done, by the name in the query of the page that is shown then.
DONE = {
    "saved": "Saved. It applies to all messages that are not sent yet.",
    "requested": "If you do not use this address yet, a message is on its way to it. Open its link within 24 hours.",
}


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
            found = await self._access.read(owner.recipient, owner.tenant, may_add=owner.may_add)
        except (HTTPError, SerenoError, *BUSY) as error:
            return _problem(request, error)
        done = next((each for each in DONE if each in request.query_params), None)
        return _centre(request, found, done=done and say(language_of(request), DONE[done]))

    async def save(self, request: Request) -> Response:
        try:
            check_site(request)
            owner = self._access.owner(request.path_params["token"], is_change=True)
            raw = await read_body(request, LARGEST_FORM)
            try:
                done = await self._act(request, owner, parse(raw))
            except (InvalidArguments, InvalidAddress, InvalidSchedule) as error:
                found = await self._access.read(owner.recipient, owner.tenant, may_add=owner.may_add)
                return _centre(request, found, error=error)
        except (HTTPError, SerenoError, *BUSY) as error:
            return _problem(request, error)
        # So that a reload does not send the form again. The address is relative: the server may be mounted anywhere.
        query = {"lang": request.query_params["lang"]} if "lang" in request.query_params else {}
        return RedirectResponse(f"?{urlencode({**query, done: 1})}", HTTPStatus.SEE_OTHER, headers=HEADERS)

    async def _act(self, request: Request, owner: PreferenceOwner, fields: dict[str, list[str]]) -> str:
        """Do what the form says. Return the key of what was done."""
        if "address" in fields:
            if not owner.may_add:
                raise HTTPError(HTTPStatus.FORBIDDEN, OF_MESSAGE)
            address = fields["address"][0].strip()
            await self._access.request_address(owner.recipient, owner.tenant, address, language_of(request))
            return "requested"
        await self._access.change(owner.recipient, owner.tenant, changes(fields), may_add=owner.may_add)
        return "saved"


def _centre(
    request: Request, found: PreferenceCentre, *, done: str | None = None, error: SerenoError | None = None
) -> Response:
    language = language_of(request)
    wrong = None
    spans: list[QuietSpan] | None = None
    if isinstance(error, InvalidQuietHours):
        spans = error.spans
        wrong = say(language, "Nothing was saved: each span of quiet hours needs a start and a different end.")
    elif isinstance(error, InvalidAddress):
        wrong = say(language, "This is not an e-mail address that can be reached. Check it.")
    elif error is not None:
        wrong = say(
            language, "Nothing was saved: the choices have changed meanwhile, or are not valid. Check them again."
        )
    status = HTTPStatus.OK if error is None else HTTPStatus.UNPROCESSABLE_ENTITY
    values = centre_values(found, language, spans)
    return render(request, "preference_centre.html", status, done=done, wrong=wrong, **values)


def _problem(request: Request, error: Exception) -> Response:
    language = language_of(request)
    told = {
        HTTPStatus.GONE: say(language, "This link has expired. Open the one in a newer message."),
        HTTPStatus.NOT_FOUND: say(language, "There are no preferences for this link any more."),
    }
    return problem(request, say(language, "Your notifications"), error, told)

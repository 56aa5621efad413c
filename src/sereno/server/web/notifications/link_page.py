"""What the pages behind the links of messages share. They need no sign-in, no script and no cookie.

The address of such a page is a credential: it is sent to no other site, and a page of another site that does not know
it cannot send its form. GET changes nothing, because programs that read mail follow links.
"""

import gzip
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sereno.server.shared.authenticator import ELSEWHERE
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.preference_access import ExpiredToken
from sereno.server.web.messages import LANGUAGES, NAMES, choose, say
from sereno.server.web.page_request import PACKED_HOW, WORTH_PACKING, environment

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "Vary": "Accept-Encoding, Accept-Language",
}
MINUTE = 60
# Of a form that a browser sends from another site, which cannot know the address; old browsers send no such header.
OTHER_SITES = ("cross-site", "same-site")


def check_site(request: Request) -> None:
    """Refuse a form of another site."""
    if request.headers.get("sec-fetch-site") in OTHER_SITES:
        raise HTTPError(HTTPStatus.FORBIDDEN, ELSEWHERE)


def language_of(request: Request) -> str:
    return choose(request.query_params.get("lang"), request.headers.get("accept-language", ""))


def question(request: Request, title: str, words: str, button: str) -> HTMLResponse:
    """Return a page whose button sends the POST that acts. Texts are in the language of the request."""
    return _link_page(request, HTTPStatus.OK, title, words, button)


def notice(request: Request, title: str, words: str, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    """Return a page that says what was done; with another status, what went wrong."""
    return _link_page(request, status, title, words)


def problem(request: Request, title: str, error: Exception, told: Mapping[HTTPStatus, str]) -> Response:
    """Return a page that says what to do; it shows nothing of the recipient. `told`: what the page says of a status."""
    status, words = _explained(error, language_of(request), told)
    response = notice(request, title, words, status)
    headers = dict((error.headers if isinstance(error, HTTPError) else None) or {})
    # A browser has nothing to sign in with. Other headers say when to try again, and that a connection ends whose
    # request was not read to its end.
    headers.pop("WWW-Authenticate", None)
    response.headers.update(headers)
    return response


def _explained(error: Exception, language: str, told: Mapping[HTTPStatus, str]) -> tuple[HTTPStatus, str]:
    if isinstance(error, ExpiredToken):
        return HTTPStatus.GONE, told[HTTPStatus.GONE]
    if not isinstance(error, HTTPError):
        words = say(language, "This does not work at the moment. Try again in a minute.")
        return HTTPStatus.SERVICE_UNAVAILABLE, words
    match error.status:
        case HTTPStatus.UNAUTHORIZED:
            words = say(language, "This link is incomplete. Open it again from the message, or copy all of it.")
            return HTTPStatus.BAD_REQUEST, words
        case HTTPStatus.TOO_MANY_REQUESTS if int((error.headers or {}).get("Retry-After", 0)) > MINUTE:
            return error.status, say(language, "Too many requests. Try again in an hour.")
        case HTTPStatus.TOO_MANY_REQUESTS:
            return error.status, say(language, "Too many requests. Try again in a minute.")
    return error.status, told.get(error.status) or say(language, "Nothing can be changed here at the moment.")


def _link_page(request: Request, status: HTTPStatus, title: str, words: str, button: str | None = None) -> HTMLResponse:
    is_problem = status != HTTPStatus.OK
    return render(request, "link_page.html", status, title=title, words=words, button=button, is_problem=is_problem)


def render(request: Request, template: str, status: HTTPStatus, **values: Any) -> HTMLResponse:
    language = language_of(request)
    drawn = (
        environment()
        .get_template(template)
        .render(
            {
                "_": lambda sentence, **given: say(language, sentence, **given),
                "base": "../",
                "language": language,
                "language_codes": LANGUAGES,
                "languages": NAMES,
                **values,
            }
        )
        .encode()
    )
    headers = {**HEADERS, "Content-Language": language}
    if len(drawn) > WORTH_PACKING and "gzip" in request.headers.get("accept-encoding", ""):
        drawn = gzip.compress(drawn, PACKED_HOW, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return HTMLResponse(drawn, status, headers=headers)

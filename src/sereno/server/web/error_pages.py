"""Pages that say what went wrong, and where to go on: for a browser, in place of a problem document."""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sereno.errors import SerenoError
from sereno.server.api.problems import problem_response
from sereno.server.shared.busy import BUSY
from sereno.server.shared.cache import Cache
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.web.page_request import SECTIONS, PageRequest, Section, environment

# Errors that pass by themselves: the page asks again.
PASSING = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


def problem_page(page: PageRequest, status: HTTPStatus, words: str, title: str | None = None) -> Response:
    """Return a page with the status, a sentence, and a way on."""
    return page.render(
        "problem.html",
        status,
        code=int(status),
        title=title or page.say(status.phrase),
        words=words,
        is_passing=status in PASSING,
    )


class ErrorPages:
    """Errors outside of every route: an unknown address, and an error of the server itself."""

    def __init__(self, context: ServerContext, sections: Sequence[Section] = SECTIONS) -> None:
        self._context = context
        self._sections = sections
        self._cache = Cache(context)
        self._templates = environment()

    async def unrouted(self, request: Request, error: Exception) -> Response:
        """For an address that no route matches, or a method that it does not have."""
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        if status != HTTPStatus.NOT_FOUND or not _is_for_browser(request):
            return problem_response(status, str(error.detail), headers=error.headers)
        page = await self._page(request)
        words = page.say("There is no page at this address. It may have been mistyped, or the page has moved.")
        return problem_page(page, status, words, page.say("Page not found"))

    async def failed(self, request: Request, _: Exception) -> Response:
        """For an unexpected error, which the server's log has with its traceback. It shows no internals."""
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        if not _is_for_browser(request):
            return problem_response(status, "an error of the server; its log has the traceback")
        page = await self._page(request)
        words = page.say("This is an error of sereno, not yours. The log of the server has the details.")
        return problem_page(page, status, words, page.say("The server failed to make this page"))

    async def _page(self, request: Request) -> PageRequest:
        """Return the page with the user, where known: the navigation shows only what they may see."""
        try:
            who = await self._context.authenticator.who(request)
        except (HTTPError, SerenoError, *BUSY):
            who = None
        if who is not None:
            request.state.principal = who
        return PageRequest(self._context, self._cache, self._templates, request, self._sections)


def _is_for_browser(request: Request) -> bool:
    """Return whether a person reads the response."""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")

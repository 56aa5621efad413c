"""The routes of the pages, each with the role it needs; errors become a page that says so."""

import time
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import quote

import psycopg
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sereno.access.identity import Role
from sereno.errors import DatabaseUnavailable, JobNotFound, PermissionDenied, SchemaError, SerenoError
from sereno.server.shared.busy import BUSY
from sereno.server.shared.cache import Cache
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.web.error_pages import problem_page
from sereno.server.web.page_request import SECTIONS, PageRequest, Section, environment

Page: TypeAlias = Callable[[PageRequest], Awaitable[Response]]


class PageRoutes:
    """`@pages.at("/jobs", of_tenants=True)` before `async def jobs(page) -> Response`."""

    def __init__(self, context: ServerContext, sections: Sequence[Section] = SECTIONS) -> None:
        self.context = context
        self._sections = sections
        self.routes: list[Route] = []
        self._cache = Cache(context)
        self._templates = environment()

    def at(
        self,
        path: str,
        *,
        role: Role = "viewer",
        of_tenants: bool = False,
        open_to_all: bool = False,
        method: str = "GET",
    ) -> Callable[[Page], Page]:
        """`of_tenants`: also for users of one tenant; the page then shows nothing of other tenants."""

        def registered(handler: Page) -> Page:
            async def response(request: Request) -> Response:
                began = time.perf_counter()
                response = await drawn(request)
                # Shown by the browser's developer tools.
                response.headers["Server-Timing"] = f"page;dur={(time.perf_counter() - began) * 1000:.1f}"
                return response

            async def drawn(request: Request) -> Response:
                page = PageRequest(self.context, self._cache, self._templates, request, self._sections)
                try:
                    if not open_to_all:
                        request.state.principal = await self.context.authenticator.check(
                            request, role, of_tenants=of_tenants
                        )
                    return await handler(page)
                except HTTPError as no:
                    return self._declined(page, no)
                except JobNotFound as error:
                    return problem_page(page, HTTPStatus.NOT_FOUND, str(error))
                except (*BUSY, DatabaseUnavailable):
                    words = page.say("The database is busy or unavailable. This page retries automatically.")
                    return problem_page(page, HTTPStatus.SERVICE_UNAVAILABLE, words)
                except SchemaError:
                    words = page.say("The database has no schema of sereno, or an older one. Run sereno migrate.")
                    return problem_page(page, HTTPStatus.SERVICE_UNAVAILABLE, words)
                except PermissionDenied:
                    words = page.say("The server's database role lacks a privilege. See sereno migrate --roles print.")
                    return problem_page(page, HTTPStatus.SERVICE_UNAVAILABLE, words)
                except (SerenoError, psycopg.DataError) as error:
                    return problem_page(page, HTTPStatus.UNPROCESSABLE_ENTITY, str(error))

            self.routes.append(Route(path, response, methods=[method]))
            return handler

        return registered

    def _declined(self, page: PageRequest, no: HTTPError) -> Response:
        if no.status != HTTPStatus.UNAUTHORIZED:
            return problem_page(page, no.status, no.detail)
        if self.context.authenticator.is_elsewhere:
            return problem_page(page, no.status, page.say("Sign in to the surrounding application first."))
        form = page.request.url.path.removeprefix(page.request.scope.get("root_path", "")).lstrip("/")
        form += f"?{page.request.url.query}" if page.request.url.query else ""
        return RedirectResponse(f"{page.base}sign-in?next={quote(form, safe='')}", HTTPStatus.SEE_OTHER)

"""The pages by their paths, each with who may see it; whatever goes wrong becomes a page that says so."""

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import quote

import psycopg
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from sereno.access.identity import Role
from sereno.errors import DatabaseUnavailable, JobNotFound, SerenoError
from sereno.server.shared.busy import BUSY
from sereno.server.shared.cache import Cache
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.web.page_request import PageRequest, environment

Page: TypeAlias = Callable[[PageRequest], Awaitable[Response]]


class PageRoutes:
    """`@pages.at("/jobs", of_tenants=True)` before `async def jobs(look) -> Response`."""

    def __init__(self, house: ServerContext) -> None:
        self.house = house
        self.routes: list[Route] = []
        self._glances = Cache(house)
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
        """`of_tenants`: also for somebody who sees one tenant alone; the page then shows nothing else."""

        def registered(page: Page) -> Page:
            async def answer(request: Request) -> Response:
                began = time.perf_counter()
                response = await drawn(request)
                # In the browser's own tools, and for whoever measures.
                response.headers["Server-Timing"] = f"page;dur={(time.perf_counter() - began) * 1000:.1f}"
                return response

            async def drawn(request: Request) -> Response:
                look = PageRequest(self.house, self._glances, self._templates, request)
                try:
                    if not open_to_all:
                        request.state.principal = await self.house.guard.check(request, role, of_tenants=of_tenants)
                    return await page(look)
                except HTTPError as no:
                    return self._declined(look, no)
                except JobNotFound as error:
                    return _problem(look, HTTPStatus.NOT_FOUND, str(error))
                except (*BUSY, DatabaseUnavailable):
                    words = look.say("The database is busy or away. This page tries again by itself.")
                    return _problem(look, HTTPStatus.SERVICE_UNAVAILABLE, words)
                except (SerenoError, psycopg.DataError) as error:
                    return _problem(look, HTTPStatus.UNPROCESSABLE_ENTITY, str(error))

            self.routes.append(Route(path, answer, methods=[method]))
            return page

        return registered

    def _declined(self, look: PageRequest, no: HTTPError) -> Response:
        if no.status != HTTPStatus.UNAUTHORIZED:
            return _problem(look, no.status, no.detail)
        if self.house.guard.is_elsewhere:
            return _problem(look, no.status, look.say("Sign in to the application around this page first."))
        asked = look.request.url.path.removeprefix(look.request.scope.get("root_path", "")).lstrip("/")
        asked += f"?{look.request.url.query}" if look.request.url.query else ""
        return RedirectResponse(f"{look.base}sign-in?next={quote(asked, safe='')}", HTTPStatus.SEE_OTHER)


def _problem(look: PageRequest, status: HTTPStatus, words: str) -> Response:
    is_passing = status == HTTPStatus.SERVICE_UNAVAILABLE
    return look.page("problem.html", status, title=look.say(status.phrase), words=words, is_passing=is_passing)

"""Every page with the role that it needs, and its queries about the rows of a tenant.

A new page with parameters needs a line in `addresses`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sereno import Sereno
from sereno.access.identity import Role
from sereno.server import asgi
from sereno.server.web.build import SECTIONS
from sereno.server.web.page_routes import Page, PageRoutes
from tests.server.api.world import EVENT, FINGERPRINT, Things


@dataclass(frozen=True)
class RegisteredPage:
    """A page as it was registered."""

    path: str
    method: str
    role: Role
    is_of_tenants: bool
    is_open: bool


class RecordingRoutes(PageRoutes):
    """Records the registered pages."""

    registered: list[RegisteredPage]

    def at(
        self,
        path: str,
        *,
        role: Role = "viewer",
        of_tenants: bool = False,
        open_to_all: bool = False,
        method: str = "GET",
    ) -> Callable[[Page], Page]:
        self.registered.append(RegisteredPage(path, method, role, of_tenants, open_to_all))
        return super().at(path, role=role, of_tenants=of_tenants, open_to_all=open_to_all, method=method)


def pages(app: Sereno) -> list[RegisteredPage]:
    """Return all GET pages, from the same table as the server."""
    recording = RecordingRoutes(asgi(app)._context)
    recording.registered = []
    for section in SECTIONS:
        section.routes(recording)
    return [page for page in recording.registered if page.method == "GET"]


def addresses(page: RegisteredPage, things: Things) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the address of the page as it is, with the tenant, and for each row of the tenant that it can show."""
    queries = _queries(things).get(page.path, ({}, {"tenant": things.tenant}))
    for query in queries:
        yield f"{page.path}?{urlencode(query)}" if query else page.path, query


def _queries(things: Things) -> dict[str, tuple[dict[str, Any], ...]]:
    key, whole = {"key": things.named("recipient"), "tenant": things.tenant}, {"tenant": things.tenant}
    template = {"event": EVENT, "channel": "pager"}
    searches = ({"q": f"tag:{things.named('tag')}"}, {"q": f"group:{things.group}"})
    return {
        "/jobs": ({}, whole, {"job": things.job}, {"job": things.ended}, *searches),
        "/groups": ({}, whole),
        "/operations": ({},),
        "/operation": ({"id": things.operation},),
        "/schedules": ({}, whole, {"span": "7d"}, {"q": things.named("schedule")}),
        "/schedule": ({"key": things.named("schedule")},),
        "/tenant": ({"name": things.tenant},),
        "/trace": ({"id": things.named("trace")},),
        "/recipient": (key,),
        "/notifications": ({}, whole, {"type": EVENT}),
        "/event": ({"id": things.event},),
        "/deliveries": ({}, whole, {"delivery": things.delivery}),
        "/logs": ({}, whole, {"line": things.line}),
        "/error": ({"fingerprint": FINGERPRINT},),
        "/archive": ({}, {"batch": things.batch, "kind": "jobs"}),
        "/queues": ({}, {"limit": things.limit}),
        "/template": (template,),
        "/template-preview": (template,),
    }

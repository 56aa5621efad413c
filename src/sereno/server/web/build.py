"""All pages of the dashboard, as routes."""

from starlette.routing import BaseRoute

from sereno.server.shared.context import ServerContext
from sereno.server.web import sign_in, static_files
from sereno.server.web.archive import archive
from sereno.server.web.jobs import bulk_operations, groups, jobs, queues
from sereno.server.web.monitoring import (
    alerts_page,
    errors,
    logs_page,
    now,
    system,
    tenants,
    traces,
)
from sereno.server.web.notifications import (
    channels,
    deliveries,
    overview,
    preferences,
    recipients,
    templates_page,
)
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.procedures import procedures_page
from sereno.server.web.schedules import schedules

SECTIONS = (
    now,
    jobs,
    bulk_operations,
    groups,
    schedules,
    sign_in,
    overview,
    deliveries,
    recipients,
    templates_page,
    channels,
    preferences,
    errors,
    tenants,
    traces,
    queues,
    archive,
    system,
    logs_page,
    alerts_page,
    procedures_page,
)


def routes(context: ServerContext) -> list[BaseRoute]:
    """Return the routes of the pages and of their static files."""
    pages = PageRoutes(context)
    for section in SECTIONS:
        section.routes(pages)
    return [*static_files.routes(), *pages.routes]

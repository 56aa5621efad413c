"""All pages of the house, as routes."""

from starlette.routing import BaseRoute

from sereno.reception.house import House
from sereno.web import (
    alerts_page,
    archive,
    channels,
    deliveries,
    errors,
    jobs,
    logs_page,
    notifications,
    now,
    operations,
    preferences,
    procedures_page,
    queues,
    recipients,
    schedules,
    sign_in,
    static_files,
    system,
    templates_page,
    tenants,
    traces,
)
from sereno.web.pages import Pages

ROOMS = (
    now,
    jobs,
    operations,
    schedules,
    sign_in,
    notifications,
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


def routes(house: House) -> list[BaseRoute]:
    """The pages, and what they are dressed in."""
    pages = Pages(house)
    for room in ROOMS:
        room.rooms(pages)
    return [*static_files.routes(), *pages.routes]

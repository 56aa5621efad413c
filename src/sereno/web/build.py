"""All pages of the house, as routes."""

from starlette.routing import BaseRoute

from sereno.reception.house import House
from sereno.web import jobs, now, operations, schedules, sign_in, static_files
from sereno.web.pages import Pages

ROOMS = (
    now,
    jobs,
    operations,
    schedules,
    sign_in,
)


def routes(house: House) -> list[BaseRoute]:
    """The pages, and what they are dressed in."""
    pages = Pages(house)
    for room in ROOMS:
        room.rooms(pages)
    return [*static_files.routes(), *pages.routes]

"""Workers: who is at work, and who was lately."""

from sereno.api.door import Door
from sereno.api.pages import Page
from sereno.jobs.rows import SessionRow
from sereno.reception.house import House
from sereno.worker import operations as workers


def rooms(house: House) -> Door:
    """`/workers`."""
    door = Door(house, "workers")

    @door.at("GET", "/workers", role="viewer")
    async def list_workers() -> Page[SessionRow]:
        """Workers that live, then those that ended within a day."""
        return Page(await house.read(workers.list_workers()))

    return door

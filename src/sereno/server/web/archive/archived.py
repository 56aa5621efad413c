"""Where an archived job or delivery is."""

from collections.abc import Sequence
from functools import partial

from sereno.archive.lookup import Noun
from sereno.archive.queries import ArchivedLocation
from sereno.server.shared.archived import places
from sereno.server.web.page_request import PageRequest


async def archived(page: PageRequest, noun: Noun, number: int) -> Sequence[ArchivedLocation]:
    """Return its locations; nothing for users of one tenant: a file holds many tenants' rows."""
    if page.who.tenant is not None:
        return ()
    seen = await page.load(("whereabouts", noun, number), partial(places, noun, number, page.who))
    return seen.value or ()

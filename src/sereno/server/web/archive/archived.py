"""Where an archived job or delivery is."""

from collections.abc import Sequence
from functools import partial

from sereno.archive.lookup import RowKind
from sereno.archive.queries import ArchivedLocation
from sereno.server.shared.archived import places
from sereno.server.web.page_request import PageRequest


async def archived(page: PageRequest, kind: RowKind, number: int) -> Sequence[ArchivedLocation]:
    """Return its locations; nothing for users of one tenant: a file holds many tenants' rows."""
    if page.who.tenant is not None:
        return ()
    seen = await page.load(("whereabouts", kind, number), partial(places, kind, number, page.who))
    return seen.value or ()

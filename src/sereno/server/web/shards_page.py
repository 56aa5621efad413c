"""The first page of a server that shows several databases: the shards with their main figures."""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute

from sereno.server.shared.context import ServerContext
from sereno.server.shared.shard_list import ShardList, ShardStatus
from sereno.server.web import sign_in, static_files
from sereno.server.web.page_request import SHARD_SECTIONS, PageRequest
from sereno.server.web.page_routes import PageRoutes


def routes(context: ServerContext, shards: ShardList) -> list[BaseRoute]:
    """Return the overview, the sign-in and the static files."""
    pages = PageRoutes(context, SHARD_SECTIONS)
    sign_in.routes(pages)

    @pages.at("/")
    async def overview(page: PageRequest) -> Response:
        found = await shards.read()
        return page.render("shards.html", sentence=_sentence(page, found), shards=found, totals=_totals(found))

    return [*static_files.routes(), *pages.routes]


def _sentence(page: PageRequest, found: Sequence[ShardStatus]) -> str:
    away = [each.name for each in found if not each.is_reachable]
    if len(away) == 1:
        return page.say("The shard %(name)s does not respond.", name=away[0])
    if away:
        return page.say("%(count)s of %(all)s shards do not respond.", count=len(away), all=len(found))
    if any(not each.is_current for each in found):
        return page.say("All shards respond; not all have the schema of this server.")
    return page.say("All shards respond.")


def _totals(found: Sequence[ShardStatus]) -> dict[str, float]:
    """Return the sums over the shards that respond."""
    figures = [each.figures for each in found if each.is_reachable and each.figures is not None]
    return {
        "jobs_per_second": sum(each.jobs_per_second for each in figures),
        "ready": sum(each.ready for each in figures),
        "running": sum(each.running for each in figures),
    }

"""The shards of a server that shows several databases."""

from fastapi import FastAPI

from sereno.server.api.build import with_routes
from sereno.server.api.paging import Page
from sereno.server.api.router import Router
from sereno.server.shared.context import ServerContext
from sereno.server.shared.shard_list import ShardList, ShardStatus


def routes(context: ServerContext, shards: ShardList) -> Router:
    """`/shards`."""
    router = Router(context, "shards")

    @router.operation("GET", "/shards", role="viewer")
    async def list_shards() -> Page[ShardStatus]:
        """The shards and their main figures; for one that does not respond, the last known ones and their age.

        Only of a server with `--shard`. Each shard's own API, without changes, is under `/shards/NAME/api/v1`.
        """
        return Page(await shards.read())

    return router


def build(context: ServerContext, shards: ShardList) -> FastAPI:
    """Return the API above the shards."""
    description = "The shards of this server. Their own APIs are under /shards/NAME/api/v1, without changes."
    return with_routes([routes(context, shards)], description)

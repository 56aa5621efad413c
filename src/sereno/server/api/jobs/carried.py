"""Carried queues: the share of new jobs that the carrier gets."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field

from sereno.carriers.operations import ALL, set_share
from sereno.errors import ConfigurationError
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.text import NAME_LIMIT

# Names may contain slashes: the suffix of a path is matched from the end.
Name = Annotated[str, Path(min_length=1, max_length=NAME_LIMIT)]


class ShareBody(BaseModel):
    """`share`: per cent of new jobs for the carrier; 0 keeps all of them in PostgreSQL.

    `recover`: with share 0, give up the carrier: jobs on their way to it return to PostgreSQL.
    """

    share: int = Field(ge=0, le=ALL)
    recover: bool = False


@dataclass
class ShareResponse:
    """The share now, and before the change. `recovered`: jobs that returned to PostgreSQL."""

    queue: str
    share: int
    before: int
    recovered: int


def routes(context: ServerContext) -> Router:
    """`/queues/…/carrier`."""
    router = Router(context, "queues")

    @router.operation("PUT", "/queues/{name:path}/carrier", role="operator", also=[HTTPStatus.NOT_FOUND])
    async def carry_queue(name: Name, who: Who, body: ShareBody) -> ShareResponse:
        """Give this share of new jobs to the carrier of the queue. Workers follow within seconds.

        Jobs that the carrier has already run from there.
        """
        declared = context.app.registry.carried
        change = set_share(name, body.share, declared=declared, recover=body.recover, actor=who.actor)
        try:
            made = await context.change(change)
        except ConfigurationError as error:
            raise HTTPError(HTTPStatus.NOT_FOUND, str(error)) from None
        return ShareResponse(made.queue, made.share, made.before, made.recovered)

    return router

"""Stored procedures that jobs may call: the parameters of each, who allowed it, and its last successful call."""

from collections.abc import Sequence
from urllib.parse import quote

from starlette.responses import Response

from sereno.procedures.operations import Procedure, list_allowed
from sereno.server.web.command_examples import copies
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes

FRESH = 3.0


def routes(pages: PageRoutes) -> None:
    """`/procedures`."""

    @pages.at("/procedures")
    async def procedures(page: PageRequest) -> Response:
        found = await page.load("procedures", list_allowed, fresh=FRESH)
        lines = found.value or []
        return page.render(
            "procedures.html",
            show="procedures",
            found=found,
            lines=lines,
            address=_address,
            sentence=_sentence(page, lines),
            copies=copies(page, cli=["procedure", "list"], path="procedures"),
        )


def _address(line: Procedure) -> str:
    """Return its path in the API."""
    return f"procedures/{quote(line.allowed.target, safe='')}/{quote(line.allowed.name, safe='')}"


def _sentence(page: PageRequest, lines: Sequence[Procedure]) -> str:
    if not lines:
        return page.say("Jobs may call no stored procedure.")
    if len(lines) == 1:
        return page.say("Jobs may call one stored procedure.")
    return page.say("Jobs may call %(count)s stored procedures.", count=len(lines))

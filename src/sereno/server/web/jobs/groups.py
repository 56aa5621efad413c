"""The groups of jobs, newest first, each with its progress; a search such as `group:12` shows one of them."""

from functools import partial

from starlette.responses import Response

from sereno.jobs.group_store import GroupRow, list_groups
from sereno.server.shared.tenant_scope import their_tenant
from sereno.server.web import cursor
from sereno.server.web.command_examples import copies
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes

ROWS = 50


def routes(pages: PageRoutes) -> None:
    """`/groups`."""

    @pages.at("/groups", of_tenants=True)
    async def groups(page: PageRequest) -> Response:
        tenant = their_tenant(page.who, page.query.get("tenant") or None)
        before = cursor.number(page.query.get("before"))
        found = await page.load(
            ("groups", tenant, before), partial(list_groups, limit=ROWS + 1, before=before, tenant=tenant)
        )
        lines = (found.value or [])[:ROWS]
        cli = ["group", "list", *(["--tenant", tenant] if tenant else [])]
        return page.render(
            "groups.html",
            found=found,
            lines=lines,
            next=lines[-1].id if len(found.value or []) > ROWS else None,
            sentence=_sentence(page, lines),
            copies=copies(page, cli=cli, path="groups", query={"tenant": tenant}),
        )


def _sentence(page: PageRequest, lines: list[GroupRow]) -> str:
    stuck = sum(bool(line.remaining and line.dead.value) for line in lines)
    open_ones = sum(bool(line.remaining) for line in lines)
    if not lines:
        return page.say("No group yet.")
    if stuck:
        return page.say("Groups with dead jobs: %(count)s.", count=figure(stuck))
    if open_ones:
        return page.say("Groups that have not ended: %(count)s.", count=figure(open_ones))
    return page.say("All groups have ended.")

"""The house itself: what the doctor says, how large things are, who did what, who may ask, and how it is set up."""

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from sereno.access.identity import ROLES
from sereno.access.operations import list_tokens
from sereno.access.tokens import AUDIT_WINDOW, TokenRow, audit_lines
from sereno.jobs import queries as job_queries
from sereno.monitoring import health_queries, storage_queries
from sereno.monitoring.doctor import Check, doctor
from sereno.monitoring.settings import list_settings
from sereno.monitoring.status import scheduler
from sereno.search.search_filter import AUDIT_FIELDS
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.http_error import HTTPError
from sereno.server.web.command_examples import copies
from sereno.server.web.cursor import number
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, listed, sought_for
from sereno.server.web.sizes import size

ROWS = 50
MOST_TOKENS = 200
LONGEST = 500
# The doctor looks at everything; sizes change slowly.
DOCTOR_FRESH, SIZE_FRESH = 5.0, 30.0


def rooms(pages: PageRoutes) -> None:
    """`/system`, and what it shows with `?show=`."""

    @pages.at("/system")
    async def system(look: PageRequest) -> Response:
        shows = {"audit": _audit, "tokens": _tokens, "settings": _settings}
        wanted = look.query.get("show", "")
        # The API keeps these for admins, so the page does too.
        if wanted in ("tokens", "settings") and not look.who.may("admin"):
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{look.who.name} is {look.who.role}: this is for admins")
        return await shows.get(wanted, _health)(look)


async def _health(look: PageRequest) -> Response:
    house = look.house
    checks, tables, holders, keeper, version, server = await asyncio.gather(
        look.see("doctor", partial(doctor, house.settings), fresh=DOCTOR_FRESH),
        look.see("tables", storage_queries.tables, fresh=SIZE_FRESH),
        look.see("pinned", health_queries.pinned, fresh=2.0),
        look.see("scheduler", scheduler, fresh=2.0),
        look.see("schema version", job_queries.schema_version, fresh=SIZE_FRESH),
        look.see("server", health_queries.server, fresh=2.0),
    )
    return _page(
        look,
        "system.html",
        checks=checks,
        tables=tables,
        holders=holders,
        keeper=keeper,
        schema=version.value,
        server=server.value,
        size=size,
        total=sum(each.bytes for each in tables.value or []),
        sentence=_sentence(look, checks.value),
        order=_by_level,
        copies=copies(look, cli=["doctor"], path="doctor"),
    )


def _sentence(look: PageRequest, checks: Sequence[Check] | None) -> str:
    if checks is None:
        return look.say("The database does not answer in time.")
    wrong = [each for each in checks if each.level == "fail"]
    doubtful = [each for each in checks if each.level == "warn"]
    if len(wrong) == 1:
        return look.say("One check fails.")
    if wrong:
        return look.say("%(count)s checks fail.", count=len(wrong))
    if len(doubtful) == 1:
        return look.say("The house is in order, but for one thing.")
    if doubtful:
        return look.say("The house is in order, but for %(count)s things.", count=len(doubtful))
    return look.say("The house is in order.")


def _by_level(checks: Sequence[Check]) -> list[Check]:
    """The worst first, else as the doctor looked."""
    return sorted(checks, key=lambda each: ("fail", "warn", "ok").index(each.level))


async def _audit(look: PageRequest) -> Response:
    before = number(look.query.get("before"))
    asked = {name: look.query.get(name, "").strip()[:LONGEST] or None for name in ("actor", "action", "subject")}
    search = sought_for(look, AUDIT_FIELDS)
    look_up = partial(audit_lines, before=before, most=ROWS + 1, sought=search.wanted, **asked)
    found = await listed(look, search, ("audit", before, *asked.values()), look_up)
    lines = (found.value or [])[:ROWS]
    is_filtered = bool(search.terms) or any(asked.values())
    return _page(
        look,
        "audit.html",
        found=found,
        lines=lines,
        next=lines[-1].id if len(found.value or []) > ROWS else None,
        asked=asked,
        search=search,
        is_filtered=is_filtered,
        window=AUDIT_WINDOW if search.terms or asked["actor"] or asked["action"] else None,
        sentence=_told(look, search, len(lines), is_filtered=is_filtered),
        copies=copies(look, cli=None, path="audit", query={"q": search.text, **asked}),
    )


def _told(look: PageRequest, search: SearchForm[SearchParams | None], count: int, *, is_filtered: bool) -> str:
    if search.problem:
        return look.say("This search is not understood.")
    if count:
        return look.say("Who did what, newest first.")
    return (
        look.say("Nothing like this was done lately.") if is_filtered else look.say("Nobody has changed anything yet.")
    )


async def _tokens(look: PageRequest) -> Response:
    found = await look.see("tokens", list_tokens)
    rows = found.value or []
    living = [row for row in rows if _is_living(row, look)]
    return _page(
        look,
        "tokens.html",
        found=found,
        rows=rows[:MOST_TOKENS],
        roles=ROLES,
        is_living=partial(_is_living, look=look),
        sentence=_counted(look, len(living)),
        copies=copies(look, cli=["token", "list"], path="tokens"),
    )


def _is_living(row: TokenRow, look: PageRequest) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > look.now)


def _counted(look: PageRequest, living: int) -> str:
    if not living:
        return look.say("There is no token yet.")
    if living == 1:
        return look.say("One token opens this house.")
    return look.say("%(count)s tokens open this house.", count=living)


async def _settings(look: PageRequest) -> Response:
    app = look.house.parts["app"]
    lines = list_settings(look.house.settings, app.setting_sources)
    chosen = [line for line in lines if line.source != "default"]
    return _page(
        look,
        "settings.html",
        lines=[*chosen, *(line for line in lines if line.source == "default")],
        sentence=look.say("%(count)s of %(all)s settings are set.", count=len(chosen), all=len(lines)),
        copies=copies(look, cli=["config"], path="settings"),
    )


def _page(look: PageRequest, template: str, **values: Any) -> Response:
    return look.page(template, show=look.query.get("show", ""), **values)

"""The system itself: checks of the doctor, sizes, audit, tokens and settings."""

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from sereno.access.audit_queries import AUDIT_WINDOW, audit_lines
from sereno.access.identity import ROLES
from sereno.access.operations import list_tokens
from sereno.access.rows import TokenRow
from sereno.jobs.queries import jobs as job_queries
from sereno.monitoring import health_queries, storage_queries
from sereno.monitoring.doctor import DoctorCheck, doctor
from sereno.monitoring.search_fields import AUDIT_FIELDS
from sereno.monitoring.settings import list_settings
from sereno.monitoring.status import scheduler
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.http_error import HTTPError
from sereno.server.web.command_examples import copies
from sereno.server.web.cursor import number
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, listed, search_params_for
from sereno.server.web.sizes import size

ROWS = 50
MOST_TOKENS = 200
LONGEST = 500
# Seconds: the doctor reads much; sizes change slowly.
DOCTOR_FRESH, SIZE_FRESH = 5.0, 30.0


def routes(pages: PageRoutes) -> None:
    """`/system` and its tabs."""

    @pages.at("/system")
    async def system(page: PageRequest) -> Response:
        shows = {"audit": _audit, "tokens": _tokens, "settings": _settings}
        wanted = page.query.get("show", "")
        # As in the API, only for admins.
        if wanted in ("tokens", "settings") and not page.who.may("admin"):
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{page.who.name} is {page.who.role}: this is for admins")
        return await shows.get(wanted, _health)(page)


async def _health(page: PageRequest) -> Response:
    context = page.context
    checks, tables, holders, maintenance, version, server = await asyncio.gather(
        page.load("doctor", partial(doctor, context.settings), fresh=DOCTOR_FRESH),
        page.load("tables", storage_queries.tables, fresh=SIZE_FRESH),
        page.load("pinned", health_queries.pinned, fresh=2.0),
        page.load("scheduler", scheduler, fresh=2.0),
        page.load("schema version", job_queries.schema_version, fresh=SIZE_FRESH),
        page.load("server", health_queries.server, fresh=2.0),
    )
    return _page(
        page,
        "system.html",
        checks=checks,
        tables=tables,
        holders=holders,
        maintenance=maintenance,
        schema=version.value,
        server=server.value,
        size=size,
        total=sum(each.bytes for each in tables.value or []),
        sentence=_sentence(page, checks.value),
        order=_by_level,
        copies=copies(page, cli=["doctor"], path="doctor"),
    )


def _sentence(page: PageRequest, checks: Sequence[DoctorCheck] | None) -> str:
    if checks is None:
        return page.say("The database does not respond in time.")
    wrong = [each for each in checks if each.level == "fail"]
    doubtful = [each for each in checks if each.level == "warn"]
    if len(wrong) == 1:
        return page.say("One check fails.")
    if wrong:
        return page.say("%(count)s checks fail.", count=len(wrong))
    if len(doubtful) == 1:
        return page.say("All checks pass, with one warning.")
    if doubtful:
        return page.say("All checks pass, with %(count)s warnings.", count=len(doubtful))
    return page.say("All checks pass.")


def _by_level(checks: Sequence[DoctorCheck]) -> list[DoctorCheck]:
    """Return the worst first, else in the order of the doctor."""
    return sorted(checks, key=lambda each: ("fail", "warn", "ok").index(each.level))


async def _audit(page: PageRequest) -> Response:
    before = number(page.query.get("before"))
    form = {name: page.query.get(name, "").strip()[:LONGEST] or None for name in ("actor", "action", "subject")}
    search = search_params_for(page, AUDIT_FIELDS)
    query = partial(audit_lines, before=before, most=ROWS + 1, search_params=search.wanted, **form)
    found = await listed(page, search, ("audit", before, *form.values()), query)
    lines = (found.value or [])[:ROWS]
    is_filtered = bool(search.terms) or any(form.values())
    return _page(
        page,
        "audit.html",
        found=found,
        lines=lines,
        next=lines[-1].id if len(found.value or []) > ROWS else None,
        form=form,
        search=search,
        is_filtered=is_filtered,
        window=AUDIT_WINDOW if search.terms or form["actor"] or form["action"] else None,
        sentence=_audit_sentence(page, search, len(lines), is_filtered=is_filtered),
        copies=copies(page, cli=None, path="audit", query={"q": search.text, **form}),
    )


def _audit_sentence(
    page: PageRequest, search: SearchForm[SearchParams | None], count: int, *, is_filtered: bool
) -> str:
    if search.problem:
        return page.say("The search is invalid.")
    if count:
        return page.say("Who did what, newest first.")
    return page.say("No matching changes lately.") if is_filtered else page.say("No changes yet.")


async def _tokens(page: PageRequest) -> Response:
    found = await page.load("tokens", list_tokens)
    rows = found.value or []
    living = [row for row in rows if _is_living(row, page)]
    return _page(
        page,
        "tokens.html",
        found=found,
        rows=rows[:MOST_TOKENS],
        roles=ROLES,
        is_living=partial(_is_living, page=page),
        sentence=_counted(page, len(living)),
        copies=copies(page, cli=["token", "list"], path="tokens"),
    )


def _is_living(row: TokenRow, page: PageRequest) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > page.now)


def _counted(page: PageRequest, living: int) -> str:
    if not living:
        return page.say("There is no token yet.")
    if living == 1:
        return page.say("One active token.")
    return page.say("%(count)s active tokens.", count=living)


async def _settings(page: PageRequest) -> Response:
    app = page.context.app
    lines = list_settings(page.context.settings, app.setting_sources)
    chosen = [line for line in lines if line.source != "default"]
    return _page(
        page,
        "settings.html",
        lines=[*chosen, *(line for line in lines if line.source == "default")],
        sentence=page.say("%(count)s of %(all)s settings are set.", count=len(chosen), all=len(lines)),
        copies=copies(page, cli=["config"], path="settings"),
    )


def _page(page: PageRequest, template: str, **values: Any) -> Response:
    return page.render(template, show=page.query.get("show", ""), **values)

"""The central log: searched, with details of one line, and live."""

import asyncio
import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.responses import Response

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.server.shared.tenant_scope import their_tenant
from sereno.server.web.command_examples import copies
from sereno.server.web.cursor import number
from sereno.server.web.facets import facets, toggled
from sereno.server.web.monitoring import tracebacks
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, filter_params
from sereno.telemetry.log_queries import WINDOW, LogDetail, LogFilter
from sereno.telemetry.log_record import LEVELS
from sereno.telemetry.log_search import LOG_FIELDS, lines_wanted, list_lines, show

ROWS = 50


def routes(pages: PageRoutes) -> None:
    """`/logs`."""

    @pages.at("/logs", of_tenants=True)
    async def logs(page: PageRequest) -> Response:
        form = _search(page)
        before = number(page.query.get("before"))
        found, opened = await asyncio.gather(_listed(page, form, before), _opened(page))
        lines = found.value.items if found and found.value else []
        return page.render(
            "logs.html",
            form=form,
            found=found,
            lines=lines,
            next=found.value.next if found and found.value else None,
            opened=opened,
            levels=facets(form.terms, "level", [(level, None) for level in reversed(LEVELS)]),
            sentence=_sentence(page, form, found),
            about=partial(toggled, (), negated=False),
            more=partial(toggled, form.terms, negated=False),
            log_level=page.context.settings.keep_logs,
            retention=page.context.settings.log_retention,
            window=WINDOW,
            copies=copies(
                page,
                cli=["log", "list", *(["--", form.text] if form.text else [])],
                path="logs",
                query={"q": form.text},
            ),
        )


def _search(page: PageRequest) -> SearchForm[LogFilter]:
    """Return the search in the query, limited to the user's tenant."""
    form = filter_params(page, LOG_FIELDS, lines_wanted)
    if form.wanted is None:
        return form
    tenant = form.wanted.tenant or page.query.get("tenant") or None
    return replace(form, wanted=replace(form.wanted, tenant=their_tenant(page.who, tenant)))


async def _listed(page: PageRequest, form: SearchForm[LogFilter], before: int | None) -> Any:
    """Return the page of lines; None for an invalid search."""
    wanted = form.wanted
    if wanted is None:
        return None
    key = ("logs", form.text, wanted.tenant, before)
    return await page.load(key, partial(list_lines, wanted, limit=ROWS, before=before))


@dataclass(frozen=True, slots=True)
class OpenedLine:
    """The line beside the list; None if it does not exist, or is of another tenant."""

    number: str
    line: LogDetail | None
    context: str
    traceback: tracebacks.ParsedTraceback | None
    copies: dict[str, str]


async def _opened(page: PageRequest) -> OpenedLine | None:
    form = page.query.get("line")
    if not form:
        return None
    wanted = number(form)
    if wanted is None:
        return OpenedLine(form[:30], None, "", None, {})
    seen = await page.load(("line", wanted), partial(_one, wanted), fresh=30.0, keep=False)
    line = seen.value
    if line is None or page.who.tenant not in (None, line.tenant):
        return OpenedLine(str(wanted), None, "", None, {})
    return OpenedLine(
        str(wanted),
        line,
        json.dumps(line.context, indent=2, ensure_ascii=False) if line.context else "",
        tracebacks.read(line.traceback),
        copies(page, cli=["log", "show", str(wanted)], path=f"logs/{wanted}"),
    )


def _one(line: int) -> Operation[LogDetail | None]:
    try:
        return (yield from show(line))
    except ConfigurationError:
        return None


def _sentence(page: PageRequest, form: SearchForm[LogFilter], found: Any) -> str:
    if form.problem is not None:
        return page.say("The search is invalid.")
    if found is None or found.value is None:
        return page.say("The database does not respond in time.")
    listed = found.value
    if form.terms:
        if listed.next is not None:
            return page.say("More than %(count)s lines match: the newest are shown.", count=len(listed.items))
        if len(listed.items) == 1:
            return page.say("One line matches.")
        return (
            page.say("%(count)s lines match.", count=len(listed.items))
            if listed.items
            else page.say("No line matches.")
        )
    if not listed.items:
        return page.say("No log lines.")
    bad = sum(line.level in ("error", "critical") for line in listed.items)
    if not bad:
        return page.say("No error among the newest %(count)s lines.", count=len(listed.items))
    return page.say("%(bad)s errors among the newest %(count)s lines.", bad=bad, count=len(listed.items))

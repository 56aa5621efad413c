"""The central log: searched, one line beside the list with all that was said, and live."""

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
from sereno.server.web.search_form import SearchForm, asked_for
from sereno.telemetry.central_log import WINDOW, LogDetail, LogFilter
from sereno.telemetry.log_record import LEVELS
from sereno.telemetry.log_search import LOG_FIELDS, lines_wanted, list_lines, show

ROWS = 50


def rooms(pages: PageRoutes) -> None:
    """`/logs`."""

    @pages.at("/logs", of_tenants=True)
    async def logs(look: PageRequest) -> Response:
        asked = _asked(look)
        before = number(look.query.get("before"))
        found, opened = await asyncio.gather(_listed(look, asked, before), _opened(look))
        lines = found.value.items if found and found.value else []
        return look.page(
            "logs.html",
            asked=asked,
            found=found,
            lines=lines,
            next=found.value.next if found and found.value else None,
            opened=opened,
            levels=facets(asked.terms, "level", [(level, None) for level in reversed(LEVELS)]),
            sentence=_sentence(look, asked, found),
            about=partial(toggled, (), negated=False),
            more=partial(toggled, asked.terms, negated=False),
            kept=look.house.settings.keep_logs,
            retention=look.house.settings.log_retention,
            window=WINDOW,
            copies=copies(
                look,
                cli=["log", "list", *(["--", asked.text] if asked.text else [])],
                path="logs",
                query={"q": asked.text},
            ),
        )


def _asked(look: PageRequest) -> SearchForm[LogFilter]:
    """The search of the address, for what is theirs."""
    asked = asked_for(look, LOG_FIELDS, lines_wanted)
    if asked.wanted is None:
        return asked
    tenant = asked.wanted.tenant or look.query.get("tenant") or None
    return replace(asked, wanted=replace(asked.wanted, tenant=their_tenant(look.who, tenant)))


async def _listed(look: PageRequest, asked: SearchForm[LogFilter], before: int | None) -> Any:
    """None where the search makes no sense."""
    wanted = asked.wanted
    if wanted is None:
        return None
    key = ("logs", asked.text, wanted.tenant, before)
    return await look.see(key, partial(list_lines, wanted, limit=ROWS, before=before))


@dataclass(frozen=True, slots=True)
class OpenedLine:
    """The line beside the list; None where there is none, or it is not theirs."""

    number: str
    line: LogDetail | None
    context: str
    traceback: tracebacks.Traceback | None
    copies: dict[str, str]


async def _opened(look: PageRequest) -> OpenedLine | None:
    asked = look.query.get("line")
    if not asked:
        return None
    wanted = number(asked)
    if wanted is None:
        return OpenedLine(asked[:30], None, "", None, {})
    seen = await look.see(("line", wanted), partial(_one, wanted), fresh=30.0, keep=False)
    line = seen.value
    if line is None or look.who.tenant not in (None, line.tenant):
        return OpenedLine(str(wanted), None, "", None, {})
    return OpenedLine(
        str(wanted),
        line,
        json.dumps(line.context, indent=2, ensure_ascii=False) if line.context else "",
        tracebacks.read(line.traceback),
        copies(look, cli=["log", "show", str(wanted)], path=f"logs/{wanted}"),
    )


def _one(line: int) -> Operation[LogDetail | None]:
    try:
        return (yield from show(line))
    except ConfigurationError:
        return None


def _sentence(look: PageRequest, asked: SearchForm[LogFilter], found: Any) -> str:
    if asked.problem is not None:
        return look.say("This search is not understood.")
    if found is None or found.value is None:
        return look.say("The database does not answer in time.")
    page = found.value
    if asked.terms:
        if page.next is not None:
            return look.say("More than %(count)s lines match: here are the newest.", count=len(page.items))
        if len(page.items) == 1:
            return look.say("One line matches.")
        return look.say("%(count)s lines match.", count=len(page.items)) if page.items else look.say("No line matches.")
    if not page.items:
        return look.say("Nobody has said anything that is kept.")
    bad = sum(line.level in ("error", "critical") for line in page.items)
    if not bad:
        return look.say("No error among the newest %(count)s lines.", count=len(page.items))
    return look.say("%(bad)s errors among the newest %(count)s lines.", bad=bad, count=len(page.items))

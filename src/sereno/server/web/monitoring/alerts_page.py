"""Alerts: open ones, past ones, and the rules that notify people."""

import asyncio
from functools import partial
from typing import Any

from msgspec.structs import asdict
from starlette.responses import Response

from sereno.channels.contract import IN_APP
from sereno.monitoring.alerts.condition import LEVELS
from sereno.monitoring.alerts.operations import list_alerts, list_rules
from sereno.monitoring.alerts.rows import AlertRow, RuleLine
from sereno.monitoring.alerts.rule import LOG_LEVELS, NAMED_KINDS
from sereno.monitoring.alerts.sender import BUILT_IN
from sereno.server.web.command_examples import copies
from sereno.server.web.cursor import number
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.times import length

ROWS = 50
MOST_OPEN = 100


def routes(pages: PageRoutes) -> None:
    """`/alerts`."""

    @pages.at("/alerts")
    async def alerts(page: PageRequest) -> Response:
        before = number(page.query.get("before"))
        rule = page.query.get("rule", "")[:100].replace("\x00", "") or None
        open_ones, past, rules = await asyncio.gather(
            page.load(("alerts", True, rule), partial(list_alerts, MOST_OPEN + 1, rule=rule, is_open=True)),
            page.load(
                ("alerts", False, rule, before), partial(list_alerts, ROWS + 1, before, rule=rule, is_open=False)
            ),
            page.load("alert rules", list_rules),
        )
        lines = (past.value or [])[:ROWS]
        return page.render(
            "alerts.html",
            open_ones=open_ones,
            opened=(open_ones.value or [])[:MOST_OPEN],
            past=past,
            lines=lines,
            next=lines[-1].id if len(past.value or []) > ROWS else None,
            rules=rules,
            wants=partial(_wants, page),
            fields=_fields,
            took=_took,
            kinds=NAMED_KINDS,
            levels=LEVELS,
            log_levels=LOG_LEVELS,
            channels=_channels(page),
            sentence=_sentence(page, open_ones.value),
            rule=rule,
            copies=copies(page, cli=["alert", "list"], path="alerts", query={"rule": rule}),
        )


def _channels(page: PageRequest) -> list[str]:
    """Return the channels that reach people outside: those of the application, and those that need only an address."""
    return sorted({*page.context.app.channels.known, *BUILT_IN} - {IN_APP})


def _sentence(page: PageRequest, found: list[AlertRow] | None) -> str:
    if found is None:
        return page.say("The database does not respond in time.")
    if not found:
        return page.say("No alert is open.")
    if len(found) == 1:
        return page.say("One alert is open.")
    more = "+" if len(found) > MOST_OPEN else ""
    return page.say("%(count)s alerts are open.", count=f"{min(len(found), MOST_OPEN)}{more}")


def _took(row: AlertRow) -> float | None:
    return None if row.resolved_at is None else max(0.0, (row.resolved_at - row.opened_at).total_seconds())


def _wants(page: PageRequest, rule: RuleLine) -> str:
    """Return in words what a rule notifies of."""
    if rule.log is not None:
        text = page.say(
            "%(count)s log lines within %(time)s: %(level)s",
            count=rule.log.count,
            time=length(rule.log.within),
            level=page.say(rule.log.level),
        )
        text += f", {rule.log.event}" if rule.log.event else ""
    elif rule.kinds is None:
        text = page.say("everything")
    else:
        text = ", ".join(rule.kinds)
    of = [f"{name} {value}" for name in ("tenant", "queue", "task") if (value := getattr(rule, name))]
    return " · ".join([text, *of])


def _fields(rule: RuleLine) -> dict[str, Any]:
    """Return the fields of a form as the API takes them. Masked addresses stay unchanged when submitted."""
    return {
        "name": rule.name,
        "to": [{"channel": each.channel, "address": each.address} for each in rule.to],
        "kinds": rule.kinds,
        "log": None if rule.log is None else asdict(rule.log),
        **{
            name: getattr(rule, name)
            for name in ("level", "tenant", "queue", "task", "for_seconds", "again_seconds", "enabled", "note")
        },
    }

"""Preferences: event types, the defaults of a tenant, and critical events that cannot be refused."""

from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from sereno.database.statement import Operation
from sereno.duration import duration_text, seconds
from sereno.notifications import queries as notification_queries
from sereno.notifications.event import EventDefinition
from sereno.notifications.rows import PreferenceRow
from sereno.server.shared.event_types import known_kinds
from sereno.server.shared.tenant_scope import their_tenant
from sereno.server.web.command_examples import copies
from sereno.server.web.notifications.page_parts import AT_ONCE, tabs
from sereno.server.web.notifications.preference_matrix import as_line, matrix
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.text import check_text


def routes(pages: PageRoutes) -> None:
    """`/preferences`."""

    @pages.at("/preferences", of_tenants=True)
    async def preferences(page: PageRequest) -> Response:
        tenant = their_tenant(page.who, page.query.get("tenant") or None)
        found = await page.load(("preferences", tenant), partial(_defaults, tenant), fresh=AT_ONCE)
        kinds = known_kinds(page.context)
        definitions: dict[str, EventDefinition] = page.context.app.notifications.definitions
        return page.render(
            "preferences.html",
            tabs=tabs(page),
            tenant=tenant,
            found=found,
            rows=[as_line(each) for each in found.value or []],
            matrix=matrix(page, kinds, found.value or [], None),
            kinds=[_kind(page, definitions[name]) for name in sorted(definitions)],
            sentence=_sentence(page, definitions),
            whose=f"?{urlencode({'tenant': tenant})}" if tenant else "",
            copies=copies(page, cli=None, path="preferences", query={"tenant": tenant}),
        )


def _defaults(tenant: str | None) -> Operation[list[PreferenceRow]]:
    check_text("tenant", tenant)
    return (yield from notification_queries.preferences(None, tenant=tenant))


def _sentence(page: PageRequest, definitions: dict[str, EventDefinition]) -> str:
    if not definitions:
        return page.say("The application declares no event.")
    critical = sum(each.critical for each in definitions.values())
    opt_in = sum(each.opt_in for each in definitions.values())
    return page.say(
        "Event types: %(count)s; always sent: %(critical)s; opt-in: %(opt_in)s.",
        count=len(definitions),
        critical=critical,
        opt_in=opt_in,
    )


def _kind(page: PageRequest, each: EventDefinition) -> dict[str, Any]:
    channels, note = page.context.app.channels.resolve(each.channels)
    return {
        "name": each.name,
        "category": each.category,
        "channels": channels,
        "note": note,
        "critical": each.critical,
        "opt_in": each.opt_in,
        "ttl": None if each.ttl is None else duration_text(each.ttl),
        "throttle": each.throttle and (each.throttle.most, duration_text(seconds(each.throttle.per))),
        "digest": each.digest and duration_text(seconds(each.digest.window)),
        "steps": [(step.first, step.second, duration_text(step.after)) for step in each.steps],
    }

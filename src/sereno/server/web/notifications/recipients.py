"""Recipients: the list; and one recipient, with preferences and why they were notified, or were not."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from sereno.access.masking import masked as hidden
from sereno.jobs.filters import DeliveryFilter
from sereno.notifications import event_types
from sereno.notifications import operations as notifications
from sereno.notifications import queries as notification_queries
from sereno.notifications.operations import RecipientDetail, masked
from sereno.notifications.rows import AddressRow, PreferenceRow, RecipientLine
from sereno.notifications.search_fields import RECIPIENT_FIELDS
from sereno.notifications.why import why_event, why_notification
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.cache import Cached
from sereno.server.shared.event_types import known_kinds
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import their_tenant
from sereno.server.web.command_examples import copies
from sereno.server.web.notifications import queries
from sereno.server.web.notifications.page_parts import AT_ONCE, number_of, tabs
from sereno.server.web.notifications.preference_matrix import as_line, matrix, span_text
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, listed, search_params_for

ROWS = 50
LAST = 15
MOST_TYPES = 50
TYPES_FRESH = 30.0
LONGEST_DATA = 10_000
# States of an address in the order of the list.
ADDRESS_STATES = ("active", "unverified", "invalid", "unsubscribed")


def routes(pages: PageRoutes) -> None:
    """`/recipients`, `/recipient?key=…&tenant=…`."""

    @pages.at("/recipients", of_tenants=True)
    async def recipients(page: PageRequest) -> Response:
        tenant, form = (
            their_tenant(page.who, page.query.get("tenant") or None),
            search_params_for(page, RECIPIENT_FIELDS),
        )
        before = number_of(page.query.get("before"))
        wanted = partial(
            notifications.list_recipients, tenant=tenant, search_params=form.wanted, limit=ROWS + 1, before=before
        )
        found = await listed(page, form, ("recipients", tenant, before), wanted)
        lines = (found.value or [])[:ROWS]
        is_last = len(found.value or []) <= ROWS
        return page.render(
            "recipients.html",
            tabs=tabs(page),
            form=form,
            tenant=tenant,
            found=found,
            lines=lines,
            next=None if is_last else lines[-1].id,
            sentence=_sentence(page, form, lines, is_whole=is_last and before is None),
            copies=_copies(page, form.text, tenant),
        )

    @pages.at("/recipient", of_tenants=True)
    async def recipient(page: PageRequest) -> Response:
        key = page.query.get("key", "")
        tenant = their_tenant(page.who, page.query.get("tenant") or None)
        seen = await page.load(
            ("recipient", key, tenant), partial(queries.recipient, key, tenant), fresh=AT_ONCE, keep=False
        )
        if seen.value is None and not seen.is_missing:
            raise not_found(f"recipient {key!r:.80}")
        return page.render(
            "recipient.html",
            tabs=tabs(page),
            key=key,
            tenant=tenant,
            seen=seen,
            **await _shown(page, key, tenant, seen),
        )


def _sentence(
    page: PageRequest, form: SearchForm[SearchParams | None], lines: Sequence[RecipientLine], *, is_whole: bool
) -> str:
    if form.problem:
        return page.say("The search is invalid.")
    if not lines:
        return page.say("No recipient matches.") if page.query.get("q") else page.say("There is no recipient yet.")
    alone = sum(not line.channels for line in lines)
    if is_whole:
        who = page.say("One recipient") if len(lines) == 1 else page.say("%(count)s recipients", count=len(lines))
    else:
        who = page.say("%(count)s recipients on this page", count=len(lines))
    if not alone:
        return page.say("%(who)s; all of them can be reached.", who=who)
    return page.say("%(who)s; %(count)s without an active address.", who=who, count=figure(alone))


async def _shown(
    page: PageRequest, key: str, tenant: str | None, seen: Cached[RecipientDetail | None]
) -> dict[str, Any]:
    """Return what is shown of a recipient, with addresses masked."""
    if seen.value is None:
        return {"detail": None}
    form = page.query.get("why", "").strip()
    mine = DeliveryFilter(recipient=key, tenant=tenant)
    last, types, declared, reasons = await asyncio.gather(
        page.load(("deliveries", str(mine), LAST), partial(queries.deliveries, mine, LAST, None)),
        page.load("event types", partial(notification_queries.types, MOST_TYPES), fresh=TYPES_FRESH),
        page.load("declared types", event_types.declared_types, fresh=TYPES_FRESH),
        _why(page, key, tenant, form) if form else _nothing(),
    )
    detail, kinds = seen.value, known_kinds(page.context)
    quiet = _quiet(detail.preferences)
    # Event types of other tenants are private: for a tenant's user only the declared types.
    lately = (types.value or []) if page.who.tenant is None else []
    data = json.loads(bytes(detail.recipient.data))
    whose = f"?{urlencode({'tenant': tenant})}" if tenant else ""
    return {
        "detail": detail,
        "person": detail.recipient,
        "addresses": [(each, masked(each.address)) for each in sorted(detail.addresses, key=_first)],
        "data": json.dumps(hidden(data), ensure_ascii=False, indent=2)[:LONGEST_DATA] if data else "",
        "matrix": matrix(page, kinds, detail.preferences, key),
        "preferences": [as_line(each) for each in detail.preferences],
        "quiet": quiet,
        "quiet_spans": [span_text(span) for span in (quiet.quiet if quiet else None) or ()],
        "quiet_elsewhere": [_scoped_hours(row) for row in detail.preferences if row.quiet and _scope(row)],
        "last": last,
        "types": sorted({*kinds, *lately}),
        "sendable": sorted({*kinds, *(declared.value or [])}),
        "form": form,
        "reasons": None if reasons is None else [hidden(each) for each in reasons],
        "hide": hidden,
        "sentence": _about(page, detail),
        "api": f"recipients/{quote(key, safe='')}",
        "whose": whose,
        "copies": copies(
            page,
            cli=["recipient", "show", key, *(["--tenant", tenant] if tenant else [])],
            path=f"recipients/{quote(key, safe='')}",
            query={"tenant": tenant},
        ),
    }


def _first(address: AddressRow) -> tuple[int, int]:
    known = ADDRESS_STATES.index(address.state) if address.state in ADDRESS_STATES else len(ADDRESS_STATES)
    return known, address.id


async def _nothing() -> None:
    return None


async def _why(page: PageRequest, key: str, tenant: str | None, form: str) -> Sequence[str] | None:
    """Return the explanation for an event by its id, or for an event type."""
    number = number_of(form)
    if number is not None:
        found = await page.load(("why event", number, key, tenant), partial(why_event, number, key, tenant=tenant))
        return found.value or [page.say("There is no event %(id)s for them.", id=number)]
    known = known_kinds(page.context)
    return (
        await page.load(("why", form, key, tenant), partial(why_notification, key, form, tenant=tenant, known=known))
    ).value


def _about(page: PageRequest, detail: RecipientDetail) -> str:
    active = sorted({each.channel for each in detail.addresses if each.state == "active"})
    key = detail.recipient.key
    if active:
        return page.say("%(key)s can be reached by %(channels)s.", key=key, channels=", ".join(active))
    return page.say("%(key)s has no active address: only the inbox reaches them.", key=key)


def _quiet(rows: Sequence[PreferenceRow]) -> PreferenceRow | None:
    """Return the first row with quiet hours for everything, which decides."""
    return next((row for row in rows if row.quiet is not None and not _scope(row)), None)


def _scope(row: PreferenceRow) -> str:
    """Return the event type, category and channel that a preference is about; empty if it is about everything."""
    return " · ".join(name for name in (row.event, row.category, row.channel) if name)


def _scoped_hours(row: PreferenceRow) -> str:
    return f"{_scope(row)} {', '.join(span_text(span) for span in row.quiet or ())}"


def _copies(page: PageRequest, text: str, tenant: str | None) -> dict[str, str]:
    cli = ["recipient", "list", *([f"--search={text}"] if text else []), *(["--tenant", tenant] if tenant else [])]
    return copies(page, cli=cli, path="recipients", query={"q": text, "tenant": tenant})

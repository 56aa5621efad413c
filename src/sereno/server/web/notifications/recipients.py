"""Recipients: whom to tell; and somebody, with what they want and why they were told, or were not."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from sereno.access.masking import masked as hidden
from sereno.notifications import operations as notifications
from sereno.notifications import queries as notification_queries
from sereno.notifications.operations import RecipientDetail, masked
from sereno.notifications.rows import AddressRow, DeliveryFilter, PreferenceRow, RecipientLine
from sereno.notifications.why import why_event, why_post
from sereno.search.search_filter import RECIPIENT_FIELDS
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.cache import Cached
from sereno.server.shared.event_types import known_kinds
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import their_tenant
from sereno.server.web.command_examples import copies
from sereno.server.web.notifications import queries as post_looks
from sereno.server.web.notifications.page_parts import AT_ONCE, number_of, tabs
from sereno.server.web.notifications.preference_matrix import as_line, matrix, spoken
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, listed, sought_for
from sereno.server.web.times import figure

ROWS = 50
LAST = 15
MOST_TYPES = 50
TYPES_FRESH = 30.0
LONGEST_DATA = 10_000
# Of an address: what works comes first.
ADDRESS_STATES = ("active", "unverified", "invalid", "unsubscribed")


def rooms(pages: PageRoutes) -> None:
    """`/recipients`, `/recipient?key=…&tenant=…`."""

    @pages.at("/recipients", of_tenants=True)
    async def recipients(look: PageRequest) -> Response:
        tenant, asked = their_tenant(look.who, look.query.get("tenant") or None), sought_for(look, RECIPIENT_FIELDS)
        before = number_of(look.query.get("before"))
        wanted = partial(
            notifications.list_recipients, tenant=tenant, sought=asked.wanted, limit=ROWS + 1, before=before
        )
        found = await listed(look, asked, ("recipients", tenant, before), wanted)
        lines = (found.value or [])[:ROWS]
        is_last = len(found.value or []) <= ROWS
        return look.page(
            "recipients.html",
            tabs=tabs(look),
            asked=asked,
            tenant=tenant,
            found=found,
            lines=lines,
            next=None if is_last else lines[-1].id,
            sentence=_sentence(look, asked, lines, is_whole=is_last and before is None),
            copies=_copies(look, asked.text, tenant),
        )

    @pages.at("/recipient", of_tenants=True)
    async def recipient(look: PageRequest) -> Response:
        key = look.query.get("key", "")
        tenant = their_tenant(look.who, look.query.get("tenant") or None)
        seen = await look.see(
            ("recipient", key, tenant), partial(post_looks.recipient, key, tenant), fresh=AT_ONCE, keep=False
        )
        if seen.value is None and not seen.is_missing:
            raise not_found(f"recipient {key!r:.80}")
        return look.page(
            "recipient.html",
            tabs=tabs(look),
            key=key,
            tenant=tenant,
            seen=seen,
            **await _shown(look, key, tenant, seen),
        )


def _sentence(
    look: PageRequest, asked: SearchForm[SearchParams | None], lines: Sequence[RecipientLine], *, is_whole: bool
) -> str:
    if asked.problem:
        return look.say("This search is not understood.")
    if not lines:
        return look.say("Nobody matches.") if look.query.get("q") else look.say("There is nobody to tell yet.")
    alone = sum(not line.channels for line in lines)
    if is_whole:
        who = look.say("One recipient") if len(lines) == 1 else look.say("%(count)s recipients", count=len(lines))
    else:
        who = look.say("%(count)s recipients on this page", count=len(lines))
    if not alone:
        return look.say("%(who)s; all of them can be reached.", who=who)
    return look.say("%(who)s; %(count)s without an active address.", who=who, count=figure(alone))


async def _shown(
    look: PageRequest, key: str, tenant: str | None, seen: Cached[RecipientDetail | None]
) -> dict[str, Any]:
    """All that is shown of somebody. Their addresses are masked."""
    if seen.value is None:
        return {"detail": None}
    asked = look.query.get("why", "").strip()
    mine = DeliveryFilter(recipient=key, tenant=tenant)
    last, types, said = await asyncio.gather(
        look.see(("deliveries", str(mine), LAST), partial(post_looks.deliveries, mine, LAST, None)),
        look.see("event types", partial(notification_queries.types, MOST_TYPES), fresh=TYPES_FRESH),
        _why(look, key, tenant, asked) if asked else _nothing(),
    )
    detail, kinds = seen.value, known_kinds(look.house)
    quiet = _quiet(detail.preferences)
    # What other tenants are told of is nobody's business: of those, the declared kinds alone.
    lately = (types.value or []) if look.who.tenant is None else []
    data = json.loads(bytes(detail.recipient.data))
    whose = f"?{urlencode({'tenant': tenant})}" if tenant else ""
    return {
        "detail": detail,
        "person": detail.recipient,
        "addresses": [(each, masked(each.address)) for each in sorted(detail.addresses, key=_first)],
        "data": json.dumps(hidden(data), ensure_ascii=False, indent=2)[:LONGEST_DATA] if data else "",
        "matrix": matrix(look, kinds, detail.preferences, key),
        "preferences": [as_line(each) for each in detail.preferences],
        "quiet": quiet,
        "quiet_spans": [spoken(span) for span in (quiet.quiet if quiet else None) or ()],
        "last": last,
        "types": sorted({*kinds, *lately}),
        "asked": asked,
        "said": None if said is None else [hidden(each) for each in said],
        "hide": hidden,
        "sentence": _about(look, detail),
        "api": f"recipients/{quote(key, safe='')}",
        "whose": whose,
        "copies": copies(
            look,
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


async def _why(look: PageRequest, key: str, tenant: str | None, asked: str) -> Sequence[str] | None:
    """Of one event by its number, or of a kind."""
    number = number_of(asked)
    if number is not None:
        found = await look.see(("why event", number, key, tenant), partial(why_event, number, key, tenant=tenant))
        return found.value or [look.say("There is no event %(id)s for them.", id=number)]
    known = known_kinds(look.house)
    return (
        await look.see(("why", asked, key, tenant), partial(why_post, key, asked, tenant=tenant, known=known))
    ).value


def _about(look: PageRequest, detail: RecipientDetail) -> str:
    active = sorted({each.channel for each in detail.addresses if each.state == "active"})
    key = detail.recipient.key
    if active:
        return look.say("%(key)s can be reached by %(channels)s.", key=key, channels=", ".join(active))
    return look.say("%(key)s has no active address: only the inbox reaches them.", key=key)


def _quiet(rows: Sequence[PreferenceRow]) -> PreferenceRow | None:
    """The row whose quiet hours hold for everything, if there is one; the first decides."""
    whole = (row for row in rows if row.quiet is not None and not (row.event or row.category or row.channel))
    return next(whole, None)


def _copies(look: PageRequest, text: str, tenant: str | None) -> dict[str, str]:
    cli = ["recipient", "list", *([f"--search={text}"] if text else []), *(["--tenant", tenant] if tenant else [])]
    return copies(look, cli=cli, path="recipients", query={"q": text, "tenant": tenant})

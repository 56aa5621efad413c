"""Deliveries: a list with filters in the query, details of one of them, and requeue."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

from starlette.responses import Response

from sereno.access.masking import masked as hidden
from sereno.archive.queries import ArchivedLocation
from sereno.jobs.filters import DeliveryFilter
from sereno.notifications.deliveries.delivery import State
from sereno.notifications.deliveries.lists import searches_newest
from sereno.notifications.operations import DeliveryDetail, masked
from sereno.notifications.rows import DeliveryLine
from sereno.notifications.search_fields import DELIVERY_FIELDS
from sereno.notifications.why import why_event
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.cache import Cached
from sereno.server.shared.tenant_scope import their_tenant
from sereno.server.web.archive.archived import archived
from sereno.server.web.command_examples import copies
from sereno.server.web.notifications import queries
from sereno.server.web.notifications.page_parts import AT_ONCE, known_types, number_of, tabs
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, search_params_for

ROWS = 50
STATES: tuple[str, ...] = get_args(State)
# States that are requeued by default.
FAILED = ("failed", "dead")
LONGEST_PAYLOAD = 20_000
TEXTS = ("channel", "recipient", "type", "subject")


@dataclass(frozen=True, slots=True)
class DeliveryDrawer:
    """What is shown of one delivery, with its address masked. `detail`: None if it does not exist."""

    number: str
    detail: DeliveryDetail | None = None
    is_busy: bool = False
    age: float = 0.0
    why: Sequence[str] = ()
    address: str | None = None
    payload: str = ""
    copies: dict[str, str] | None = None
    # Where it is or may be, if it is no longer in the database.
    archived: Sequence[ArchivedLocation] = ()

    @property
    def can_be_sent_again(self) -> bool:
        return self.detail is not None and self.detail.delivery.state in FAILED


def routes(pages: PageRoutes) -> None:
    """`/deliveries`."""

    @pages.at("/deliveries", of_tenants=True)
    async def deliveries(page: PageRequest) -> Response:
        form = search_params_for(page, DELIVERY_FIELDS)
        wanted = replace(_named(page), search_params=form.wanted)
        before = number_of(page.query.get("before"))
        opened = page.query.get("delivery")
        found, drawer = await asyncio.gather(
            _listed(page, form, wanted, before),
            _drawer(page, opened) if opened else _nothing(),
        )
        lines = (found.value or [])[:ROWS]
        is_last = len(found.value or []) <= ROWS
        return page.render(
            "deliveries.html",
            tabs=tabs(page),
            form=form,
            wanted=wanted,
            is_filtered=bool(form.terms) or any(page.query.get(name) for name in (*TEXTS, "state", "event", "tenant")),
            is_of_newest=searches_newest(wanted),
            is_nobody=found.value is None and not found.is_missing,
            states=STATES,
            types=known_types(page),
            channels=sorted(page.context.app.channels.known),
            found=found,
            lines=lines,
            next=None if is_last else lines[-1].id,
            sentence=_sentence(page, form, wanted, lines, is_whole=is_last and before is None),
            drawer=drawer,
            hide=hidden,
            failed=FAILED,
            bulk=_bulk(wanted),
            copies=_copies(page, wanted),
        )


def _named(page: PageRequest) -> DeliveryFilter:
    """Return the filter in the query, without its search, limited to the user's tenant; invalid values are ignored."""
    states = [state for state in page.query.get("state", "").split(",") if state in STATES]
    channel, recipient, kind, subject = (page.query.get(name, "").strip() or None for name in TEXTS)
    return DeliveryFilter(
        tuple(states) or None,
        channel,
        recipient,
        number_of(page.query.get("event")),
        their_tenant(page.who, page.query.get("tenant") or None),
        type=kind,
        subject=subject,
    )


def _sentence(
    page: PageRequest,
    form: SearchForm[SearchParams | None],
    wanted: DeliveryFilter,
    lines: Sequence[DeliveryLine],
    *,
    is_whole: bool,
) -> str:
    if form.problem:
        return page.say("The search is invalid.")
    if not lines:
        return page.say("No delivery matches.") if not wanted.is_empty else page.say("No delivery yet.")
    failed = sum(line.state in FAILED for line in lines)
    count = figure(len(lines))
    if is_whole:
        what = page.say("One delivery") if len(lines) == 1 else page.say("%(count)s deliveries", count=count)
    else:
        what = page.say("%(count)s deliveries on this page", count=count)
    if not failed:
        return page.say("%(deliveries)s; none needs attention.", deliveries=what)
    if failed == 1:
        return page.say("%(deliveries)s; one failed and needs attention.", deliveries=what)
    return page.say("%(deliveries)s; %(failed)s failed and need attention.", deliveries=what, failed=figure(failed))


async def _listed(
    page: PageRequest, form: SearchForm[SearchParams | None], wanted: DeliveryFilter, before: int | None
) -> Cached[list[DeliveryLine] | None]:
    """Return the rows; none for an invalid search, and None for an unknown recipient."""
    if form.problem is not None:
        return Cached([])
    key = ("deliveries", str(replace(wanted, search_params=None)), before, form.text)
    return await page.load(key, partial(queries.deliveries, wanted, ROWS + 1, before))


async def _nothing() -> None:
    return None


async def _drawer(page: PageRequest, text: str) -> DeliveryDrawer:
    """Return the details of a delivery; one of another tenant is treated as missing."""
    number = number_of(text)
    if number is None:
        return DeliveryDrawer(text[:30])
    seen = await page.load(("delivery", number), partial(queries.delivery, number), fresh=AT_ONCE, keep=False)
    if seen.is_missing:
        return DeliveryDrawer(text, is_busy=True)
    if seen.value is None:
        return DeliveryDrawer(text, archived=await archived(page, "delivery", number))
    if page.who.tenant not in (None, seen.value.delivery.tenant):
        return DeliveryDrawer(text)
    row = seen.value.delivery
    reasons: Sequence[str] = ()
    if row.recipient is not None:
        key = ("why delivery", row.event_id, row.recipient, row.tenant)
        explain = partial(why_event, row.event_id, row.recipient, tenant=row.tenant)
        reasons = (await page.load(key, explain, fresh=AT_ONCE)).value or ()
    return DeliveryDrawer(
        str(number),
        seen.value,
        age=seen.age,
        # The text of a provider may contain an address.
        why=[hidden(each) for each in reasons],
        address=None if row.address is None else masked(row.address),
        payload=_payload(bytes(row.payload)),
        copies=copies(page, cli=["delivery", "show", str(number)], path=f"deliveries/{number}"),
    )


def _payload(raw: bytes) -> str:
    return json.dumps(hidden(json.loads(raw)), ensure_ascii=False, indent=2)[:LONGEST_PAYLOAD]


def _bulk(wanted: DeliveryFilter) -> dict[str, Any] | None:
    """Return the requeueable part of this list as the API takes it; None where there is none."""
    states = [state for state in FAILED if wanted.states is None or state in wanted.states]
    return {**wanted.as_detail(), "states": states, "all": True} if states else None


def _copies(page: PageRequest, wanted: DeliveryFilter) -> dict[str, str]:
    given = {name: value for name, value in wanted.as_detail().items() if name != "states"}
    states = list(wanted.states or ())
    cli = ["delivery", "list"]
    for name, value in given.items():
        cli += [f"--{name}", str(value)] if name != "q" else []
    for state in states:
        cli += ["--state", state]
    cli += ["--", str(given["q"])] if "q" in given else []
    return copies(page, cli=cli, path="deliveries", query={**given, "state": states or None})

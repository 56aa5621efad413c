"""Bulk changes in the background: how far each is, and how it is stopped."""

from functools import partial
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from sereno.bulk import operations as bulk
from sereno.bulk.store import BulkOperation
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import check_theirs
from sereno.server.web import cursor
from sereno.server.web.command_examples import copies
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.times import figure

ROWS = 50


def rooms(pages: PageRoutes) -> None:
    """`/operations`, `/operation?id=…`."""

    @pages.at("/operations", of_tenants=True)
    async def operations(look: PageRequest) -> Response:
        wanted = look.query.get("id")
        if wanted is not None:
            return RedirectResponse(f"{look.base}operation?{urlencode({'id': wanted})}", HTTPStatus.SEE_OTHER)
        before, tenant = cursor.number(look.query.get("before")), look.who.tenant
        found = await look.see(
            ("operations", tenant, before), partial(bulk.list_operations, ROWS + 1, before, tenant=tenant)
        )
        lines = (found.value or [])[:ROWS]
        return look.page(
            "operations.html",
            found=found,
            lines=lines,
            next=lines[-1].id if len(found.value or []) > ROWS else None,
            sentence=_sentence(look, lines),
            share=share,
            told=partial(_told, look),
            copies=copies(look, cli=["operation", "list"], path="operations"),
        )

    @pages.at("/operation", of_tenants=True)
    async def operation(look: PageRequest) -> Response:
        wanted = look.query.get("id", "")
        number = cursor.number(wanted)
        if number is None:
            raise not_found(f"operation {wanted:.30}")
        found = await look.see(("operation", number), partial(bulk.show, number))
        if found.value is None and not found.is_missing:
            raise not_found(f"operation {number}")
        if found.value is not None:
            check_theirs(look.who, found.value.tenant, f"operation {number}")
        return look.page(
            "operation.html",
            found=found,
            share=share,
            told=partial(_told, look),
            copies=copies(look, cli=["operation", "show", str(number)], path=f"operations/{number}"),
        )


def share(one: BulkOperation) -> float | None:
    """How far it is, from 0 to 1; None where nobody knows."""
    if one.state == "done":
        return 1.0
    if not one.total or not one.total_exact:
        return None
    return min(1.0, (one.done + one.asked_to_stop + one.left_alone) / one.total)


def _told(look: PageRequest, one: BulkOperation) -> str:
    """What it does and how far it is, in words."""
    words = {
        "job.retry": look.say("jobs retried"),
        "job.cancel": look.say("jobs cancelled"),
        "job.delete": look.say("jobs deleted"),
        "schedule.pause": look.say("schedules paused"),
        "schedule.resume": look.say("schedules resumed"),
        "schedule.disable": look.say("schedules disabled"),
        "schedule.delete": look.say("schedules deleted"),
        "schedule.spread": look.say("schedules spread"),
        "delivery.requeue": look.say("deliveries sent again"),
    }
    done, what = figure(one.done + one.asked_to_stop), words.get(one.action, one.action)
    if one.total is None:
        return look.say("%(done)s %(what)s.", done=done, what=what)
    total = figure(one.total) + ("" if one.total_exact else "+")
    return look.say("%(done)s of %(total)s %(what)s.", done=done, total=total, what=what)


def _sentence(look: PageRequest, lines: list[BulkOperation]) -> str:
    open_ones = sum(not line.is_over for line in lines)
    if not lines:
        return look.say("No bulk change yet.")
    if not open_ones:
        return look.say("No bulk change is under way.")
    if open_ones == 1:
        return look.say("One bulk change is under way.")
    return look.say("%(count)s bulk changes are under way.", count=figure(open_ones))

"""Bulk changes in the background: the progress of each, and how to stop it."""

from functools import partial
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from sereno.bulk import operations as bulk
from sereno.jobs.rows import BulkOperation
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import check_theirs
from sereno.server.web import cursor
from sereno.server.web.command_examples import copies
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes

ROWS = 50


def routes(pages: PageRoutes) -> None:
    """`/operations`, `/operation?id=…`."""

    @pages.at("/operations", of_tenants=True)
    async def operations(page: PageRequest) -> Response:
        wanted = page.query.get("id")
        if wanted is not None:
            return RedirectResponse(f"{page.base}operation?{urlencode({'id': wanted})}", HTTPStatus.SEE_OTHER)
        before, tenant = cursor.number(page.query.get("before")), page.who.tenant
        found = await page.load(
            ("operations", tenant, before), partial(bulk.list_operations, ROWS + 1, before, tenant=tenant)
        )
        lines = (found.value or [])[:ROWS]
        return page.render(
            "operations.html",
            found=found,
            lines=lines,
            next=lines[-1].id if len(found.value or []) > ROWS else None,
            sentence=_sentence(page, lines),
            share=share,
            progress_text=partial(_progress_text, page),
            copies=copies(page, cli=["operation", "list"], path="operations"),
        )

    @pages.at("/operation", of_tenants=True)
    async def operation(page: PageRequest) -> Response:
        wanted = page.query.get("id", "")
        number = cursor.number(wanted)
        if number is None:
            raise not_found(f"operation {wanted:.30}")
        found = await page.load(("operation", number), partial(bulk.show, number))
        if found.value is None and not found.is_missing:
            raise not_found(f"operation {number}")
        if found.value is not None:
            check_theirs(page.who, found.value.tenant, f"operation {number}")
        return page.render(
            "operation.html",
            found=found,
            share=share,
            progress_text=partial(_progress_text, page),
            copies=copies(page, cli=["operation", "show", str(number)], path=f"operations/{number}"),
        )


def share(one: BulkOperation) -> float | None:
    """Return the progress from 0 to 1; None where unknown."""
    if one.state == "done":
        return 1.0
    if not one.total or not one.total_exact:
        return None
    return min(1.0, (one.done + one.stop_requested + one.left_alone) / one.total)


def _progress_text(page: PageRequest, one: BulkOperation) -> str:
    """Return the action and its progress in words."""
    words = {
        "job.retry": page.say("jobs retried"),
        "job.cancel": page.say("jobs cancelled"),
        "job.delete": page.say("jobs deleted"),
        "schedule.pause": page.say("schedules paused"),
        "schedule.resume": page.say("schedules resumed"),
        "schedule.disable": page.say("schedules disabled"),
        "schedule.delete": page.say("schedules deleted"),
        "schedule.spread": page.say("schedules spread"),
        "delivery.requeue": page.say("deliveries sent again"),
    }
    done, what = figure(one.done + one.stop_requested), words.get(one.action, one.action)
    if one.total is None:
        return page.say("%(done)s %(what)s.", done=done, what=what)
    total = figure(one.total) + ("" if one.total_exact else "+")
    return page.say("%(done)s of %(total)s %(what)s.", done=done, total=total, what=what)


def _sentence(page: PageRequest, lines: list[BulkOperation]) -> str:
    open_ones = sum(not line.is_over for line in lines)
    if not lines:
        return page.say("No bulk change yet.")
    if not open_ones:
        return page.say("No bulk change is under way.")
    if open_ones == 1:
        return page.say("One bulk change is under way.")
    return page.say("%(count)s bulk changes are under way.", count=figure(open_ones))

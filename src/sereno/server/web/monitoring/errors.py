"""Errors: what fails, since when and for which tenants; one error group with its newest traceback, and actions."""

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from sereno.jobs.queries import error_groups
from sereno.jobs.queries.error_groups import ErrorGroup
from sereno.monitoring import error_operations
from sereno.monitoring.error_operations import ErrorDetail, Sort
from sereno.monitoring.search_fields import ERROR_FIELDS
from sereno.search.sql_terms import SearchParams
from sereno.server.shared.cache import Cached
from sereno.server.shared.http_error import not_found
from sereno.server.web import cursor
from sereno.server.web.charts import axes, svg
from sereno.server.web.charts.sparkline import spark
from sereno.server.web.charts.svg import ChartSeries
from sereno.server.web.command_examples import copies
from sereno.server.web.monitoring import tracebacks
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.search_form import SearchForm, listed, search_params_for
from sereno.server.web.times import clock

RANGES = ("1h", "24h", "7d", "30d")
SORTS: dict[str, Sort] = {"last": "last", "count": "count"}
ROWS = 50
FINGERPRINT_LENGTH = 12
# Dead letters per second that a retry starts, to spare the task.
RATE = 50


def routes(pages: PageRoutes) -> None:
    """`/errors`, `/error?fingerprint=…`. Messages are of any tenant: a tenant's users see theirs on the tenant page."""

    @pages.at("/errors", of_tenants=True)
    async def errors(page: PageRequest) -> Response:
        if page.who.tenant is not None:
            return _to_their_own(page)
        form, search = _filters(page), search_params_for(page, ERROR_FIELDS)
        found, quiet = await asyncio.gather(
            _groups(page, form, search, muted=False), _groups(page, form, search, muted=True)
        )
        lines = (found.value or [])[:ROWS]
        muted = [line for line in quiet.value or [] if line.muted_until is not None and line.muted_until > page.now]
        hit = await _breadth(page, [*lines, *muted], form["since"])
        return page.render(
            "errors.html",
            form=form,
            search=search,
            ranges=RANGES,
            found=found,
            lines=lines,
            next=form["skip"] + ROWS if len(found.value or []) > ROWS else None,
            # A search by this field shows them in the list itself.
            muted=[] if any(term.name == "muted" for term in search.terms) else muted[:ROWS],
            hit=hit,
            sentence=_sentence(page, search, lines, found),
            sparkline=partial(_sparkline, page),
            copies=_copies(page, form, search.text),
        )

    @pages.at("/error")
    async def error(page: PageRequest) -> Response:
        fingerprint = page.query.get("fingerprint", "")
        if len(fingerprint) != FINGERPRINT_LENGTH or not set(fingerprint) <= set("0123456789abcdef"):
            raise not_found(f"error {fingerprint!r:.30}")
        since = _range(page)
        found = await page.load(
            ("error", fingerprint, since), partial(error_operations.show, fingerprint, since=since), fresh=2.0
        )
        if found.value is None and not found.is_missing:
            raise not_found(f"error {fingerprint}")
        return page.render("error.html", **_one(page, fingerprint, since, found))


def _to_their_own(page: PageRequest) -> Response:
    return RedirectResponse(f"{page.base}tenant?{urlencode({'name': page.who.tenant})}#errors", HTTPStatus.SEE_OTHER)


def _filters(page: PageRequest) -> dict[str, Any]:
    skip = page.query.get("before", "")
    return {
        "since": _range(page),
        "task": page.query.get("task") or None,
        "tenant": page.query.get("tenant") or None,
        "sort": SORTS.get(page.query.get("sort", ""), "last"),
        "skip": min(cursor.number(skip) or 0, error_groups.MOST_GROUPS),
    }


def _range(page: PageRequest) -> str:
    wanted = page.query.get("range", "24h")
    return wanted if wanted in RANGES else "24h"


async def _groups(
    page: PageRequest, form: dict[str, Any], search: SearchForm[SearchParams | None], *, muted: bool
) -> Cached[list[ErrorGroup]]:
    wanted = {**form, "muted": muted, "skip": 0 if muted else form["skip"]}
    query = partial(error_operations.list_groups, **wanted, search_params=search.wanted, limit=ROWS + 1)
    return await listed(page, search, ("errors", *wanted.values()), query, fresh=2.0)


async def _breadth(page: PageRequest, lines: Sequence[ErrorGroup], since: str) -> dict[str, int]:
    """Return how many tenants each of them affected."""
    wanted = tuple(sorted({line.fingerprint for line in lines}))
    if not wanted:
        return {}
    key, length = ("breadth", since, wanted), error_operations.span(since)
    return (await page.load(key, partial(error_groups.breadth, wanted, length), fresh=10.0)).value or {}


def _sentence(
    page: PageRequest,
    search: SearchForm[SearchParams | None],
    lines: Sequence[ErrorGroup],
    found: Cached[list[ErrorGroup]],
) -> str:
    if search.problem:
        return page.say("The search is invalid.")
    if found.value is None:
        return page.say("The database does not respond in time.")
    if not lines:
        return page.say("No error matches.") if search.terms else page.say("No errors.")
    worst = max(lines, key=lambda line: line.count)
    if len(lines) == 1:
        return page.say("One error group: %(error)s in %(task)s.", error=worst.error_type, task=worst.task)
    count = figure(len(lines)) + ("+" if len(found.value) > ROWS else "")
    return page.say(
        "%(count)s error groups, most often %(error)s in %(task)s.",
        count=count,
        error=worst.error_type,
        task=worst.task,
    )


def _sparkline(page: PageRequest, line: ErrorGroup) -> Markup:
    return spark(line.hours, page.say("The last 24 hours, the newest last: %(count)s", count=figure(sum(line.hours))))


def _copies(page: PageRequest, form: dict[str, Any], text: str) -> dict[str, str]:
    words = ["error", "list", "--since", form["since"]]
    for name in ("task", "tenant"):
        words += [f"--{name}", form[name]] if form[name] else []
    words += ["--", text] if text else []
    query = {"q": text, **{name: form[name] for name in ("since", "task", "tenant", "sort")}}
    return copies(page, cli=words, path="errors", query=query)


def _one(page: PageRequest, fingerprint: str, since: str, found: Cached[ErrorDetail | None]) -> dict[str, Any]:
    detail = found.value
    search = detail.search if detail is not None else ""
    body = {"q": search, "all": True, "in_background": True}
    return {
        "fingerprint": fingerprint,
        "ranges": RANGES,
        "range": since,
        "found": found,
        "is_muted": detail is not None and (detail.group.muted_until or page.now) > page.now,
        "traceback": tracebacks.read(detail.sample.traceback) if detail is not None and detail.sample else None,
        "hours": _hours(page, detail, since) if detail is not None else "",
        "tries": _tries(detail.tries) if detail is not None else [],
        "tries_picture": _tries_picture(page, detail.tries) if detail is not None else "",
        "retry": body,
        "rate": RATE,
        "copies": copies(page, cli=["error", "show", fingerprint], path=f"errors/{fingerprint}"),
        "retry_copies": copies(
            page,
            cli=["job", "retry", search, "--rate", f"{RATE}/s", "--background"],
            method="POST",
            path="jobs/retry",
            body={**body, "rate": RATE},
        ),
    }


def _hours(page: PageRequest, detail: ErrorDetail, since: str) -> Markup:
    time_format = "%H:%M" if since in ("1h", "24h") else "%a %d %H:%M"
    steps = [clock(each.at, page.zone, time_format) for each in detail.hours]
    counts = [ChartSeries(page.say("failures"), "dead", [each.count for each in detail.hours])]
    return svg.bars(steps, counts, page.say("Failures by the hour"))


def _tries(counts: Sequence[int]) -> list[tuple[str, int, float]]:
    """Return the numbers of attempts, how many successes took them, and their share."""
    total = sum(counts)
    last = max((place for place, count in enumerate(counts) if count), default=-1)
    return [
        (f"{place + 1}{'+' if place == len(counts) - 1 and place else ''}", count, count / total)
        for place, count in enumerate(counts[: last + 1])
    ]


def _tries_picture(page: PageRequest, counts: Sequence[int]) -> Markup | str:
    tries = _tries(counts)
    if not tries:
        return ""
    shares = [ChartSeries(page.say("succeeded"), "ok", [share * 100 for _, _, share in tries])]
    return svg.bars([name for name, _, _ in tries], shares, page.say("Attempts per success"), axes.percentage)

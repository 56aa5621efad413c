"""Queues and workers: what waits, arrivals and completions, the workers, and limits."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response

from sereno.bounded_count import BoundedCount
from sereno.jobs.limits import operations as limits
from sereno.jobs.limits.rows import LimitRow
from sereno.jobs.queries.rows import SessionRow
from sereno.monitoring import activity
from sereno.monitoring.activity import WorkRow
from sereno.monitoring.queue_flow import LEAST_GAIN, SPAN, QueueFlow, QueueRates, flow
from sereno.server.web.charts import activity as lanes_picture
from sereno.server.web.charts.activity import ActivityBar, ActivityMinute
from sereno.server.web.command_examples import copies
from sereno.server.web.facets import toggled
from sereno.server.web.jobs.carried_queue import CarrierNote, carrier_note
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.server.web.times import clock, length
from sereno.worker.operations import list_workers

# Seconds that the lanes show, and the maximum of bars, lanes and ended workers.
LANE_SECONDS = 300.0
MOST_BARS, MOST_LANES, MOST_ENDED = 400, 30, 10
# Queues with a chart; the others are rows.
MOST_CARDS = 24
MOST_LIMITS = 100
MINUTES = int(SPAN // 60)
# Seconds: a queue falls behind if its oldest job waits for longer, and the queue does not get shorter.
LATE = 60.0
# Seconds: a queue whose oldest job waits for less keeps up, whatever arrived at once.
PROMPT = 5.0


@dataclass(frozen=True, slots=True)
class QueueCard:
    """A queue with its chart."""

    flow: QueueFlow
    picture: Markup
    empties: str
    shade: str
    path: str
    search: str
    carrier: CarrierNote | None


@dataclass(frozen=True, slots=True)
class QueueLane:
    """A worker with its chart."""

    session: SessionRow
    picture: Markup


def routes(pages: PageRoutes) -> None:
    """`/queues`."""

    @pages.at("/queues")
    async def queues(page: PageRequest) -> Response:
        pattern = page.query.get("limit", "")[:200].replace("\x00", "") or None
        seen, workers, work, limited = await asyncio.gather(
            page.load("flow", flow),
            page.load("workers", list_workers),
            page.load("work", partial(activity.work, LANE_SECONDS, MOST_BARS)),
            page.load(("limits", pattern), partial(limits.list_limits, pattern, most=MOST_LIMITS + 1), fresh=2.0),
        )
        sessions = workers.value or []
        shown, others = _chosen(page, seen.value)
        alive = [each for each in sessions if each.state in ("alive", "expired")]
        ended = [each for each in sessions if each.state not in ("alive", "expired")]
        now = seen.value.at if seen.value else page.now
        return page.render(
            "queues.html",
            seen=seen,
            workers=workers,
            sentence=_sentence(page, seen.value, alive),
            cards=shown,
            others=others,
            alive=[_lane(page, each, work.value or [], now) for each in alive[:MOST_LANES]],
            more_alive=max(0, len(alive) - MOST_LANES),
            drawn=MOST_BARS if len(work.value or []) == MOST_BARS else None,
            ended=ended[:MOST_ENDED],
            totals=_totals(seen.value, alive),
            limited=limited,
            limits=[_line(each) for each in (limited.value or [])[:MOST_LIMITS]],
            more_limits=len(limited.value or []) > MOST_LIMITS,
            pattern=pattern,
            shown=shown_count,
            copies=copies(page, cli=["queue", "list"], path="queues"),
            limit_copies=copies(
                page,
                cli=["limit", "list", *([pattern] if pattern else [])],
                path="limits",
                query={"pattern": pattern},
            ),
        )


def shown_count(count: BoundedCount) -> str:
    """Return a number such as 10 000+ where the count stopped."""
    return figure(count.value) + ("" if count.exact else "+")


def path_of(name: str) -> str:
    """Return a name as one segment of a path of the API."""
    return quote(name, safe="")


def _sentence(page: PageRequest, found: QueueRates | None, alive: Sequence[SessionRow]) -> str:
    if found is None:
        return page.say("The database does not respond in time.")
    unserved = sum(each.is_unserved for each in found.queues)
    if unserved:
        if unserved == 1:
            return page.say("One queue has work and no worker.")
        return page.say("%(count)s queues have work and no worker.", count=unserved)
    if not alive:
        return page.say("No worker is alive.")
    if any(each.line.carrier is not None and each.line.carrier.state == "away" for each in found.queues):
        return page.say("The carrier of a queue does not answer.")
    late = sum(_is_late(each) for each in found.queues)
    if late:
        if late == 1:
            return page.say("One queue falls behind.")
        return page.say("%(count)s queues fall behind.", count=late)
    paused = sum(each.line.is_paused for each in found.queues)
    if paused:
        if paused == 1:
            return page.say("One queue is paused. The others keep up.")
        return page.say("%(count)s queues are paused. The others keep up.", count=paused)
    return page.say("Every queue keeps up.")


def _is_late(each: QueueFlow) -> bool:
    carrier = each.line.carrier
    if carrier is not None and (carrier.oldest_seconds or 0) > LATE and not each.line.is_paused:
        return True
    return (each.line.oldest_seconds or 0) > LATE and each.seconds_to_empty is None and not each.line.is_paused


def _totals(found: QueueRates | None, alive: Sequence[SessionRow]) -> dict[str, int]:
    lines = [each.line for each in found.queues] if found else []
    return {
        "workers": len(alive),
        "hosts": len({each.host for each in alive}),
        "slots": sum(sum(each.queues.values()) for each in alive),
        "ready": sum(line.ready.value for line in lines),
        "running": sum(line.running.value for line in lines),
    }


def _chosen(page: PageRequest, found: QueueRates | None) -> tuple[list[QueueCard], list[QueueCard]]:
    """Return the queues with the most work, which have a chart, and the others; both by name."""
    if found is None:
        return [], []
    busiest = sorted(found.queues, key=lambda each: (-each.line.ready.value, -each.line.running.value, each.line.queue))
    large = {each.line.queue for each in busiest[:MOST_CARDS]}
    cards = [_card(page, each, found.at) for each in found.queues]
    return [each for each in cards if each.flow.line.queue in large], [
        each for each in cards if each.flow.line.queue not in large
    ]


def _card(page: PageRequest, each: QueueFlow, now: datetime) -> QueueCard:
    name = each.line.queue
    search = toggled((), "queue", name, negated=False)
    shade = "paused" if each.line.is_paused else "bad" if each.is_unserved else "ok" if _keeps_up(each) else _late(each)
    note = carrier_note(page, each.line.carrier)
    return QueueCard(each, _picture(page, each, now), _empties(page, each), shade, path_of(name), search, note)


def _empties(page: PageRequest, each: QueueFlow) -> str:
    """Return when it will be empty, in words."""
    if each.line.is_paused:
        return page.say("paused")
    if not each.line.ready.value:
        return page.say("empty")
    if each.is_unserved:
        return page.say("no worker")
    if _keeps_up(each):
        return page.say("keeps up")
    seconds = each.seconds_to_empty
    if seconds is not None:
        return page.say("empty in %(time)s", time=length(max(1.0, seconds)))
    if each.arrival > each.drain * (1 + LEAST_GAIN):
        return page.say("growing")
    return page.say("steady") if each.drain else page.say("not moving")


def _late(each: QueueFlow) -> str:
    """Return the colour of a queue whose jobs wait: neutral while it empties, a warning otherwise."""
    return "ready" if each.seconds_to_empty is not None else "warn"


def _keeps_up(each: QueueFlow) -> bool:
    """Return whether no job waits for long."""
    if each.line.carrier is not None and (each.line.carrier.oldest_seconds or 0.0) > LATE:
        return False
    return not each.line.ready.value or (each.line.oldest_seconds or 0.0) < PROMPT


def _picture(page: PageRequest, each: QueueFlow, now: datetime) -> Markup:
    by_minute = {row.at: row for row in each.minutes}
    this = now.replace(second=0, microsecond=0)
    minutes = []
    for ago in range(MINUTES - 1, -1, -1):
        at = this - timedelta(minutes=ago)
        row = by_minute.get(at)
        good, bad = (row.succeeded + row.cancelled, row.retried + row.dead) if row else (0, 0)
        words = page.say("%(at)s: %(good)s succeeded, %(bad)s failed", at=clock(at, page.zone), good=good, bad=bad)
        minutes.append(ActivityMinute(good, bad, words))
    label = page.say("Attempts of %(queue)s that ended, by the minute, for an hour", queue=each.line.queue)
    return lanes_picture.spark(minutes, label)


def _lane(page: PageRequest, session: SessionRow, work: Sequence[WorkRow], now: datetime) -> QueueLane:
    bars = [_bar(page, row, now) for row in work if row.session == session.id]
    label = page.say("What worker %(id)s did in the last five minutes", id=session.id)
    return QueueLane(session, lanes_picture.lane(bars, now, LANE_SECONDS, label))


def _bar(page: PageRequest, row: WorkRow, now: datetime) -> ActivityBar:
    took = max(0.0, ((row.finished_at or now) - row.started_at).total_seconds())
    words = f"{row.job} {row.task}: {page.say(row.outcome)}, {length(took)}"
    return ActivityBar(row.started_at, row.finished_at, row.outcome, words, page.link("jobs", job=row.job))


@dataclass(frozen=True, slots=True)
class LimitLine:
    """A limit in words, and its path in the API."""

    row: LimitRow
    says: str
    path: str


def _line(row: LimitRow) -> LimitLine:
    return LimitLine(row, limits.in_words(row.numbers), path_of(row.name))

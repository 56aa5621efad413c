"""Statistics of notifications: the funnel from matched to read, and the health of channels.

Nothing is counted here: workers and the server count while they change deliveries.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.jobs.queries.minute_stats import quantile
from sereno.notifications.deliveries import stats_queries
from sereno.notifications.deliveries.stats_queries import ChannelFigures, ChannelStep, StateFigures, TenantFigures
from sereno.telemetry.metrics import BUCKETS
from sereno.text import check_text

HOUR = 3600.0
DAY = 24 * HOUR
# Retention of the statistics in seconds.
LONGEST_HOURS = 92 * DAY
LONGEST_MINUTES = 8 * DAY
# Most steps of a chart.
MOST_STEPS = 3000
# Most channels and accounts on one page.
MOST_CHANNELS = 50
# States of deliveries that ended without arriving.
FAILURES = ("failed", "invalid", "dead", "bounced", "expired")


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """One time step of a funnel."""

    at: datetime
    matched: int
    eligible: int
    skipped: int
    sent: int
    accepted: int
    delivered: int
    read: int
    failed: int


@dataclass(frozen=True, slots=True)
class Funnel:
    """Outcomes of deliveries. Each figure counts deliveries that reached the stage in this period, whenever created.

    `matched`: created deliveries. `eligible`: not skipped. `skipped`: by reason. `sent`: given to a provider, each
    once. `accepted`: accepted by the provider. `failed`: ended without arriving; `failures`: by state.
    `skipped` and `failures` are empty for one tenant, whose figures have no reasons.
    """

    matched: int
    eligible: int
    skipped: dict[str, int]
    skipped_total: int
    sent: int
    accepted: int
    delivered: int
    read: int
    failed: int
    failures: dict[str, int]
    steps: list[FunnelStep]


@dataclass(frozen=True, slots=True)
class ChannelHealth:
    """Health of a channel. `account`: owner of the credentials; null for the application's. `codes`: error codes.

    `state`: working or paused. `receipt_median`, `receipt_p95`: seconds from sent to the receipt; null without any.
    """

    channel: str
    account: str | None
    state: str
    paused_since: datetime | None
    paused_why: str | None
    sent: int
    accepted: int
    throttled: int
    failed: int
    unknown: int
    sent_a_minute: float
    codes: dict[str, int]
    receipts: int
    receipt_median: float | None
    receipt_p95: float | None
    steps: list[ChannelStep]


def funnel(
    since: float = DAY,
    *,
    step: float = HOUR,
    tenant: str | None = None,
    event: str | None = None,
    channel: str | None = None,
) -> Operation[Funnel]:
    """Return the funnel of the last `since` seconds, in whole hours; for one tenant, event type or channel, or all."""
    check_spans(since, step, longest=LONGEST_HOURS, shortest_step=HOUR)
    for name, value in (("tenant", tenant), ("event", event), ("channel", channel)):
        check_text(name, value)
    if tenant is None:
        return _of_states((yield from stats_queries.hours(since, step=step, event=event, channel=channel)))
    if event is not None:
        raise InvalidArguments("figures are stored by tenant or by event type, not by both: omit one of them")
    return _of_tenant((yield from stats_queries.tenant_hours(since, step=step, tenant=tenant, channel=channel)))


def channel_health(
    since: float = HOUR, *, step: float = 60.0, channel: str | None = None
) -> Operation[list[ChannelHealth]]:
    """Return channels by name and account: those that sent most recently, and those that are paused."""
    check_spans(since, step, longest=LONGEST_MINUTES, shortest_step=60.0)
    check_text("channel", channel)
    found = yield from stats_queries.channels(since, step=step, most=MOST_CHANNELS, channel=channel)
    return [_health(each, since) for each in found]


def check_spans(since: float, step: float, *, longest: float, shortest_step: float) -> None:
    """Check the period against the retention, and the step against the resolution."""
    if not 0 < since <= longest:
        raise InvalidArguments(f"since {since:g}: figures are retained for {longest:g} seconds")
    if not shortest_step <= step <= longest or since / step > MOST_STEPS:
        raise InvalidArguments(f"step {step:g}: at least {shortest_step:g} seconds, and at most {MOST_STEPS:,} steps")


def _of_states(found: Iterable[StateFigures]) -> Funnel:
    skipped: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    by_time: dict[datetime, Counter[str]] = {}
    for line in found:
        by_time.setdefault(line.at, Counter())[line.state] += line.count
        if line.state == "skipped":
            skipped[line.reason] += line.count
        elif line.state in FAILURES:
            failures[line.state] += line.count
    steps = [
        FunnelStep(
            at,
            states["matched"],
            states["pending"],
            states["skipped"],
            states["tried"],
            states["sent"],
            states["delivered"],
            states["read"],
            sum(states[state] for state in FAILURES),
        )
        for at, states in by_time.items()
    ]
    return _whole(steps, dict(skipped.most_common()), dict(failures.most_common()))


def _of_tenant(found: Iterable[TenantFigures]) -> Funnel:
    steps = [
        FunnelStep(
            each.at,
            each.matched,
            each.eligible,
            each.skipped,
            each.sent,
            each.accepted,
            each.delivered,
            each.read,
            each.failed,
        )
        for each in found
    ]
    return _whole(steps, {}, {})


def _whole(steps: list[FunnelStep], skipped: dict[str, int], failures: dict[str, int]) -> Funnel:
    return Funnel(
        matched=sum(step.matched for step in steps),
        eligible=sum(step.eligible for step in steps),
        skipped=skipped,
        skipped_total=sum(step.skipped for step in steps),
        sent=sum(step.sent for step in steps),
        accepted=sum(step.accepted for step in steps),
        delivered=sum(step.delivered for step in steps),
        read=sum(step.read for step in steps),
        failed=sum(step.failed for step in steps),
        failures=failures,
        steps=steps,
    )


def _health(each: ChannelFigures, since: float) -> ChannelHealth:
    receipts = list(each.receipts) or [0] * (len(BUCKETS) + 1)
    return ChannelHealth(
        channel=each.channel,
        account=each.account or None,
        state="working" if each.paused_since is None else "paused",
        paused_since=each.paused_since,
        paused_why=each.paused_why,
        sent=each.sent,
        accepted=each.accepted,
        throttled=each.throttled,
        failed=each.failed,
        unknown=each.unknown,
        sent_a_minute=each.sent * 60 / since,
        codes=dict(each.codes),
        receipts=sum(receipts),
        receipt_median=quantile(receipts, 0.5),
        receipt_p95=quantile(receipts, 0.95),
        steps=list(each.steps),
    )

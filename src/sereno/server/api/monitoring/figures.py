"""Figures for dashboards, from stored counters: deliveries, providers and jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Annotated

from fastapi import Query

from sereno.database.statement import Operation
from sereno.jobs.queries import minute_stats
from sereno.jobs.queries.minute_stats import AttemptFigures, AttemptStep, TenantFigures, quantile
from sereno.notifications.deliveries import figures
from sereno.notifications.deliveries.figures import ChannelHealth, Funnel
from sereno.server.api.paging import Page
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.tenant_scope import their_tenant
from sereno.text import NAME_LIMIT, check_text

MOST_TENANTS = 100

Text = Annotated[str | None, Query(min_length=1, max_length=NAME_LIMIT)]
Minutes = Annotated[
    float, Query(gt=0, le=figures.LONGEST_MINUTES, allow_inf_nan=False, description="Range in seconds, until now.")
]
Hours = Annotated[
    float,
    Query(gt=0, le=figures.LONGEST_HOURS, allow_inf_nan=False, description="Range in seconds, until now; whole hours."),
]
Step = Annotated[float, Query(ge=60, le=figures.LONGEST_MINUTES, allow_inf_nan=False, description="Seconds per step.")]


@dataclass(frozen=True, slots=True)
class JobStep(AttemptStep):
    """Attempts that ended in a span of time; median and 95th percentile of how long they waited and ran."""

    waited_median: float | None
    waited_p95: float | None
    ran_median: float | None
    ran_p95: float | None


@dataclass
class JobFigures:
    """`tenants`: those with the most work, by whole hours; empty with `queue` or `task`."""

    steps: list[JobStep]
    tenants: list[TenantFigures]


def routes(context: ServerContext) -> Router:
    """`/figures`."""
    router = Router(context, "figures")

    @router.operation("GET", "/figures/deliveries", role="viewer", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def deliveries(
        who: Who,
        since: Hours = figures.DAY,
        step: Annotated[float, Query(ge=3600, le=figures.LONGEST_HOURS, allow_inf_nan=False)] = figures.HOUR,
        tenant: Text = None,
        event: Text = None,
        channel: Text = None,
    ) -> Funnel:
        """How many deliveries were matched, skipped and why, sent, accepted, delivered, read, or failed, by the hour.

        Filter by `tenant` or by `event`, not by both.
        """
        whose = their_tenant(who, tenant)
        found = figures.funnel(since, step=step, tenant=whose, event=event, channel=channel)
        return await context.read(found)

    @router.operation("GET", "/figures/channels", role="viewer")
    async def channels(since: Minutes = figures.HOUR, step: Step = 60.0, channel: Text = None) -> Page[ChannelHealth]:
        """Health of providers: messages sent, their responses, how long receipts take, and what is paused."""
        return Page(await context.read(figures.channel_health(since, step=step, channel=channel)))

    @router.operation("GET", "/figures/jobs", role="viewer")
    async def jobs(
        since: Minutes = figures.HOUR, step: Step = 60.0, queue: Text = None, task: Text = None
    ) -> JobFigures:
        """Attempts that ended, how long they waited and ran; and the tenants with the most work."""
        return await context.read(_jobs(since, step, queue, task))

    return router


def _jobs(since: float, step: float, queue: str | None, task: str | None) -> Operation[JobFigures]:
    figures.check_spans(since, step, longest=figures.LONGEST_MINUTES, shortest_step=60.0)
    check_text("queue", queue)
    check_text("task", task)
    found = yield from minute_stats.read(since, step=step, queue=queue, task=task)
    tenants: Sequence[TenantFigures] = ()
    if queue is None and task is None:
        tenants = yield from minute_stats.tenants(since, most=MOST_TENANTS)
    return JobFigures([_step(each) for each in found], list(tenants))


def _step(each: AttemptFigures) -> JobStep:
    return JobStep(
        **{field.name: getattr(each, field.name) for field in fields(AttemptStep)},
        waited_median=quantile(each.waits, 0.5),
        waited_p95=quantile(each.waits, 0.95),
        ran_median=quantile(each.runs, 0.5),
        ran_p95=quantile(each.runs, 0.95),
    )

"""The application, and what all its job types have in common: queue, limits, retries, schedule."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from reconciliation import settings
from reconciliation.partner import LIMIT, Refused
from reconciliation.storage import BadReport
from sereno import Backoff, Context, Limit, Rate, Sereno, Task

QUEUE = "reconciliation"

# Stored from `info` on, so that the central log has all steps of a run and not only its failures.
# Its notifications have their own queue: the workers of other systems in this database do not know its events.
app = Sereno(service="reconciliation", notifications_queue="reconciliation.notifications", keep_logs="info")
app.queue(QUEUE, concurrency=Limit(settings.AT_ONCE))

RETRY = Backoff(3, delays=["15m", "30m", "60m"], permanent=[Refused, BadReport])
PARTNER = Rate(settings.RATE, per="1s", name=LIMIT)

Function = Callable[[Context, str, str, str], Awaitable[None]]
JobTask = Task[[str, str, str], Awaitable[None]]


@dataclass(frozen=True)
class Period:
    """The unit of uniqueness: the period's placeholder in a schedule, and how long its unique key is stored."""

    name: str
    remembered: Literal["forever", "90d"]


MONTH = Period("{fire:%Y-%m}", "forever")
DAY = Period("{date}", "90d")

JOB_TYPES: dict[str, tuple[JobTask, Period]] = {}


def job_type(period: Period) -> Callable[[Function], JobTask]:
    """Register function (context, account, merchant, period) as a job type: one job at most per account and period."""

    def add(function: Function) -> JobTask:
        name = function.__name__
        task = app.task(name=f"reconciliation.{name}", queue=QUEUE, retry=RETRY, rate=PARTNER)(function)
        JOB_TYPES[name] = task, period
        return task

    return add

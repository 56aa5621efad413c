"""The application, and what all its job types have in common: queues, limits, retries, the partner, the period."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from reconciliation import settings
from reconciliation.errors import PermanentError
from reconciliation.oauth import LIMIT
from reconciliation.partner import Partner, open_partner
from reconciliation.periods import Period
from sereno import Backoff, Limit, Rate, Sereno, Task

# Jobs that call the partner; jobs that read files; cycles, and the nightly decision of what is due.
QUEUE, FILES, CONTROL = "reconciliation", "reconciliation.files", "reconciliation.control"

# Stored from `info` on, so that the central log has all steps of a run and not only its failures.
# Its notifications have their own queue: the workers of other systems in this database do not know its events.
app = Sereno(service="reconciliation", notifications_queue="reconciliation.notifications", keep_logs="info")
app.queue(QUEUE, concurrency=Limit(settings.AT_ONCE))

RETRY = Backoff(settings.ATTEMPTS - 1, delays=settings.DELAYS, permanent=[PermanentError])
CALLS = Rate(settings.RATE, per="1s", name=LIMIT)


@app.resource
async def partner_api() -> AsyncIterator[Partner]:
    """The partner's API, with one access token for all jobs of a worker."""
    async with open_partner() as partner:
        yield partner


@dataclass(frozen=True)
class JobType:
    """A task (account, merchant, period, source), and the period that a night's job is about."""

    task: Task[..., Any]
    period: Callable[[date], Period]


JOB_TYPES: dict[str, JobType] = {}


def job_type(period: Callable[[date], Period]) -> Callable[[Callable[..., Any]], Task[..., Any]]:
    """Register a function as a job type: at most one job for each account and turn of the period."""

    def add(function: Callable[..., Any]) -> Task[..., Any]:
        name = function.__name__
        task: Task[..., Any] = app.task(name=f"reconciliation.{name}", queue=QUEUE, retry=RETRY, rate=CALLS)(function)
        JOB_TYPES[name] = JobType(task, period)
        return task

    return add

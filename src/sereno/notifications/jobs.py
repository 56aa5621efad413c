"""Jobs of the tasks that send notifications, made by task name: `tasks` registers the functions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from sereno.database.json_values import encoder
from sereno.jobs.job import DEFAULT_PRIORITY, JobOptions, NewJob
from sereno.jobs.limits.limit import NO_RULE, KeyRule, merge_keys
from sereno.jobs.task import Registry, check_words

QUEUE = "notifications"
FAN_OUT = "sereno.fan_out"
ESCALATE = "sereno.escalate"
CANCEL = "sereno.cancel_event"
DELIVER = "sereno.deliver"
RECEIPTS = "sereno.receipts"
SWEEP = "sereno.sweep_notifications"

NO_OPTIONS = JobOptions()


class NotificationJobs:
    """Makes the jobs of sereno's own tasks, under the limits of their queue."""

    def __init__(self, registry: Registry, queue: str = QUEUE) -> None:
        self._registry = registry
        self.queue = queue

    def fan_out(self, event: int, due_at: datetime | None, tenant: str | None, trace: str | None) -> NewJob:
        """Return the job that creates the deliveries of a new event."""
        return self.new(FAN_OUT, {"event": event}, JobOptions(run_at=due_at, tenant=tenant, trace=trace))

    def fan_out_again(self, event: int, tenant: str | None, trace: str | None) -> NewJob:
        """Return the job that replaces a lost fan-out job; one at a time."""
        return self.new(FAN_OUT, {"event": event}, JobOptions(tenant=tenant, trace=trace, unique_key=f"event {event}"))

    def escalate(self, event: int, due_in: float) -> NewJob:
        """Return the job that checks an event for escalation after a delay in seconds."""
        return self.new(ESCALATE, {"event": event}, JobOptions(delay=due_in))

    def cancel(self, event: int, tenant: str | None, queue: str) -> NewJob:
        """Return the job that skips the deliveries of a cancelled event, in the queue of any service."""
        return self.new(CANCEL, {"event": event}, JobOptions(tenant=tenant), queue=queue)

    def request_receipts(self, channel: str, account: str, due_in: float = 0.0) -> NewJob:
        """Return the job that requests the receipts that are due then."""
        options = JobOptions(delay=due_in) if due_in > 0 else NO_OPTIONS
        return self.new(RECEIPTS, {"channel": channel, "account": account}, options)

    def sweep(self) -> NewJob:
        """Return the job that replaces lost jobs."""
        return self.new(SWEEP, {})

    def new(
        self,
        task: str,
        arguments: Mapping[str, Any],
        options: JobOptions = NO_OPTIONS,
        limits: KeyRule = NO_RULE,
        queue: str | None = None,
    ) -> NewJob:
        """Return a job of one of these tasks. `limits`: apply in addition to those of its queue."""
        name = queue or self.queue
        check_words(f"task {task}", limits, arguments.keys())
        chosen = msgspec.structs.replace(options, queue=name, priority=DEFAULT_PRIORITY).checked()
        known = self._registry.queue(name)
        rules = (NO_RULE if known is None else known.rule, replace(limits, extra=True))
        keys = merge_keys(rules, {**arguments, "tenant": chosen.tenant, "task": task, "queue": name})
        encoded = encoder.encode(keys) if keys else None
        return NewJob(task, encoder.encode(arguments), chosen, encoded, bool(limits))

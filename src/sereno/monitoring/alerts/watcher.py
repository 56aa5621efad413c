"""Evaluates the alert rules every few seconds and enqueues messages to their targets.

The leading scheduler runs it. Alerts and the jobs that send them are written in one transaction under the lock of the
rule, so that two concurrent watchers send an alert once. A query or a rule that fails does not affect the others.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import NamedTuple

import msgspec

from sereno.channels.contract import Exchange
from sereno.database.connect import ServiceConnection
from sereno.database.statement import Operation
from sereno.errors import DatabaseUnavailable
from sereno.jobs import transitions
from sereno.jobs.job import JobOptions, NewJob
from sereno.monitoring.alerts import condition_queries
from sereno.monitoring.alerts import store as alerts
from sereno.monitoring.alerts.condition import AlertCondition
from sereno.monitoring.alerts.condition_queries import LATE
from sereno.monitoring.alerts.rows import SentAlert, WatchedRule
from sereno.monitoring.alerts.rule import TASK, AlertStep, AlertTarget, LogRule, decide, log_condition, wants
from sereno.monitoring.alerts.sender import AlertSender
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service

# Seconds between two evaluations.
POLL_INTERVAL = 15.0
# Timeout of a query in seconds; one that takes longer is skipped until the next evaluation.
TIMEOUT = 5.0
SEND_TIMEOUT = 20.0
FORGET_EVERY = 3600.0
# Alerts run before all other jobs of their queue.
PRIORITY = 0


class ConditionSnapshot(msgspec.Struct):
    """The current conditions, and the kinds whose query failed."""

    found: list[AlertCondition]
    blind: set[str]


class AlertWatcher(Service):
    """Evaluates the alert rules while `leads` returns True."""

    def __init__(self, url: str, settings: Settings, leads: Callable[[], bool]) -> None:
        super().__init__("watch")
        self._settings = settings
        self._connection = ServiceConnection(url, settings, "watch")
        self._leads = leads
        self._forgot_at = monotonic()

    async def run_once(self) -> float:
        if not self._leads():
            await self._connection.close()
        else:
            await self.check()
        return POLL_INTERVAL * random.uniform(0.8, 1.0)  # noqa: S311 - jitter

    async def stop(self) -> None:
        await super().stop()
        await self._connection.close()

    async def check(self) -> None:
        """Evaluate every rule once."""
        rules = await self._connection.run(alerts.watched())
        if not rules:
            await self._connection.close()
            return
        seen: dict[str | None, ConditionSnapshot] = {}
        for name, tenant in rules:
            if tenant not in seen:
                seen[tenant] = await self._see(tenant)
            await self._follow(name, seen[tenant])
        if monotonic() - self._forgot_at > FORGET_EVERY:
            self._forgot_at = monotonic()
            await self._connection.run(alerts.forget_old())

    async def _see(self, tenant: str | None) -> ConditionSnapshot:
        seen = ConditionSnapshot([], set())
        for each in condition_queries.condition_queries_for(tenant, self._settings):
            try:
                seen.found += await self._connection.run(each.read(tenant, LATE), TIMEOUT, atomic=True)
            except Exception as error:  # noqa: BLE001 - the other queries must still run
                seen.blind.update(each.kinds)
                emit(
                    logging.WARNING,
                    "alert.blind",
                    f"the query for {', '.join(each.kinds)} failed: {error}",
                    error=error,
                )
        seen.found = condition_queries.worst_first(seen.found)
        return seen

    async def _follow(self, name: str, seen: ConditionSnapshot) -> None:
        """Evaluate one rule; its error is stored with it."""
        try:
            result = await self._connection.run(follow(name, seen), atomic=True)
        except Exception as error:  # noqa: BLE001 - a failing rule must not affect the others
            emit(logging.ERROR, "alert.failed", f"the alert rule {name} could not be evaluated: {error}", error=error)
            if not isinstance(error, DatabaseUnavailable):
                await self._connection.run(alerts.note_error(name, f"{type(error).__name__}: {error}"))
            return
        for step in result.steps:
            emit(
                logging.WARNING if step.notification != "over" else logging.INFO,
                "alert.notified",
                f"alert of the rule {name}, {step.notification}: {step.kind} {step.subject}",
                rule=name,
                what=step.notification,
                kind=step.kind,
                subject=step.subject,
            )
        for sending in result.unserved:
            await self._send(sending)

    async def _send(self, sending: "AlertMessage") -> None:
        """Send a message directly, because no worker is alive. The job stays, and finds later that it was sent."""
        async with Exchange() as exchange:

            async def lend(_channel: str, _account: str) -> Exchange:
                return exchange

            async def find(rule: str, target: int, alert: int | None) -> tuple[AlertTarget | None, SentAlert | None]:
                return await self._connection.run(alerts.message(rule, target, alert))

            try:
                async with asyncio.timeout(SEND_TIMEOUT):
                    await AlertSender(find, {}, lend).send(*sending)
            except Exception as error:  # noqa: BLE001 - the job is still enqueued, for the next worker
                text = f"alert {sending.alert} was not sent and waits for a worker: {error}"
                emit(logging.WARNING, "alert.unsent", text)
                return
        await self._connection.run(alerts.sent(sending.alert, sending.job))


class AlertMessage(NamedTuple):
    """A message that has to be sent without a worker."""

    job: int
    rule: str
    target: int
    what: str
    alert: int


class SentMessage(NamedTuple):
    """The alerts that a rule sends, and the messages that no worker will send."""

    steps: list[AlertStep]
    unserved: list[AlertMessage]


def follow(name: str, seen: ConditionSnapshot) -> Operation[SentMessage]:
    """Evaluate a rule: store its alerts with the jobs that send them, in one transaction; return what is sent."""
    locked = yield from alerts.lock_rule(name)
    if locked is None:
        return SentMessage([], [])
    rule, now = locked
    found = [each for each in seen.found if wants(rule, each)]
    if rule.log is not None:
        found = yield from _read_log(rule, rule.log, now)
    steps = decide(rule, (yield from alerts.known(name)), found, seen.blind, now)
    ids = yield from alerts.write(name, steps)
    sent = [step for step in steps if step.notification is not None]
    unserved = (yield from _enqueue(rule, [(ids[step.kind, step.subject], step) for step in sent])) if sent else []
    yield from alerts.well(name)
    return SentMessage(sent, unserved)


def _enqueue(rule: WatchedRule, steps: Sequence[tuple[int, AlertStep]]) -> Operation[list[AlertMessage]]:
    """Enqueue a job for each target; return the messages that no worker serves.

    The address stays with the rule, because a job's arguments are widely visible.
    """
    queue = yield from alerts.notification_queue()
    options = JobOptions(queue=queue or alerts.DEFAULT_QUEUE, priority=PRIORITY)
    wanted = [
        AlertMessage(0, rule.name, target, str(step.notification), alert)
        for alert, step in steps
        for target in range(len(rule.targets))
    ]
    made = yield from transitions.enqueue([NewJob(TASK, _arguments(each), options) for each in wanted])
    if queue is not None:
        return []
    return [each._replace(job=job.id) for each, job in zip(wanted, made, strict=True)]


def _arguments(sending: AlertMessage) -> bytes:
    given = {"rule": sending.rule, "target": sending.target, "what": sending.what, "alert": sending.alert}
    return msgspec.json.encode(given)


def _read_log(rule: WatchedRule, log: LogRule, now: datetime) -> Operation[list[AlertCondition]]:
    """Return the condition of a log rule, from the newest known and new lines that match."""
    read = yield from alerts.log_hits(rule, log)
    oldest = now.timestamp() - log.within
    every = {number: at for number, at in (*rule.hits, *read.hits) if at > oldest}
    hits = sorted(every.items())[-log.count :]
    yield from alerts.read_log(rule, read.reached, hits)
    if len(hits) < log.count:
        return []
    return [log_condition(log, datetime.fromtimestamp(min(at for _, at in hits), UTC))]

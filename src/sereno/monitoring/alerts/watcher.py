"""Looks at what needs a person, every few seconds, and tells those whom rules name.

The scheduler that leads does this. What a rule finds, and the jobs that tell it, are written in one transaction under
the rule's lock, so that two who look at once tell it once. A look or a rule that fails harms no other.
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
from sereno.database.connect import Line
from sereno.database.statement import Operation
from sereno.errors import DatabaseUnavailable
from sereno.jobs import transitions
from sereno.jobs.job import JobOptions, NewJob
from sereno.monitoring.alerts import condition_queries
from sereno.monitoring.alerts import store as alerts
from sereno.monitoring.alerts.condition import AlertCondition
from sereno.monitoring.alerts.condition_queries import LATE
from sereno.monitoring.alerts.rule import TASK, AlertStep, AlertTarget, LogRule, decide, log_condition, wants
from sereno.monitoring.alerts.sender import AlertSender
from sereno.monitoring.alerts.store import SentAlert as TellsOf
from sereno.monitoring.alerts.store import WatchedRule
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.telemetry.service import Service

LOOK_EVERY = 15.0
# A look that takes longer is given up until the next time.
PATIENCE = 5.0
SEND_PATIENCE = 20.0
FORGET_EVERY = 3600.0
# Before everything else that waits in its queue.
PRIORITY = 0


class ConditionSnapshot(msgspec.Struct):
    """What needs a person, and the kinds that could not be looked at."""

    found: list[AlertCondition]
    blind: set[str]


class AlertWatcher(Service):
    """Keeps watch while `leads` says so."""

    def __init__(self, url: str, settings: Settings, leads: Callable[[], bool]) -> None:
        super().__init__("watch")
        self._settings = settings
        self._line = Line(url, settings, "watch")
        self._leads = leads
        self._forgot_at = monotonic()

    async def run_once(self) -> float:
        if not self._leads():
            await self._line.close()
        else:
            await self.look()
        return LOOK_EVERY * random.uniform(0.8, 1.0)  # noqa: S311 - jitter

    async def stop(self) -> None:
        await super().stop()
        await self._line.close()

    async def look(self) -> None:
        """Every rule, once."""
        rules = await self._line.run(alerts.watched())
        if not rules:
            await self._line.close()
            return
        seen: dict[str | None, ConditionSnapshot] = {}
        for name, tenant in rules:
            if tenant not in seen:
                seen[tenant] = await self._see(tenant)
            await self._follow(name, seen[tenant])
        if monotonic() - self._forgot_at > FORGET_EVERY:
            self._forgot_at = monotonic()
            await self._line.run(alerts.forget_old())

    async def _see(self, tenant: str | None) -> ConditionSnapshot:
        seen = ConditionSnapshot([], set())
        for each in condition_queries.looks(tenant, self._settings):
            try:
                seen.found += await self._line.run(each.see(tenant, LATE), PATIENCE, atomic=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, the other looks are taken
                seen.blind.update(each.kinds)
                emit(logging.WARNING, "alert.blind", f"no look at {', '.join(each.kinds)}: {error}", error=error)
        seen.found = condition_queries.worst_first(seen.found)
        return seen

    async def _follow(self, name: str, seen: ConditionSnapshot) -> None:
        """One rule; what is wrong with it is kept with it."""
        try:
            told = await self._line.run(follow(name, seen), atomic=True)
        except Exception as error:  # noqa: BLE001 - a rule that fails harms no other
            emit(logging.ERROR, "alert.failed", f"the alert rule {name} could not be followed: {error}", error=error)
            if not isinstance(error, DatabaseUnavailable):
                await self._line.run(alerts.note_error(name, f"{type(error).__name__}: {error}"))
            return
        for step in told.steps:
            emit(
                logging.WARNING if step.tell != "over" else logging.INFO,
                "alert.told",
                f"alert of the rule {name}, {step.tell}: {step.kind} {step.subject}",
                rule=name,
                what=step.tell,
                kind=step.kind,
                subject=step.subject,
            )
        for sending in told.unserved:
            await self._send(sending)

    async def _send(self, sending: "AlertMessage") -> None:
        """No worker is alive: better twice than never. Whoever comes later finds that it has left."""
        async with Exchange() as exchange:

            async def lend(_channel: str, _account: str) -> Exchange:
                return exchange

            async def find(rule: str, target: int, alert: int | None) -> tuple[AlertTarget | None, TellsOf | None]:
                return await self._line.run(alerts.message(rule, target, alert))

            try:
                async with asyncio.timeout(SEND_PATIENCE):
                    await AlertSender(find, {}, lend).send(*sending)
            except Exception as error:  # noqa: BLE001 - the job is there still, for the next worker
                words = f"no worker is alive, and alert {sending.alert} waits for one: {error}"
                emit(logging.WARNING, "alert.unsent", words)
                return
        await self._line.run(alerts.sent(sending.alert, sending.job))


class AlertMessage(NamedTuple):
    """A message that no worker is there to send."""

    job: int
    rule: str
    target: int
    what: str
    alert: int


class SentMessage(NamedTuple):
    """What a rule tells, and the messages that no worker will send."""

    steps: list[AlertStep]
    unserved: list[AlertMessage]


def follow(name: str, seen: ConditionSnapshot) -> Operation[SentMessage]:
    """What a rule finds, written down, with the jobs that tell it; answers what is told. One transaction."""
    locked = yield from alerts.lock_rule(name)
    if locked is None:
        return SentMessage([], [])
    rule, now = locked
    found = [each for each in seen.found if wants(rule, each)]
    if rule.log is not None:
        found = yield from _read_log(rule, rule.log, now)
    steps = decide(rule, (yield from alerts.known(name)), found, seen.blind, now)
    ids = yield from alerts.write(name, steps)
    told = [step for step in steps if step.tell is not None]
    unserved = (yield from _enqueue(rule, [(ids[step.kind, step.subject], step) for step in told])) if told else []
    yield from alerts.well(name)
    return SentMessage(told, unserved)


def _enqueue(rule: WatchedRule, told: Sequence[tuple[int, AlertStep]]) -> Operation[list[AlertMessage]]:
    """A job for each target; answers those that nobody serves.

    The address stays with the rule: a job's arguments are seen by many.
    """
    queue = yield from alerts.notification_queue()
    options = JobOptions(queue=queue or alerts.DEFAULT_QUEUE, priority=PRIORITY)
    wanted = [
        AlertMessage(0, rule.name, target, str(step.tell), alert)
        for alert, step in told
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
    """The newest lines that count, of those that were known and those that are new."""
    heard = yield from alerts.log_hits(rule, log)
    oldest = now.timestamp() - log.within
    every = {number: at for number, at in (*rule.hits, *heard.hits) if at > oldest}
    hits = sorted(every.items())[-log.count :]
    yield from alerts.read_log(rule, heard.reached, hits)
    if len(hits) < log.count:
        return []
    return [log_condition(log, datetime.fromtimestamp(min(at for _, at in hits), UTC))]

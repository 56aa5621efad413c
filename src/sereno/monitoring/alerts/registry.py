"""`app.alerts`: rules that the code declares, and the task that sends alerts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sereno.channels.contract import Channel
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.jobs.retry import Backoff
from sereno.jobs.task import Registry
from sereno.monitoring.alerts import store as alerts
from sereno.monitoring.alerts.condition import Level
from sereno.monitoring.alerts.rows import SentAlert
from sereno.monitoring.alerts.rule import TASK, AlertRule, AlertTarget, LogRule, checked
from sereno.monitoring.alerts.sender import AlertSender, FindExchange, channel_of
from sereno.worker.context import Context

# `changed_by` of a rule that the code declares.
CODE = "code"
# A few quick attempts, then slower ones for most of a day.
RETRY = Backoff(12, first="10s", cap="2h")

To = tuple[str, str] | Mapping[str, Any] | AlertTarget


class AlertRegistry:
    """The alert rules of one application."""

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Channel],
        exchange: FindExchange,
        make_task: Callable[..., Any],
    ) -> None:
        self._channels = channels
        self._database = database
        self._sender = AlertSender(self._find, channels, exchange)
        self._make_task = make_task
        self._rules: dict[str, AlertRule] = {}

    async def _find(self, rule: str, target: int, alert: int | None) -> tuple[AlertTarget | None, SentAlert | None]:
        return await self._database.arun_one(alerts.message(rule, target, alert))

    def rule(
        self,
        name: str,
        *,
        to: Sequence[To],
        kinds: Sequence[str] | None = None,
        log: Mapping[str, Any] | LogRule | None = None,
        level: Level = "warn",
        tenant: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        lasting: Duration = 0,
        again: Duration = "4h",
        note: str | None = None,
    ) -> AlertRule:
        """Declare an alert rule: `app.alerts.rule("late", kinds=["queue.late"], to=[("discord", url)])`.

        It is stored when a worker starts, unless an operator has changed it since. `lasting`: how long a condition must
        last. `again`: interval at which an open alert is repeated. `log`: match log lines instead of conditions:
        `{"event": "job.dead", "count": 5}`.
        """
        made = AlertRule(
            name=name,
            targets=[target_of(each) for each in to],
            kinds=None if kinds is None else list(kinds),
            log=log if log is None or isinstance(log, LogRule) else LogRule(**log),
            level=level,
            tenant=tenant,
            queue=queue,
            task=task,
            for_seconds=seconds(lasting),
            again_seconds=seconds(again),
            note=note,
        )
        self._rules[name] = self.checked(made)
        return made

    def checked(self, rule: AlertRule) -> AlertRule:
        """Return the rule, or raise an error; also when a known channel does not accept an address."""
        checked(rule)
        for target in rule.targets:
            channel = channel_of(self._channels, target.channel)
            if channel is not None:
                channel.check_address(target.address)
        return rule

    def declare(self) -> Operation[None]:
        """Store the declared rules."""
        for rule in self._rules.values():
            yield from alerts.put_rule(rule, CODE, is_code=True)

    def register(self, registry: Registry) -> Registry:
        """Add the task that sends alerts, if the registry has any tasks; return the registry."""

        async def alert(ctx: Context, rule: str, target: int, what: str, alert: int | None = None) -> None:
            await self._sender.send(ctx.job_id, rule, target, what, alert)

        if len(registry) and registry.get(TASK) is None:
            self._make_task(name=TASK, retry=RETRY, timeout="2m")(alert)
        return registry


def target_of(given: To) -> AlertTarget:
    """Return the target for a pair ("discord", "https://…"), or for a mapping with keys."""
    if isinstance(given, AlertTarget):
        return given
    if isinstance(given, Mapping):
        return AlertTarget(channel=given["channel"], address=given["address"], keys=dict(given.get("keys") or {}))
    channel, address = given
    return AlertTarget(channel=channel, address=address)

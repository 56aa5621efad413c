"""Alert rules, and the decision of what to send. Pure code.

    seen ──▶ open (lasts long enough) ──▶ sent ──▶ repeated while it is open ──▶ resolved, sent once
               └▶ gone before that: deleted

A condition that returns within the hour reopens the same alert, which then has to stay away for longer to be resolved.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from sereno.duration import duration_text
from sereno.errors import InvalidArguments
from sereno.monitoring.alerts.condition import KINDS, LEVELS, AlertCondition, Level, clean, condition, rank
from sereno.text import check_text

# The task that sends one message about an alert.
TASK = "sereno.alert"
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
# Kinds that a rule can name; log lines have rules of their own.
NAMED_KINDS = tuple(kind for kind in KINDS if kind != "log.lines")
# Seconds: a day, and the default interval at which an open alert is repeated.
DAY = 86400.0
AGAIN = 4 * 3600.0
# Seconds without the condition after which an alert is resolved; doubled each time that it reopened, up to an hour.
CALM, LONGEST_CALM = 60.0, 3600.0
MOST_TARGETS, MOST_OPEN, MOST_COUNT = 20, 100, 1000
LONGEST_ADDRESS, LONGEST_KEYS, LONGEST_NOTE = 2000, 4000, 500

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")

NotificationKind = Literal["opened", "again", "over", "test"]


class AlertTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a message. `keys`: data of the address, such as the secrets that sign a webhook."""

    channel: str
    address: str
    keys: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Target(channel={self.channel!r}, …)"


class LogRule(msgspec.Struct, frozen=True, kw_only=True):
    """Matches `count` log lines of this level or above within `within` seconds. `event`: only lines of this event."""

    level: str = "error"
    event: str | None = None
    count: int = 1
    within: float = 300.0


class RuleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """NotificationKind a rule matches and when it sends. `level`: the lowest level.

    `for_seconds`: how long a condition must last before it is sent.
    """

    name: str
    kinds: list[str] | None = None
    log: LogRule | None = None
    level: Level = "warn"
    tenant: str | None = None
    queue: str | None = None
    task: str | None = None
    for_seconds: float = 0.0
    again_seconds: float = AGAIN
    enabled: bool = True
    note: str | None = None


class AlertRule(RuleOptions, frozen=True, kw_only=True):
    """An alert rule with its targets."""

    targets: list[AlertTarget]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that is open, or was resolved within the hour."""

    id: int
    kind: str
    subject: str
    level: Level
    opened_at: datetime
    last_seen_at: datetime
    notified_at: datetime | None = None
    times: int = 0
    openings: int = 1
    resolved_at: datetime | None = None
    silenced_until: datetime | None = None


class AlertStep(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one alert. `id`: None for a new one. `condition`: None if it is gone. `notification`: to send."""

    id: int | None
    kind: str
    subject: str
    condition: AlertCondition | None = None
    opened_at: datetime | None = None
    openings: int = 1
    resolved: bool = False
    forgotten: bool = False
    notification: NotificationKind | None = None


def decide(
    rule: AlertRule, known: Sequence[Alert], seen: Sequence[AlertCondition], blind: Collection[str], now: datetime
) -> list[AlertStep]:
    """Return the changes. `blind`: kinds whose query failed; their alerts are not resolved."""
    by_key = {(alert.kind, alert.subject): alert for alert in known}
    present = {(each.kind, each.subject): each for each in seen}
    steps = [_seen(rule, by_key.get(key), each, now) for key, each in list(present.items())[:MOST_OPEN]]
    gone = [
        alert
        for key, alert in by_key.items()
        if key not in present and alert.resolved_at is None and alert.kind not in blind
    ]
    return steps + [step for alert in gone if (step := _gone(alert, now)) is not None]


def _seen(rule: AlertRule, alert: Alert | None, found: AlertCondition, now: datetime) -> AlertStep:
    is_new = alert is None or alert.resolved_at is not None
    opened_at = now if alert is None or is_new else alert.opened_at
    openings = 1 if alert is None else alert.openings + is_new
    notified_at = None if alert is None or is_new else alert.notified_at
    notification: NotificationKind | None = None
    if alert is not None and alert.silenced_until is not None and alert.silenced_until > now:
        pass
    elif notified_at is None:
        notification = "opened" if (now - opened_at).total_seconds() >= rule.for_seconds else None
    elif (now - notified_at).total_seconds() >= rule.again_seconds or (alert and rank(found.level) > rank(alert.level)):
        notification = "again"
    return AlertStep(
        id=None if alert is None else alert.id,
        kind=found.kind,
        subject=found.subject,
        condition=found,
        opened_at=opened_at,
        openings=openings,
        notification=notification,
    )


def _gone(alert: Alert, now: datetime) -> AlertStep | None:
    step = AlertStep(id=alert.id, kind=alert.kind, subject=alert.subject, openings=alert.openings)
    if alert.notified_at is None:
        # It was never sent.
        return msgspec.structs.replace(step, resolved=alert.openings > 1, forgotten=alert.openings == 1)
    if now - alert.last_seen_at < calm(alert.openings):
        return None
    is_silent = alert.silenced_until is not None and alert.silenced_until > now
    return msgspec.structs.replace(step, resolved=True, notification=None if is_silent else "over")


def calm(openings: int) -> timedelta:
    """Return how long a condition must be gone before its alert is resolved."""
    return timedelta(seconds=min(LONGEST_CALM, CALM * 2 ** min(openings - 1, 10)))


def wants(rule: AlertRule, found: AlertCondition) -> bool:
    """Return whether a rule matches a condition."""
    return (
        rule.log is None
        and (rule.kinds is None or found.kind in rule.kinds)
        and rank(found.level) >= rank(rule.level)
        and (rule.queue is None or found.values.get("queue") == clean(rule.queue))
        and (rule.task is None or found.values.get("task") == clean(rule.task))
    )


def log_condition(rule: LogRule, first: datetime) -> AlertCondition:
    """Return the condition of a log rule that has matched."""
    level: Level = "bad" if rule.level in ("error", "critical") else "warn"
    event = rule.event or "any event"
    return condition(
        "log.lines",
        rule.event or rule.level,
        level,
        "sereno log list",
        since=first,
        count=rule.count,
        within=duration_text(rule.within),
        level_of_lines=rule.level,
        event=event,
    )


def levels_from(level: str) -> list[str]:
    """Return this level and those above."""
    return list(LOG_LEVELS[LOG_LEVELS.index(level) :])


def checked(rule: AlertRule) -> AlertRule:
    """Return the rule, or raise InvalidArguments."""
    if not _NAME.fullmatch(rule.name):
        raise InvalidArguments(
            f"{rule.name!r:.60} is not a valid rule name: use letters, digits and . _ : -, at most 100"
        )
    if not 1 <= len(rule.targets) <= MOST_TARGETS:
        raise InvalidArguments(f"a rule needs from 1 to {MOST_TARGETS} targets, each with a channel and an address")
    for target in rule.targets:
        _check_target(target)
    _check_kinds(rule)
    if rule.level not in LEVELS:
        raise InvalidArguments(f"level must be one of {', '.join(LEVELS)}")
    for name in ("tenant", "queue", "task"):
        check_text(name, getattr(rule, name))
    if rule.note is not None and (len(rule.note) > LONGEST_NOTE or "\x00" in rule.note):
        raise InvalidArguments(f"note: at most {LONGEST_NOTE} characters, without NUL bytes")
    if not 0 <= rule.for_seconds <= 7 * DAY:
        raise InvalidArguments("for: at most seven days")
    if not CALM <= rule.again_seconds <= 30 * DAY:
        raise InvalidArguments("again: from a minute to thirty days")
    if rule.log is not None:
        _check_log(rule.log)
    return rule


def _check_kinds(rule: AlertRule) -> None:
    if rule.kinds is None:
        return
    if rule.log is not None:
        raise InvalidArguments("a rule matches either kinds or log lines: create two rules")
    if unknown := sorted(set(rule.kinds) - set(NAMED_KINDS)):
        raise InvalidArguments(f"unknown kind {unknown[0]!r:.60}; known kinds: {', '.join(NAMED_KINDS)}")
    if not rule.kinds:
        raise InvalidArguments("kinds is empty: leave it out to match all kinds")


def _check_log(log: LogRule) -> None:
    if log.level not in LOG_LEVELS:
        raise InvalidArguments(f"log.level must be one of {', '.join(LOG_LEVELS)}")
    check_text("log.event", log.event)
    if not 1 <= log.count <= MOST_COUNT:
        raise InvalidArguments(f"log.count: from 1 to {MOST_COUNT:,}")
    if not 1 <= log.within <= DAY:
        raise InvalidArguments("log.within: from a second to a day")


def _check_target(target: AlertTarget) -> None:
    check_text("channel", target.channel)
    address = target.address
    if not address or len(address) > LONGEST_ADDRESS or "\x00" in address or not _is_unicode(address):
        raise InvalidArguments(f"an address has from 1 to {LONGEST_ADDRESS:,} characters, without NUL bytes")
    if not is_storable(target.keys):
        raise InvalidArguments(f"the keys of an address must be JSON of at most {LONGEST_KEYS:,} characters")


def is_storable(keys: Mapping[str, Any]) -> bool:
    try:
        raw = msgspec.json.encode(keys)
    except (TypeError, ValueError, UnicodeError, OverflowError, RecursionError, msgspec.MsgspecError):
        return False
    return len(raw) <= LONGEST_KEYS and b"\\u0000" not in raw


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Row types of alert rules and alerts."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from sereno.monitoring.alerts.condition import Level
from sereno.monitoring.alerts.rule import Alert, AlertRule, AlertTarget, RuleOptions


class StoredRule(RuleOptions, frozen=True, kw_only=True):
    """A stored rule. `error`: why its last evaluation failed."""

    created_at: datetime
    changed_at: datetime
    changed_by: str
    error: str | None
    error_at: datetime | None


class RuleRow(StoredRule, frozen=True, kw_only=True):
    """A rule as stored, with its addresses, which are secret."""

    targets: list[AlertTarget]


@dataclass(frozen=True, slots=True)
class TargetLine:
    """A target with its address masked. `keys`: the names of the keys of the address."""

    channel: str
    address: str
    keys: list[str]


class RuleLine(StoredRule, frozen=True, kw_only=True):
    """A rule without secrets. `error`: why its last evaluation failed."""

    to: list[TargetLine]


class WatchedRule(AlertRule, frozen=True, kw_only=True):
    """A rule during its evaluation, with its position in the log."""

    hits: tuple[tuple[int, float], ...] = ()
    log_read: int | None = None
    log_reached: int | None = None


class AlertRow(Alert, frozen=True, kw_only=True):
    """One alert. Open until it has `resolved_at`; `notified_at` is null while it has not lasted long enough."""

    rule: str
    words: str
    remedy: str
    resolved_notified_at: datetime | None
    silenced_by: str | None


@dataclass(frozen=True, slots=True)
class SentAlert:
    """The content of a message about an alert."""

    id: int
    kind: str
    subject: str
    level: Level
    words: str
    remedy: str
    opened_at: datetime
    resolved_at: datetime | None
    times: int
    details: dict[str, Any] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)


class LogMatch(NamedTuple):
    """Id and time of the log lines that match, and the id up to which the log was read."""

    reached: int
    hits: list[tuple[int, float]]

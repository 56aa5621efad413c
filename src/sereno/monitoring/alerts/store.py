"""Storage of alert rules and alerts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.monitoring.alerts.condition import AlertCondition
from sereno.monitoring.alerts.rows import AlertRow, LogMatch, RuleRow, SentAlert, WatchedRule
from sereno.monitoring.alerts.rule import TASK, Alert, AlertRule, AlertStep, AlertTarget, LogRule, levels_from

_sql = queries("monitoring/alerts/store")

MOST_RULES = 1000
# Log lines that are read at once: the newest, if there are more.
LOG_BOUND = 20_000
MOST_LATELY = 1000
DEFAULT_QUEUE = "default"


_rule = msgspec.json.Decoder(RuleRow)
_watched = msgspec.json.Decoder(WatchedRule)
_alert = msgspec.json.Decoder(Alert)
_row = msgspec.json.Decoder(AlertRow)
_target = msgspec.json.Decoder(AlertTarget)
_sent = msgspec.json.Decoder(SentAlert)
_hits = msgspec.json.Decoder(list[tuple[int, float]])


def put_rule(rule: AlertRule, actor: str, *, is_code: bool = False) -> Operation[None]:
    """Create or replace a rule. `is_code`: the code declares it, so changes of an operator are not overwritten."""
    values = {"rule": encoder.encode(rule).decode(), "actor": actor, "is_code": is_code}
    yield Statement(_sql["put_rule"], values)


def remove_rule(name: str) -> Operation[bool]:
    return bool((yield Statement(_sql["remove_rule"], {"name": name})))


def close_rule(name: str) -> Operation[int]:
    """Resolve the open alerts of a rule; return their number."""
    return int((yield Statement(_sql["close_rule"], {"name": name}))[0][0])


def rules(name: str | None = None) -> Operation[list[RuleRow]]:
    rows = yield Statement(_sql["rules"], {"name": name, "most": MOST_RULES})
    return [_rule.decode(row[0]) for row in rows]


def watched() -> Operation[list[tuple[str, str | None]]]:
    """Return names and tenants of the enabled rules."""
    return [(name, tenant) for name, tenant in (yield Statement(_sql["watched"], {"most": MOST_RULES}))]


def lock_rule(name: str) -> Operation[tuple[WatchedRule, datetime] | None]:
    """Lock a rule until the end of the transaction; return it with the time, or None if it does not exist."""
    rows = yield Statement(_sql["lock_rule"], {"name": name})
    return (_watched.decode(rows[0][0]), rows[0][1]) if rows else None


def note_error(name: str, error: str) -> Operation[None]:
    yield Statement(_sql["note_error"], {"name": name, "error": error[:500].replace("\x00", "")})


def well(name: str) -> Operation[None]:
    yield Statement(_sql["well"], {"name": name})


def known(rule: str) -> Operation[list[Alert]]:
    rows = yield Statement(_sql["known"], {"rule": rule, "most": MOST_LATELY})
    return [_alert.decode(row[0]) for row in rows]


def log_hits(rule: WatchedRule, log: LogRule) -> Operation[LogMatch]:
    values = {"read": rule.log_read, "bound": LOG_BOUND, "levels": levels_from(log.level), "event": log.event}
    of = {"tenant": rule.tenant, "queue": rule.queue, "task": rule.task, "within": log.within}
    rows = yield Statement(_sql["log_hits"], values | of)
    return LogMatch(rows[0][0], _hits.decode(rows[0][1]))


def read_log(rule: WatchedRule, reached: int, hits: Sequence[tuple[int, float]]) -> Operation[None]:
    values = {"name": rule.name, "read": rule.log_reached, "reached": reached}
    yield Statement(_sql["read_log"], values | {"hits": msgspec.json.encode(hits).decode()})


def write(rule: str, steps: Sequence[AlertStep]) -> Operation[dict[tuple[str, str], int]]:
    """Store the changes of alerts; return the ids of all open or resolved alerts by kind and subject."""
    ids = {(step.kind, step.subject): step.id for step in steps if step.id is not None}
    new = [_line(step, step.condition) for step in steps if step.id is None and step.condition is not None]
    if new:
        rows = yield Statement(_sql["open"], {"rule": rule, "alerts": encoder.encode(new).decode()})
        ids |= {(kind, subject): number for number, kind, subject in rows}
    lasting = [_line(step, step.condition) for step in steps if step.id is not None and step.condition is not None]
    if lasting:
        yield Statement(_sql["seen"], {"alerts": encoder.encode(lasting).decode()})
    over = [step for step in steps if step.resolved]
    if over:
        sent_ids = [step.id for step in over if step.notification is not None]
        yield Statement(_sql["over"], {"ids": [step.id for step in over], "notified": sent_ids})
    forgotten = [step.id for step in steps if step.forgotten]
    if forgotten:
        yield Statement(_sql["forget"], {"ids": forgotten})
    return ids


def _line(step: AlertStep, found: AlertCondition) -> Mapping[str, Any]:
    return {
        "id": step.id,
        "kind": step.kind,
        "subject": step.subject,
        "level": found.level,
        "sentence": found.sentence,
        "details": found.values,
        "words": found.words,
        "remedy": found.remedy,
        "opened_at": step.opened_at,
        "openings": step.openings,
        "notified": step.notification is not None,
    }


def forget_old() -> Operation[None]:
    yield Statement(_sql["forget_old"])


def notification_queue() -> Operation[str | None]:
    """Return a queue from which a live worker sends alerts; None if there is no such worker."""
    rows = yield Statement(_sql["queue"], {"task": TASK})
    return rows[0][0] if rows else None


def sent(alert: int, job: int) -> Operation[None]:
    """Mark the message of a job as sent."""
    yield Statement(_sql["sent"], {"alert": alert, "job": job})


def message(rule: str, target: int, alert: int | None) -> Operation[tuple[AlertTarget | None, SentAlert | None]]:
    """Return the target and the alert of a message; None for one that no longer exists."""
    rows = yield Statement(_sql["message"], {"rule": rule, "target": target, "alert": alert})
    if not rows or rows[0][0] is None:
        return None, None
    where, about = rows[0]
    return _target.decode(where), None if about is None else _sent.decode(about)


def list_alerts(
    *,
    most: int,
    before: int | None = None,
    rule: str | None = None,
    is_open: bool | None = None,
    number: int | None = None,
) -> Operation[list[AlertRow]]:
    values = {"most": most, "before": before, "rule": rule, "open": is_open, "id": number}
    return [_row.decode(row[0]) for row in (yield Statement(_sql["list"], values))]


def silence(number: int, until: datetime | None, actor: str) -> Operation[bool]:
    """Silence an alert. Return False if it does not exist or is resolved."""
    return bool((yield Statement(_sql["silence"], {"id": number, "until": until, "actor": actor})))

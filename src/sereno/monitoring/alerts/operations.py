"""Operations on alert rules and alerts. An address may be a secret: it is never shown."""

from collections.abc import Callable, Sequence
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments, Refused
from sereno.jobs import transitions
from sereno.jobs.job import JobOptions, NewJob, check_date
from sereno.monitoring.alerts import store
from sereno.monitoring.alerts.rows import AlertRow, RuleLine, RuleRow, StoredRule, TargetLine
from sereno.monitoring.alerts.rule import TASK, AlertRule, AlertTarget, checked
from sereno.notifications.operations import masked

HIDDEN = "…"
# Alerts run before all other jobs of their queue.
PRIORITY = 0


def masked_address(address: str) -> str:
    """Return the address masked; of a URL only the host is shown, because the rest may be a secret."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return HIDDEN
    return f"{parts.scheme}://{host}/{HIDDEN}" if parts.scheme and host else masked(address)


# Rules


def list_rules() -> Operation[list[RuleLine]]:
    """Return all rules by name."""
    return [_line(row) for row in (yield from store.rules())]


def show_rule(name: str) -> Operation[RuleLine | None]:
    found = yield from _find(name)
    return None if found is None else _line(found)


def set_rule(
    rule: AlertRule, *, check: Callable[[AlertRule], AlertRule] = checked, actor: str | None = None
) -> Operation[RuleLine]:
    """Create or replace a rule. An address that is given masked keeps its stored value.

    `check`: further checks where the channels are known.
    """
    before = yield from _find(rule.name)
    whole = check(checked(_with_addresses(rule, [] if before is None else before.targets)))
    who = actor or default_actor()
    yield from store.put_rule(whole, who)
    if not whole.enabled:
        yield from store.close_rule(whole.name)
    line = yield from show_rule(rule.name)
    assert line is not None
    detail = {
        "kinds": line.kinds,
        "log": line.log,
        "to": line.to,
        "level": line.level,
        "tenant": line.tenant,
        "queue": line.queue,
        "task": line.task,
        "for_seconds": line.for_seconds,
        "again_seconds": line.again_seconds,
        "enabled": line.enabled,
    }
    yield from audit.audit(who, "alert.set", f"alert rule {rule.name}", detail)
    return line


def remove_rule(name: str, *, actor: str | None = None) -> Operation[bool]:
    """Remove a rule and resolve its open alerts. Return False if it does not exist."""
    if not (yield from _find(name)):
        return False
    yield from store.remove_rule(name)
    closed = yield from store.close_rule(name)
    yield from audit.audit(actor or default_actor(), "alert.remove", f"alert rule {name}", {"closed": closed})
    return True


def try_rule(name: str, *, actor: str | None = None) -> Operation[list[int]]:
    """Enqueue a test message to each target; return the ids of the jobs. Raise Refused if the rule does not exist."""
    found = yield from _find(name)
    if found is None:
        raise Refused(f"no alert rule {name!r:.60}: see sereno alert rules")
    queue = yield from store.notification_queue()
    options = JobOptions(queue=queue or store.DEFAULT_QUEUE, priority=PRIORITY)
    wanted = [
        NewJob(TASK, msgspec.json.encode({"rule": name, "target": number, "what": "test"}), options)
        for number in range(len(found.targets))
    ]
    made = yield from transitions.enqueue(wanted)
    yield from audit.audit(actor or default_actor(), "alert.test", f"alert rule {name}", {})
    return [job.id for job in made]


# Alerts


def list_alerts(
    most: int, before: int | None = None, *, rule: str | None = None, is_open: bool | None = None
) -> Operation[list[AlertRow]]:
    """Return alerts, newest first. `is_open`: only open ones, or only resolved ones; None for all."""
    return store.list_alerts(most=most, before=before, rule=rule, is_open=is_open)


def silence(number: int, until: datetime | None, *, actor: str | None = None) -> Operation[AlertRow | None]:
    """Silence an alert and its end until a time; `until=None` ends the silence. Return None if it is not open."""
    check_date("until", until)
    who = actor or default_actor()
    if not (yield from store.silence(number, until, who)):
        return None
    yield from audit.audit(who, "alert.silence", f"alert {number}", {"until": until})
    (row,) = yield from store.list_alerts(most=1, number=number)
    return row


def _find(name: str) -> Operation[RuleRow | None]:
    # PostgreSQL cannot store a NUL byte, so no such name exists.
    if "\x00" in name:
        return None
    found = yield from store.rules(name)
    return found[0] if found else None


def _line(row: RuleRow) -> RuleLine:
    to = [TargetLine(each.channel, masked_address(each.address), sorted(each.keys)) for each in row.targets]
    return RuleLine(to=to, **{name: getattr(row, name) for name in StoredRule.__struct_fields__})


def _with_addresses(rule: AlertRule, before: Sequence[AlertTarget]) -> AlertRule:
    """Replace masked addresses with the stored ones: at the same position, or the only one that matches."""
    targets = [_stored(target, place, before) for place, target in enumerate(rule.targets)]
    return msgspec.structs.replace(rule, targets=targets)


def _stored(target: AlertTarget, place: int, before: Sequence[AlertTarget]) -> AlertTarget:
    if HIDDEN not in target.address:
        return target
    alike = [
        (number, each)
        for number, each in enumerate(before)
        if each.channel == target.channel and masked_address(each.address) == target.address
    ]
    found = next((each for number, each in alike if number == place), alike[0][1] if len(alike) == 1 else None)
    if found is None:
        raise InvalidArguments("a masked address (…) must match a stored address of the rule: write it in full")
    return AlertTarget(channel=found.channel, address=found.address, keys=target.keys or found.keys)

"""Conditions of jobs that wait for others, and of jobs that no live worker can run."""

from collections.abc import Mapping
from typing import Any

from sereno.database.statement import Operation, Statement, queries
from sereno.duration import duration_text
from sereno.jobs import requirements
from sereno.monitoring.alerts.condition import AlertCondition, command, condition

_sql = queries("monitoring/alerts/workflow_conditions")

# Seconds. Jobs may wait this long for a dead one: most dead letters are retried or deleted earlier.
DEAD_AWAITED = 600.0
# Seconds without the end of a job after which an open group is stalled.
GROUP_STALLED = 3600.0
# Bounds: conditions of one kind, dead letters or groups that are read to find them, and open jobs read of each group.
MOST = 20
BOUND = 10_000


def links(tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    """Return the conditions of dead jobs that others wait for, and of groups without progress."""
    values = {"tenant": tenant, "bound": BOUND, "most": MOST}
    found = [
        condition(
            "dependency.dead", str(job), "warn", f"sereno job retry {job}", since=since, job=str(job), task=task,
            count=count, age=duration_text(DEAD_AWAITED),
        )
        for job, task, since, count in (yield Statement(_sql["dead_awaited"], values | {"seconds": DEAD_AWAITED}))
    ]  # fmt: skip
    for group, name, since, left in (yield Statement(_sql["stalled"], values | {"seconds": GROUP_STALLED})):
        remedy, age = command("sereno group show", str(group)), duration_text(GROUP_STALLED)
        shown = f"{group} ({name})" if name else str(group)
        found.append(
            condition("group.stalled", str(group), "warn", remedy, since=since, group=shown, count=left, age=age)
        )
    return found


def unmet(_tenant: str | None, _late: float) -> Operation[list[AlertCondition]]:
    """Return the conditions of ready jobs that require a version or a key that no live worker has.

    Tasks that no live worker knows at all are reported as `task.unknown`.
    """
    found = yield from requirements.unmet()
    return [
        condition(
            "requirement.unmet",
            f"{each.task} in {each.queue}: {_text(each.requires)}",
            "bad",
            "sereno doctor",
            task=each.task,
            queue=each.queue,
            requires=_text(each.requires),
        )
        for each in found
        if each.versions
    ]


def _text(requires: Mapping[str, Any]) -> str:
    """Return the requirements in words that need no translation: "version 2, key 2026b"."""
    return ", ".join(f"{name} {value}" for name, value in sorted(requires.items(), reverse=True))

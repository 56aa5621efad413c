"""The cron monitors of Sentry: their names, and their rules as Sentry writes them. Used by `sereno.contrib.sentry`."""

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any

from sereno.duration import seconds
from sereno.schedules.rules.when import Cron, Daily, Every, When

MINUTE = 60
# Characters of a name in Sentry.
LONGEST_SLUG = 50
# Minutes by which a check-in may be late, beside the spread of the schedule.
MARGIN = 5
# Fields of a crontab that Sentry knows: none for seconds.
FIELDS = 5
_UNITS = (("week", 10_080), ("day", 1_440), ("hour", 60), ("minute", 1))


def monitor_slug(key: str, taken: Iterable[str] = ()) -> str:
    """Return the name of the monitor of a schedule: lower case letters, digits, `-` and `_`."""
    slug = re.sub(r"[^a-z0-9_]+", "-", key.lower()).strip("-") or "schedule"
    if len(slug) <= LONGEST_SLUG and slug not in taken:
        return slug
    # Two keys may differ in what a name cannot have.
    suffix = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{slug[: LONGEST_SLUG - len(suffix) - 1]}-{suffix}"


def monitor_config(when: When, timeout: float | None) -> dict[str, Any] | None:
    """Return the configuration of a monitor; None for a rule that Sentry cannot follow. `timeout`: of an attempt."""
    match when:
        case Cron() if len(when.expression.split()) == FIELDS:
            schedule: dict[str, Any] = {"type": "crontab", "value": when.expression}
        case Daily():
            hour, minute, *_ = when.at.split(":")
            schedule = {"type": "crontab", "value": f"{int(minute)} {int(hour)} * * *"}
        case Every() if seconds(when.interval) % MINUTE == 0:
            schedule = _interval(int(seconds(when.interval)) // MINUTE)
        case _:
            return None
    config = {"schedule": schedule, "timezone": when.tz, "checkin_margin": MARGIN + _minutes(seconds(when.spread))}
    return config if timeout is None else config | {"max_runtime": _minutes(timeout)}


def _interval(minutes: int) -> dict[str, Any]:
    unit, size = next((unit, size) for unit, size in _UNITS if minutes % size == 0)
    return {"type": "interval", "value": minutes // size, "unit": unit}


def _minutes(length: float) -> int:
    return math.ceil(length / MINUTE)

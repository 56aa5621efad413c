"""Builds the job of a fire from its schedule, with placeholders filled in."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from sereno.schedules.fire_placeholders import filled
from sereno.schedules.firing import SECOND
from sereno.schedules.rules.when import decode
from sereno.zones import moment, zone

# Fields of a schedule that are not fields of its job.
_NOT_THE_JOBS = ("key", "expires_after")


def fire_job(details: Mapping[str, Any], rule: str, nominal: int, now: int) -> dict[str, Any]:
    """Return the object that the enqueue statements read. `nominal`: the instant of the rule, without the spread."""
    at = local(rule, nominal)
    key, tenant = details["key"], details["tenant"]
    row = {name: value for name, value in details.items() if value is not None and name not in _NOT_THE_JOBS}
    # Limit keys are computed from what the code declares.
    row["by_rules"] = True
    row["args"] = filled(details["args"], at, key, tenant)
    if row.get("unique_key") is not None:
        row["unique_key"] = filled(row["unique_key"], at, key, tenant)
    if details["expires_after"] is not None:
        row["expires_at"] = moment(now + round(details["expires_after"] * SECOND))
    return row


def local(rule: str, at: int) -> datetime:
    """Return an instant in the zone of a rule."""
    return moment(at).astimezone(_zone_of(rule))


@lru_cache(maxsize=4096)
def _zone_of(rule: str) -> ZoneInfo:
    return zone(getattr(decode(rule), "tz", "UTC")).info

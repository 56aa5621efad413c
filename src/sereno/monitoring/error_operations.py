"""Errors: failures grouped by fingerprint; list, show and mute them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.bounded_count import BoundedCount
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.queries import error_groups
from sereno.jobs.queries.error_groups import KEPT_DAYS, ErrorGroup, ErrorHour, ErrorSample, TenantHit
from sereno.search.sql_terms import SearchParams

Sort = Literal["last", "count"]

DAY = 86400.0
MOST_TENANTS = 20
LONGEST_NOTE = 500


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """One error. `search` finds its dead jobs.

    `tries`: how many successful jobs of the task took one attempt, two, and so on; the last number covers all beyond.
    `tenants`: those with most failures. `sample`: the newest failure, while its job is retained.
    """

    group: ErrorGroup
    hours: Sequence[ErrorHour]
    tenants: Sequence[TenantHit]
    dead: BoundedCount
    tries: Sequence[int]
    sample: ErrorSample | None
    search: str


def list_groups(
    *,
    since: Duration = DAY,
    task: str | None = None,
    tenant: str | None = None,
    sort: Sort = "last",
    muted: bool = False,
    search_params: SearchParams | None = None,
    limit: int = 50,
    skip: int = 0,
) -> Operation[list[ErrorGroup]]:
    """Return the errors of a span; with a tenant, counted for that tenant only. `muted`: include muted errors.

    `search_params`: the terms of a search; a term `muted:` overrides `muted`.
    """
    return error_groups.list_groups(
        span(since),
        task=task,
        tenant=tenant,
        by_count=sort == "count",
        muted=muted or (search_params is not None and "muted" in search_params.names),
        search_params=search_params,
        limit=limit,
        skip=skip,
    )


def show(fingerprint: str, *, since: Duration = DAY) -> Operation[ErrorDetail | None]:
    """Return an error with its hours, tenants and newest failure; None if it does not exist."""
    length = span(since)
    group = yield from error_groups.find_group(fingerprint, length)
    if group is None:
        return None
    return ErrorDetail(
        group,
        hours=(yield from error_groups.hours(fingerprint, length)),
        tenants=(yield from error_groups.tenants(fingerprint, length, MOST_TENANTS)),
        dead=(yield from error_groups.dead(fingerprint)),
        tries=(yield from error_groups.tries(group.task, length)),
        sample=(yield from error_groups.sample(fingerprint, group.last_job_id)),
        search=f"state:dead fingerprint:{fingerprint}",
    )


def mute(
    fingerprint: str, until: datetime | None, *, note: str | None = None, actor: str | None = None
) -> Operation[ErrorGroup | None]:
    """Mute an error until a time; None unmutes it. A note stays until it is replaced; an empty one removes it."""
    if until is not None and until.tzinfo is None:
        raise InvalidArguments("until needs a time zone: a naive time means a different instant elsewhere")
    if note is not None and len(note) > LONGEST_NOTE:
        raise InvalidArguments(f"a note has at most {LONGEST_NOTE} characters, this one has {len(note):,}")
    is_there = yield from error_groups.mute(fingerprint, until, note or None, with_note=note is not None)
    if not is_there:
        return None
    action = "error.unmute" if until is None else "error.mute"
    detail = {"until": until, "note": note}
    yield from audit.audit(actor or default_actor(), action, f"error {fingerprint}", detail)
    return (yield from error_groups.find_group(fingerprint, DAY))


def span(since: Duration) -> float:
    """Return the span in seconds, at most the retention of error counts."""
    try:
        length = seconds(since)
    except ConfigurationError as error:
        raise InvalidArguments(str(error)) from None
    if not 0 < length <= KEPT_DAYS * DAY:
        raise InvalidArguments(f"since {since!r:.60}: failures are counted for {KEPT_DAYS} days, write 1h, 24h or 7d")
    return length

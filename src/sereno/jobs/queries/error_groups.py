"""Error groups: failures by kind, with their first and last occurrence, counts and tenants."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.database.vacuum import PAGE
from sereno.search.sql_terms import SearchParams
from sereno.telemetry.metrics import MetricTally

_sql = queries("jobs/queries/error_groups")

# Most error groups that are stored. At this number, new groups wait until the least recently seen ones are deleted.
MOST_GROUPS = 10_000
LEFT_AFTER_FORGETTING = 9_000
# Error groups deleted per page.
KINDS = 1_000
# Tenants that are counted separately, per error group and hour.
MOST_TENANTS = 100
# Days after its last occurrence that a group is deleted.
KEPT_DAYS = 30
# Newest hourly counts that are read per group to count the tenants it affects.
BREADTH_BOUND = 3000


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """One kind of failure. `count`: in the requested time range; `total`: since `first_at`.

    `message`: of the newest failure. `frame`: where it was raised. `hours`: counts of the last 24, oldest first.
    """

    fingerprint: str
    task: str
    error_type: str
    message: str
    frame: str
    first_at: datetime
    last_at: datetime
    total: int
    count: int
    last_job_id: int
    muted_until: datetime | None
    note: str | None
    hours: Sequence[int]


@dataclass(frozen=True, slots=True)
class ErrorHour:
    """Number of failures in the hour that starts at `at`."""

    at: datetime
    count: int


@dataclass(frozen=True, slots=True)
class TenantHit:
    """Number of failures of a tenant; None: jobs without a tenant, and tenants beyond the first hundred of an hour."""

    tenant: str | None
    count: int


@dataclass(frozen=True, slots=True)
class ErrorSample:
    """One failure, as stored with the job's attempt."""

    job_id: int
    attempt: int
    finished_at: datetime
    error_type: str | None
    error_message: str | None
    reason: str | None
    traceback: str | None
    tenant: str | None


_group = msgspec.json.Decoder(ErrorGroup)
_hour = msgspec.json.Decoder(ErrorHour)
_tenant = msgspec.json.Decoder(TenantHit)
_sample = msgspec.json.Decoder(ErrorSample)


def add(tally: MetricTally) -> Operation[None]:
    """Add a worker's failures, and the number of tries its successes took."""
    if tally.failures:
        groups = [{"fingerprint": name, **msgspec.structs.asdict(each)} for name, each in tally.failures.items()]
        yield Statement(_sql["add"], {"lines": encoder.encode(groups).decode(), "most": MOST_GROUPS})
        pairs = [(*pair.split("\t", 1), count) for pair, count in tally.hit.items()]
        hours = [{"fingerprint": name, "tenant": tenant, "count": count} for name, tenant, count in pairs]
        yield Statement(_sql["add_hours"], {"lines": encoder.encode(hours).decode(), "most": MOST_TENANTS})
    tries = [{"task": task, "tries": counts} for task, counts in _tries(tally).items()]
    if tries:
        yield Statement(_sql["add_tries"], {"lines": encoder.encode(tries).decode()})


def _tries(tally: MetricTally) -> dict[str, list[int]]:
    """Return, by task, how many successes took one try, two tries and so on."""
    succeeded: dict[str, int] = {}
    for key, count in tally.finished.items():
        pair, _, outcome = key.rpartition("\t")
        task = pair.partition("\t")[2]
        if outcome == "succeeded":
            succeeded[task] = succeeded.get(task, 0) + count
    more = {task: tally.tries.get(task, []) for task in succeeded}
    return {task: [max(0, count - sum(more[task])), *more[task]] for task, count in succeeded.items()}


def forget() -> Operation[bool]:
    """Delete a page of groups not seen for a month, or beyond the maximum; return whether there may be more."""
    bounds = {"days": KEPT_DAYS, "left": LEFT_AFTER_FORGETTING, "kinds": KINDS, "most": PAGE}
    return bool((yield Statement(_sql["forget"], bounds))[0][0])


def list_groups(
    since: float,
    *,
    task: str | None = None,
    tenant: str | None = None,
    by_count: bool = False,
    muted: bool = False,
    search_params: SearchParams | None = None,
    limit: int = 50,
    skip: int = 0,
) -> Operation[list[ErrorGroup]]:
    """Return groups seen in the last `since` seconds, latest or most frequent first. `muted`: include muted ones."""
    given = {"task": task, "tenant": tenant, "by_count": by_count, "muted": muted, "limit": limit, "skip": skip}
    terms = None if search_params is None else search_params.terms
    rows = yield Statement(_sql["list"], given | {"since": since, "fingerprint": None, "terms": terms})
    return [_group.decode(row[0]) for row in rows]


def find_group(fingerprint: str, since: float) -> Operation[ErrorGroup | None]:
    """Return the group, whether or not it is muted or was seen in the last `since` seconds."""
    given = {"task": None, "tenant": None, "by_count": False, "muted": True, "limit": 1, "skip": 0}
    rows = yield Statement(_sql["list"], given | {"since": since, "fingerprint": fingerprint, "terms": None})
    return _group.decode(rows[0][0]) if rows else None


def hours(fingerprint: str, since: float) -> Operation[list[ErrorHour]]:
    rows = yield Statement(_sql["hours"], {"fingerprint": fingerprint, "since": since})
    return [_hour.decode(row[0]) for row in rows]


def tenants(fingerprint: str, since: float, most: int) -> Operation[list[TenantHit]]:
    rows = yield Statement(_sql["tenants"], {"fingerprint": fingerprint, "since": since, "most": most})
    return [_tenant.decode(row[0]) for row in rows]


def breadth(fingerprints: Sequence[str], since: float) -> Operation[dict[str, int]]:
    """Return how many tenants each group affects, within the newest BREADTH_BOUND counts."""
    given = {"fingerprints": list(fingerprints), "since": since, "bound": BREADTH_BOUND}
    return dict((yield Statement(_sql["breadth"], given)))


def tries(task: str, since: float) -> Operation[list[int]]:
    """Return how many successes took one try, two, and so on; the last number counts all that took more."""
    rows = yield Statement(_sql["tries"], {"task": task, "since": since})
    return list(rows[0][0] or ())


def dead(fingerprint: str) -> Operation[BoundedCount]:
    """Return the number of dead letters with this failure."""
    rows = yield Statement(_sql["dead"], {"fingerprint": fingerprint, "bound": BOUND})
    return BoundedCount.bounded(rows[0][0])


def sample(fingerprint: str, job_id: int) -> Operation[ErrorSample | None]:
    rows = yield Statement(_sql["sample"], {"fingerprint": fingerprint, "job": job_id})
    return _sample.decode(rows[0][0]) if rows else None


def mute(fingerprint: str, until: datetime | None, note: str | None, *, with_note: bool) -> Operation[bool]:
    """Mute until a time, or unmute with None. Returns False when there is no such group."""
    given = {"fingerprint": fingerprint, "until": until, "note": note, "with_note": with_note}
    rows = yield Statement(_sql["mute"], given)
    return bool(rows)

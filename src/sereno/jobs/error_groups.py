"""Failures by kind: which there are, since when, how often, and for whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.database.vacuum import PAGE
from sereno.jobs.rows import BOUND, Count
from sereno.search.sql_terms import SearchParams
from sereno.telemetry.metrics import Tally

_sql = queries("jobs/error_groups")

# So many kinds are kept. New ones then wait until those that were not seen for longest are forgotten.
MOST_GROUPS = 10_000
LEFT_AFTER_FORGETTING = 9_000
# Kinds that are forgotten in one page.
KINDS = 1_000
# So many tenants are told apart, of one kind in one hour.
MOST_TENANTS = 100
KEPT_DAYS = 30
# To say how many tenants one kind hit, so many of its newest counts are looked at.
BREADTH_BOUND = 3000


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """One kind of failure. `count`: in the span that was asked for; `total`: since `first_at`.

    `message`: what the newest one said. `frame`: where it was raised. `hours`: the last 24, the oldest first.
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
    """How often in the hour that began then."""

    at: datetime
    count: int


@dataclass(frozen=True, slots=True)
class TenantHit:
    """How often for whom; null is without a tenant, and those beyond the first hundred of an hour."""

    tenant: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One failure, as the job's attempt has it."""

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
_sample = msgspec.json.Decoder(Sample)


def add(tally: Tally) -> Operation[None]:
    """What a worker has seen fail, and how many tries its successes took."""
    if tally.failures:
        groups = [{"fingerprint": name, **msgspec.structs.asdict(each)} for name, each in tally.failures.items()]
        yield Statement(_sql["add"], {"lines": encoder.encode(groups).decode(), "most": MOST_GROUPS})
        pairs = [(*pair.split("\t", 1), count) for pair, count in tally.hit.items()]
        hours = [{"fingerprint": name, "tenant": tenant, "count": count} for name, tenant, count in pairs]
        yield Statement(_sql["add_hours"], {"lines": encoder.encode(hours).decode(), "most": MOST_TENANTS})
    tries = [{"task": task, "tries": counts} for task, counts in _tries(tally).items()]
    if tries:
        yield Statement(_sql["add_tries"], {"lines": encoder.encode(tries).decode()})


def _tries(tally: Tally) -> dict[str, list[int]]:
    """By task, beginning with the successes of one try: whatever did not take more."""
    succeeded: dict[str, int] = {}
    for key, count in tally.finished.items():
        pair, _, outcome = key.rpartition("\t")
        task = pair.partition("\t")[2]
        if outcome == "succeeded":
            succeeded[task] = succeeded.get(task, 0) + count
    more = {task: tally.tries.get(task, []) for task in succeeded}
    return {task: [max(0, count - sum(more[task])), *more[task]] for task, count in succeeded.items()}


def forget() -> Operation[bool]:
    """A page of what was not seen for a month, and of what there is no room for; whether there may be more."""
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
    """Seen in the last so many seconds. The latest first, or the most frequent; `muted`: also those."""
    given = {"task": task, "tenant": tenant, "by_count": by_count, "muted": muted, "limit": limit, "skip": skip}
    terms = None if search_params is None else search_params.terms
    rows = yield Statement(_sql["list"], given | {"since": since, "fingerprint": None, "terms": terms})
    return [_group.decode(row[0]) for row in rows]


def find_group(fingerprint: str, since: float) -> Operation[ErrorGroup | None]:
    """Muted or not, and also when it was not seen of late."""
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
    """How many tenants each kind hit, as far as is looked."""
    given = {"fingerprints": list(fingerprints), "since": since, "bound": BREADTH_BOUND}
    return dict((yield Statement(_sql["breadth"], given)))


def tries(task: str, since: float) -> Operation[list[int]]:
    """How many successes took one try, two, and so on; the last number is for all that took more."""
    rows = yield Statement(_sql["tries"], {"task": task, "since": since})
    return list(rows[0][0] or ())


def dead(fingerprint: str) -> Operation[Count]:
    """Dead letters that ended by it."""
    rows = yield Statement(_sql["dead"], {"fingerprint": fingerprint, "bound": BOUND})
    return Count.bounded(rows[0][0])


def sample(fingerprint: str, job_id: int) -> Operation[Sample | None]:
    rows = yield Statement(_sql["sample"], {"fingerprint": fingerprint, "job": job_id})
    return _sample.decode(rows[0][0]) if rows else None


def mute(fingerprint: str, until: datetime | None, note: str | None, *, with_note: bool) -> Operation[bool]:
    """False when there is no such kind."""
    given = {"fingerprint": fingerprint, "until": until, "note": note, "with_note": with_note}
    rows = yield Statement(_sql["mute"], given)
    return bool(rows)

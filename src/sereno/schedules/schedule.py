"""The definition of a schedule: a key, a job, a rule, and its policies for missed and overlapping runs."""

import hashlib
from datetime import datetime
from functools import lru_cache
from typing import Any, TypedDict

import msgspec

from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments, InvalidSchedule
from sereno.jobs.job import NewJob, check_date
from sereno.schedules.fire_placeholders import check_names, has_names
from sereno.schedules.firing import Missed, Overlap
from sereno.schedules.rules.when import Once, When, checked, encode
from sereno.text import check_text

MISSED = ("skip", "latest", "all")
OVERLAPS = ("skip", "allow", "queue_one", "cancel_previous")
# Upper bound of missed_limit: more missed runs than this at once would flood the queue.
MOST_CAUGHT_UP = 10_000
LONGEST_WINDOW = 366 * 86400.0


class SchedulePolicies(TypedDict, total=False):
    """The policies and limits of a schedule.

    missed         "latest" (default), "skip" or "all", with missed_limit (100) and missed_window ("24h")
    max_lateness   an instant that is fired later than this is skipped
    overlap        "skip" (default), "allow", "queue_one" or "cancel_previous"
    starts_at, ends_at, max_fires    when it starts and ends, and how many fires it makes at most
    disable_after  number of consecutive dead runs that disables it
    expires_after  a job that has not started after this time expires
    """

    missed: Missed
    missed_limit: int
    missed_window: Duration
    max_lateness: Duration | None
    overlap: Overlap
    starts_at: datetime | None
    ends_at: datetime | None
    max_fires: int | None
    disable_after: int | None
    expires_after: Duration | None


class ScheduleOptions(SchedulePolicies, total=False):
    """The options of a schedule besides its key, its job and its rule. `tenant` owns the schedule and its jobs."""

    tenant: str | None


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """The complete definition of a schedule, without its state."""

    key: str
    job: NewJob
    when: When
    missed: Missed = "latest"
    missed_limit: int = 100
    missed_window: Duration = "24h"
    max_lateness: Duration | None = None
    overlap: Overlap = "skip"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_fires: int | None = None
    disable_after: int | None = None
    expires_after: Duration | None = None

    def checked(self) -> "NewSchedule":
        """Return this schedule with its rule in canonical form. Raises InvalidSchedule."""
        try:
            check_text("key", self.key)
            check_date("starts_at", self.starts_at)
            check_date("ends_at", self.ends_at)
        except InvalidArguments as error:
            raise self.refusal(str(error)) from None
        _check_choice(self, "missed", MISSED)
        _check_choice(self, "overlap", OVERLAPS)
        self._check_numbers()
        if self.starts_at is not None and self.ends_at is not None and self.ends_at <= self.starts_at:
            raise self.refusal(f"ends_at {self.ends_at} is not after starts_at {self.starts_at}: it could never fire")
        if self.missed == "all" and self.overlap != "allow":
            raise self.refusal(
                'missed="all" starts several runs at once: it needs overlap="allow"; '
                'or use missed="latest", which starts one run for all of them'
            )
        self._check_job()
        try:
            return msgspec.structs.replace(self, when=_spelled(self.when))
        except InvalidSchedule as error:
            raise self.refusal(str(error)) from None

    def refusal(self, why: str) -> InvalidSchedule:
        return InvalidSchedule(f"schedule {self.key!r:.80}: {why}")

    def _check_numbers(self) -> None:
        for name, most in (("missed_limit", MOST_CAUGHT_UP), ("max_fires", 2**62), ("disable_after", 2**30)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value <= most):
                raise self.refusal(f"{name} {value!r:.40} is out of range: 1 to {most}")
        for name in ("missed_window", "max_lateness", "expires_after"):
            value = getattr(self, name)
            try:
                length = 0.0 if value is None else seconds(value)
            except ConfigurationError as error:
                raise self.refusal(f"{name}: {error}") from None
            if length > LONGEST_WINDOW:
                raise self.refusal(f"{name} {value!r:.40} is out of range: at most 366 days")

    def _check_job(self) -> None:
        if not isinstance(self.job, NewJob):
            raise self.refusal(f"it needs a job, such as task.job(...), not {self.job!r:.60}")
        options = self.job.options
        if options.run_at is not None or options.delay is not None:
            raise self.refusal("its job has a run_at or a delay: the schedule decides when it runs")
        if options.expires_at is not None:
            raise self.refusal("its job has an expires_at, a fixed date: give the schedule expires_after instead")
        if options.on_conflict == "raise":
            raise self.refusal('on_conflict="raise" has no caller to raise to: use "keep" or "replace"')
        try:
            check_names([msgspec.json.decode(self.job.args), options.unique_key])
        except InvalidSchedule as error:
            raise self.refusal(str(error)) from None

    def as_row(self) -> dict[str, Any]:
        """Return the object that the upsert statement reads. The store adds the first instant: it knows the time."""
        options = self.job.options
        return {
            "key": self.key,
            "rule": msgspec.Raw(rule_text(self.when)),
            "shift": shift(self.key, self.when),
            "task": self.job.task,
            "args": msgspec.Raw(self.job.args),
            "templated": has_names(self.job.args.decode()) or has_names(options.unique_key or ""),
            "queue": options.queue,
            "priority": options.priority,
            "tenant": options.tenant,
            "trace": options.trace,
            "tags": list(options.tags) or None,
            "unique_key": options.unique_key,
            "unique_for": None if options.unique_for in ("live", "forever") else seconds(options.unique_for),
            "unique_forever": True if options.unique_for == "forever" else None,
            "on_conflict": None if options.unique_key is None else options.on_conflict,
            "expires_after": None if self.expires_after is None else seconds(self.expires_after),
            "missed": self.missed,
            "missed_limit": self.missed_limit,
            "missed_window": seconds(self.missed_window),
            "max_lateness": None if self.max_lateness is None else seconds(self.max_lateness),
            "overlap": self.overlap,
            "starts_at": self.starts_at,
            "ends_at": self.ends_at,
            "max_fires": self.max_fires,
            "disable_after": self.disable_after,
            "requires": None if self.job.requires is None else msgspec.Raw(self.job.requires),
        }


@lru_cache(maxsize=4096)
def rule_text(when: When) -> bytes:
    """Return the JSON of a rule. Cached: a million schedules share a few hundred rules."""
    return encode(when)


@lru_cache(maxsize=4096)
def _known(when: When) -> When:
    return checked(when)


def _spelled(when: When) -> When:
    try:
        return _known(when)
    except TypeError:
        # Not hashable, so it is not a rule: `checked` raises the error that explains it.
        return checked(when)


def shift(key: str, when: When) -> int:
    """Return the offset inside the spread, in microseconds: constant for a key, and different between keys."""
    window = 0 if isinstance(when, Once) else round(seconds(when.spread) * 1_000_000)
    if not window:
        return 0
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    # Whole milliseconds keep the times readable.
    return int.from_bytes(digest) % window // 1000 * 1000


def _check_choice(schedule: NewSchedule, name: str, known: tuple[str, ...]) -> None:
    value = getattr(schedule, name)
    if value not in known:
        raise schedule.refusal(f"{name} is one of {', '.join(known)}, not {value!r:.40}")

"""A job as requested (NewJob), as accepted (Job), and as claimed by a worker (ClaimedJob)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.text import check_text

if TYPE_CHECKING:
    from sereno.jobs.result import ResultType

OnConflict = Literal["keep", "replace", "raise"]
UniqueFor = Duration | Literal["live", "forever"]
# What a dead predecessor means for the jobs that wait for it.
OnDead = Literal["wait", "continue", "cancel"]

PRIORITIES = range(10)
DEFAULT_PRIORITY = 5
# Outside this range, PostgreSQL, Python and the time zone data do not agree on dates.
EARLIEST = datetime(1900, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
# Seconds. A longer wait could end after LATEST.
LONGEST_WAIT = 1000 * 365 * 86400.0
# Predecessors of a job; a group has no limit.
MOST_PREDECESSORS = 1000
# Tags of a job, and characters of a tag; lists show the tags of every job.
MOST_TAGS, LONGEST_TAG = 50, 200


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything about a job except its task and arguments. None means: the default of the task."""

    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    delay: Duration | None = None
    tenant: str | None = None
    unique_key: str | None = None
    unique_for: UniqueFor = "live"
    on_conflict: OnConflict = "keep"
    expires_at: datetime | None = None
    tags: Sequence[str] = ()
    trace: str | None = None
    after: Sequence[int] = ()
    on_dead: OnDead = "wait"
    group_id: int | None = None
    # Publish to the carrier of the queue without storing the job in PostgreSQL; None: the default of the queue.
    direct: bool | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether nothing but the queue and the priority is set."""
        others = (self.run_at, self.delay, self.tenant, self.unique_key, self.expires_at, self.trace, self.group_id)
        return others == (None,) * len(others) and not self.tags and not self.after

    def checked(self) -> "JobOptions":
        """Return itself, or raise InvalidArguments that names the wrong option."""
        if self.run_at is not None and self.delay is not None:
            raise InvalidArguments("run_at and delay exclude each other: give one of them")
        for name in ("run_at", "expires_at"):
            check_date(name, getattr(self, name))
        for name in ("queue", "tenant", "unique_key", "trace"):
            check_text(name, getattr(self, name))
        if isinstance(self.tags, str):
            raise InvalidArguments(f"tags is a list of texts, not the text {self.tags!r:.60}")
        check_tags(self.tags)
        if self.priority is not None and (type(self.priority) is not int or self.priority not in PRIORITIES):
            raise InvalidArguments(f"priority {self.priority} is out of range: 0 (first) to 9 (last)")
        if self.delay is not None:
            _check_wait("delay", self.delay)
        if self.unique_for not in ("live", "forever"):
            _check_wait("unique_for", self.unique_for)
        if self.on_conflict not in ("keep", "replace", "raise"):
            raise InvalidArguments(f'on_conflict is "keep", "replace" or "raise", not {self.on_conflict!r}')
        self._check_links()
        if self.unique_key is None and (self.unique_for != "live" or self.on_conflict != "keep"):
            raise InvalidArguments("unique_for and on_conflict need a unique_key")
        return self

    def _check_links(self) -> None:
        check_on_dead(self.on_dead)
        if len(self.after) > MOST_PREDECESSORS:
            raise InvalidArguments(
                f"after: {len(self.after):,} jobs are too many: at most {MOST_PREDECESSORS:,}; app.group has no limit"
            )
        if self.after and self.unique_key is not None:
            raise InvalidArguments("after and unique_key exclude each other: a job that exists cannot wait for others")


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to enqueue: a task's name, its encoded arguments, and options."""

    task: str
    args: bytes
    options: JobOptions
    # Keys of its limits as JSON; None for a job without limits.
    keys: bytes | None = None
    # Some limits were given with the job and are not declared in code.
    has_own_limits: bool = False
    # Decodes what the task returns, for a job that is called by another one.
    result_type: "ResultType | None" = None
    # What its worker must have, as JSON; None for a job that every worker of its task can run.
    requires: bytes | None = None

    def is_like(self, other: "NewJob") -> bool:
        """Return whether both have the same task and options, and no limits and requirements; arguments may differ."""
        return (
            self.task == other.task
            and self.keys is None
            and other.keys is None
            and self.requires is None
            and other.requires is None
            and (self.options is other.options or self.options == other.options)
        )

    def as_row(self) -> dict[str, Any]:
        """Return the JSON object that the enqueue statements read."""
        options = self.options
        row: dict[str, Any] = {
            "task": self.task,
            "args": msgspec.Raw(self.args),
            "queue": options.queue,
            "priority": options.priority,
        }
        if options.run_at is not None:
            row["run_at"] = options.run_at
        if options.delay is not None:
            row["delay"] = seconds(options.delay)
        if options.tenant is not None:
            row["tenant"] = options.tenant
        if options.expires_at is not None:
            row["expires_at"] = options.expires_at
        if options.tags:
            row["tags"] = options.tags
        if options.trace is not None:
            row["trace"] = options.trace
        if options.group_id is not None:
            row["group_id"] = options.group_id
        if self.keys is not None:
            row["keys"] = msgspec.Raw(self.keys)
        if self.requires is not None:
            row["requires"] = msgspec.Raw(self.requires)
        if options.unique_key is not None:
            row |= self._unique_fields()
        return row

    def _unique_fields(self) -> dict[str, Any]:
        options = self.options
        row: dict[str, Any] = {"unique_key": options.unique_key, "on_conflict": options.on_conflict}
        if options.unique_for == "forever":
            row["unique_forever"] = True
        elif options.unique_for != "live":
            row["unique_for"] = seconds(options.unique_for)
        return row


class EnqueuedJob(msgspec.Struct, frozen=True, gc=False):
    """The result of an enqueue: the job's id, and whether it was created or existed already (unique key)."""

    id: int
    task: str
    created: bool = True


class FireInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The fire that created a job: its schedule, its planned time, and how many fires it covers (1 plus missed)."""

    schedule_id: int
    at: datetime
    stands_for: int = 1


class ClaimedJob(msgspec.Struct, array_like=True, gc=False):
    """A job claimed by a worker session."""

    id: int
    attempt: int
    task: str
    queue: str
    priority: int
    ready_seq: int
    tenant: str | None
    args: msgspec.Raw
    claimed_at: float
    waited: float
    failures: int = 0
    crashes: int = 0
    trace: str | None = None
    expired: bool = False
    fire: FireInfo | None = None
    # Set by the worker: when the claim returned by the monotonic clock, whether the job was claimed under limits, its
    # fair key, and its place among the jobs that wait for a slot.
    seen: float = 0.0
    limited: bool = False
    fair: str | None = None
    place: int = 0
    # Why its row could not be decoded; such a job is not run.
    unreadable: str | None = None
    # Its group, or 0 if it has none but other jobs wait for it; None for most jobs.
    link: int | None = None


def check_date(name: str, value: datetime | None) -> None:
    if value is None:
        return
    if not isinstance(value, datetime):
        raise InvalidArguments(f"{name} is a datetime with a time zone, not {value!r:.60}")
    if value.tzinfo is None:
        raise InvalidArguments(f"{name} needs a time zone: a naive time means a different instant elsewhere")
    if not EARLIEST <= value <= LATEST:
        raise InvalidArguments(f"{name} {value.isoformat()} is out of range: 1900 to 9999")


def _check_wait(name: str, value: Duration) -> None:
    try:
        length = seconds(value)
    except ConfigurationError as error:
        raise InvalidArguments(f"{name}: {error}") from None
    if length > LONGEST_WAIT:
        raise InvalidArguments(f"{name} {value!r:.60} is out of range: at most a thousand years")


def check_on_dead(value: OnDead) -> None:
    if value not in ("wait", "continue", "cancel"):
        raise InvalidArguments(f'on_dead is "wait", "continue" or "cancel", not {value!r:.60}')


def check_tags(tags: Sequence[str]) -> None:
    """Raise InvalidArguments for too many, too long or otherwise invalid tags."""
    if len(tags) > MOST_TAGS:
        raise InvalidArguments(f"{len(tags):,} tags are too many: at most {MOST_TAGS}")
    for tag in tags:
        check_text("tag", tag)
        if len(tag) > LONGEST_TAG:
            raise InvalidArguments(f"tag {tag!r:.60} has {len(tag):,} characters: at most {LONGEST_TAG}")


def check_queue_name(name: str) -> str:
    """Return a queue name from a declaration or the command line, or raise ConfigurationError."""
    try:
        check_text("queue", name)
    except InvalidArguments as error:
        raise ConfigurationError(str(error)) from None
    return name

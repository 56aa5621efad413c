"""The outcomes of an attempt, as named values, and what each one means for the job.

A handler returns normally (succeeded), or returns or raises one of:

    Retry(after="30s")      try again; counts as a failure
    Snooze("10m")           run later; does not count as a failure
    RetryAfter("30s")       the called service is throttling: run later, and close the job's rate limits for all jobs
    Dead("account closed")  do not run again; store the job as a dead letter
    Cancel("not wanted")    do not run again; not an error

Any other exception is classified by the task's policy: permanent errors make the job dead, all others are retried.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import Literal, NamedTuple, assert_never

from sereno.database.json_values import plain_datetime
from sereno.duration import Duration, seconds
from sereno.error_text import ErrorText, describe, storable
from sereno.errors import ConfigurationError, ConnectionsInUse, StepOrderChanged
from sereno.jobs.chunks import ChunkBatch
from sereno.jobs.retry import Backoff
from sereno.text import check_text

# Crashes of its own process after which a job is a dead letter.
CRASH_LIMIT = 3
# Digits of a Retry-After header in seconds; a header with this many or more is ignored.
LONGEST_HEADER = 7
# Seconds. A Retry-After header or a throttle closes a limit for at most this long.
LONGEST_CLOSE = 7 * 86400.0
# Seconds until a job that found no free connection is retried, plus up to the same again at random.
CONNECTION_PAUSE = 5.0


class Outcome(Exception):  # noqa: N818 - handlers raise these as outcomes, not as errors
    """Base class of the outcomes that a handler can return or raise."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Outcome):
    """Try again, after the given time or by the task's retry policy. Counts as a failure."""

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else seconds(after)


class Snooze(Outcome):
    """Run the job later. Does not count as a failure, and occupies no worker slot meanwhile."""

    throttle: "Throttle | None" = None
    # The name of the signal that the job waits for, if it does.
    signal: str | None = None

    def __init__(self, wait: Duration | None = None, *, until: datetime | None = None, reason: str = "") -> None:
        super().__init__(reason)
        if (wait is None) == (until is None):
            raise ConfigurationError('Snooze takes either a wait ("10m") or until=')
        if until is not None and until.tzinfo is None:
            raise ConfigurationError(
                "Snooze(until=…) needs a time zone: a naive time means a different instant elsewhere"
            )
        self.wait = None if wait is None else seconds(wait)
        # Subclasses of datetime (pendulum, pandas) are converted to plain datetimes.
        self.until = None if until is None else plain_datetime(until)


class WaitForJobs(Snooze):
    """Run the job again when these jobs have ended; raised by `ctx.call`."""

    def __init__(self, ids: Sequence[int]) -> None:
        super().__init__(0)
        self.ids = tuple(ids)


class RetryAfter(Snooze):
    """The called service is throttling (HTTP 429): snooze, and close the limit for all jobs until then.

    `limit`: the name of the limit to close; by default all rate limits of the job. Does not count as a failure.
    """

    def __init__(self, wait: Duration, *, limit: str | None = None, reason: str = "") -> None:
        check_text("limit", limit)
        super().__init__(wait, reason=reason or "throttled by the called service")
        self.throttle = Throttle(min(seconds(wait), LONGEST_CLOSE), limit)

    @classmethod
    def from_header(cls, value: str, *, limit: str | None = None, default: Duration = "30s") -> "RetryAfter":
        """Build from an HTTP Retry-After header, in seconds or as a date; `default` for anything else."""
        wait = header_seconds(value)
        return cls(default if wait is None else wait, limit=limit)


def header_seconds(value: str) -> float | None:
    """Return the wait in seconds of an HTTP Retry-After header (seconds or a date); None for anything else."""
    text = value.strip()
    if text.isdecimal() and len(text) < LONGEST_HEADER:
        return min(float(text), LONGEST_CLOSE)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if until.tzinfo is None:
        return None
    return min(max(0.0, (until - datetime.now(until.tzinfo)).total_seconds()), LONGEST_CLOSE)


class Dead(Outcome):
    """Do not run again. The whole job is stored as a dead letter, with this reason."""


class Cancel(Outcome):
    """Do not run again, without an error."""


class Released(Outcome):
    """End the attempt because its worker stops; run again at once. Does not count as a failure."""


@dataclass(frozen=True, slots=True)
class ReleasedAttempt:
    """The worker released the job; no failure is counted."""

    reason: str
    started: bool = True


@dataclass(frozen=True, slots=True)
class CrashedAttempt:
    """The process that ran only this job died."""

    reason: str


@dataclass(slots=True)
class Settlement:
    """What is stored about one attempt, in plain values only. `outcome` is that column of the attempts table."""

    outcome: Literal["succeeded", "retry", "snooze", "release", "crash", "dead", "cancelled"]
    delay: float = 0.0
    until: datetime | None = None
    reason: str | None = None
    error: ErrorText | None = None
    failed: int = 0
    crashed: int = 0
    started: bool = True
    throttle: "Throttle | None" = None
    # What the task returned, as JSON.
    result: bytes | None = None
    # Jobs that a snoozed job waits for.
    wait_for: tuple[int, ...] = ()
    signal: str | None = None
    # Of an attempt in another process, which could not store them.
    chunks: Sequence[ChunkBatch] = ()


class Throttle(NamedTuple):
    """A request to close a limit for `seconds`; no name: every rate limit of the job. No key: the key of the job."""

    seconds: float
    limit: str | None = None
    key: str | None = None


SUCCEEDED = Settlement("succeeded")

Ending = Outcome | ReleasedAttempt | CrashedAttempt | Settlement | BaseException | None


def settlement(ending: Ending, *, failures: int, crashes: int, policy: Backoff, chance: Random) -> Settlement:
    """Return what this ending means for a job with these counts under this policy.

    Pure, and never raises: when the decision fails or its values cannot be stored, the job is dead with that reason.
    """
    if ending is None:
        return SUCCEEDED
    try:
        return _plain(_decision(ending, failures, crashes, policy, chance))
    except BaseException as error:  # noqa: BLE001 - a user's policy or outcome may raise anything
        reason = "the retry decision failed"
        return Settlement("dead", reason=reason, error=describe(error), failed=1)


def _decision(
    ending: Outcome | ReleasedAttempt | CrashedAttempt | Settlement | BaseException,
    failures: int,
    crashes: int,
    policy: Backoff,
    chance: Random,
) -> Settlement:
    match ending:
        case Retry():
            return _after_failure(ending, failures, policy, chance, requested=ending.after)
        case Snooze():
            wait, reason = ending.wait or 0.0, ending.reason or None
            ids = ending.ids if isinstance(ending, WaitForJobs) else ()
            later = Settlement("snooze", delay=wait, until=ending.until, reason=reason, throttle=ending.throttle)
            later.signal, later.wait_for = ending.signal, ids
            return later
        case Dead():
            cause = None if ending.__cause__ is None else describe(ending.__cause__)
            return Settlement("dead", reason=ending.reason or "decided by the task", error=cause, failed=1)
        case Cancel():
            return Settlement("cancelled", reason=ending.reason or "decided by the task")
        case Settlement():
            # Already decided in the job's own process.
            return ending
        case Released():
            return Settlement("release", reason=ending.reason or "released by the task")
        case ReleasedAttempt():
            return Settlement("release", reason=ending.reason, started=ending.started)
        case CrashedAttempt():
            if crashes + 1 >= CRASH_LIMIT:
                return Settlement("dead", reason=f"crash loop: {ending.reason}, {crashes + 1} times", crashed=1)
            return Settlement("crash", reason=ending.reason, delay=policy.delay(1, chance) or 0.0)
        case BaseException():
            return _after_error(ending, failures, policy, chance)
        case _:
            assert_never(ending)


def _after_error(error: BaseException, failures: int, policy: Backoff, chance: Random) -> Settlement:
    if isinstance(error, ConnectionsInUse):
        # Other jobs hold all connections; that is not a failure of this job.
        return Settlement("snooze", delay=CONNECTION_PAUSE * (1 + chance.random()), reason=storable(error))
    if isinstance(error, BaseExceptionGroup) and (snooze := _snooze_of_all(error)) is not None:
        return _decision(snooze, failures, 0, policy, chance)
    if policy.is_permanent(error) or isinstance(error, StepOrderChanged):
        found = describe(error)
        return Settlement("dead", reason=f"permanent error: {found.name}", error=found, failed=1)
    return _after_failure(error, failures, policy, chance)


def _snooze_of_all(group: BaseExceptionGroup[BaseException]) -> Snooze | None:
    """Return the first snooze of a group of nothing else: a wait or a sleep in an asyncio.TaskGroup."""
    found = None
    for error in group.exceptions:
        each = _snooze_of_all(error) if isinstance(error, BaseExceptionGroup) else error
        if not isinstance(each, Snooze):
            return None
        found = found or each
    return found


def _after_failure(
    error: BaseException, failures: int, policy: Backoff, chance: Random, requested: float | None = None
) -> Settlement:
    delay = policy.delay(failures + 1, chance)
    if delay is None:
        return Settlement("dead", reason=f"failed {failures + 1} times", error=describe(error), failed=1)
    return Settlement(
        "retry", delay=delay if requested is None else requested, reason=_own_reason(error), error=describe(error)
    )


def _own_reason(error: BaseException) -> str | None:
    """Return the `reason` attribute of an exception, or None if it has none or reading it fails."""
    try:
        return getattr(error, "reason", None) or None
    except BaseException:  # noqa: BLE001 - a user's property may raise anything
        return None


def _plain(decision: Settlement) -> Settlement:
    """Return the decision with built-in types only: handlers may pass subclasses, or values of a wrong type."""
    decision.delay = float(decision.delay)
    if not math.isfinite(decision.delay):
        raise ValueError(f"a delay of {decision.delay} seconds")
    if decision.until is not None:
        decision.until = plain_datetime(decision.until)
        if decision.until.tzinfo is None:
            raise ValueError("an instant needs a time zone")
    if decision.reason is not None:
        decision.reason = storable(decision.reason)
    if decision.throttle is not None:
        wait, limit, key = decision.throttle
        decision.throttle = Throttle(
            float(wait), None if limit is None else storable(limit), None if key is None else storable(key)
        )
    return decision

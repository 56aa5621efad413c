"""How an attempt can end, as named values, and what each ending means for the job.

A handler returns (succeeded), or returns or raises one of:

    Retry(after="30s")      try again; counts as a failure
    Snooze("10m")           not now; counts as nothing
    RetryAfter("30s")       told to wait by whoever it calls: its rate limits close until then, for everyone
    Dead("account closed")  never again; kept whole in the dead letter
    Cancel("not wanted")    never again, and nothing is wrong

Any other exception is classified by the task's policy: permanent ones are dead, the rest is retried.
"""

import math
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import Literal, NamedTuple, assert_never

from sereno.database.json_values import plain_datetime
from sereno.duration import Duration, seconds
from sereno.error_text import ErrorText, describe, storable
from sereno.errors import ConfigurationError, ConnectionsInUse
from sereno.jobs.retry import Backoff
from sereno.text import check_text

# A job that killed this many processes of its own goes to the dead letter.
CRASH_LIMIT = 3
# A header that asks for more than this is not believed.
LONGEST_HEADER = 7
LONGEST_CLOSE = 7 * 86400.0
# Seconds until a job that found no free connection is tried again, and up to as much again by chance.
CONNECTION_PAUSE = 5.0


class Outcome(Exception):  # noqa: N818 - raised by handlers as words of a vocabulary, not as errors
    """Base of the endings that a handler can ask for; return it or raise it."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Outcome):
    """Try again: after the given time, or when the task's policy says. Counts as a failure."""

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else seconds(after)


class Snooze(Outcome):
    """Not now. Costs no failure, and the worker is free meanwhile."""

    throttle: "Throttle | None" = None

    def __init__(self, wait: Duration | None = None, *, until: datetime | None = None, reason: str = "") -> None:
        super().__init__(reason)
        if (wait is None) == (until is None):
            raise ConfigurationError('Snooze takes a wait ("10m") or until=, one of the two')
        if until is not None and until.tzinfo is None:
            raise ConfigurationError(
                "Snooze(until=…) needs a time zone: a naive time means a different instant elsewhere"
            )
        self.wait = None if wait is None else seconds(wait)
        # A subclass of datetime (pendulum, pandas) means an instant like any other.
        self.until = None if until is None else plain_datetime(until)


class RetryAfter(Snooze):
    """Whoever it calls said: too fast (a 429). Not now; costs no failure; and until then the limit is closed for all.

    `limit`: the name of the one that is meant; all rate limits of the job, unless given.
    """

    def __init__(self, wait: Duration, *, limit: str | None = None, reason: str = "") -> None:
        check_text("limit", limit)
        super().__init__(wait, reason=reason or "told to wait")
        self.throttle = Throttle(min(seconds(wait), LONGEST_CLOSE), limit)

    @classmethod
    def from_header(cls, value: str, *, limit: str | None = None, default: Duration = "30s") -> "RetryAfter":
        """From the text of an HTTP header Retry-After, seconds or a date; `default` for anything else."""
        told = header_seconds(value)
        return cls(default if told is None else told, limit=limit)


def header_seconds(value: str) -> float | None:
    """The wait that an HTTP header Retry-After asks for, as seconds or until a date; None for anything else."""
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
    """Never again. The job is kept whole in the dead letter, with this reason."""


class Cancel(Outcome):
    """Never again, and nothing is wrong."""


@dataclass(frozen=True, slots=True)
class ReleasedAttempt:
    """The worker gives the job back, without charge."""

    reason: str
    started: bool = True


@dataclass(frozen=True, slots=True)
class CrashedAttempt:
    """The process that ran this job alone died."""

    reason: str


@dataclass(slots=True)
class Settlement:
    """What is written about one attempt, in plain values only. `outcome` is a word of the attempts table."""

    outcome: Literal["succeeded", "retry", "snooze", "release", "crash", "dead", "cancelled"]
    delay: float = 0.0
    until: datetime | None = None
    reason: str | None = None
    error: ErrorText | None = None
    failed: int = 0
    crashed: int = 0
    started: bool = True
    throttle: "Throttle | None" = None


class Throttle(NamedTuple):
    """Close a limit for so long; without a name, every rate that the job passed. The key is the job's, unless given."""

    seconds: float
    limit: str | None = None
    key: str | None = None


SUCCEEDED = Settlement("succeeded")

Ending = Outcome | ReleasedAttempt | CrashedAttempt | Settlement | BaseException | None


def settlement(ending: Ending, *, failures: int, crashes: int, policy: Backoff, chance: Random) -> Settlement:
    """The decision: what this ending means for a job with these counts under this policy.

    Pure, and never raises: what cannot be decided, or holds values that cannot be stored, is dead with that reason.
    """
    if ending is None:
        return SUCCEEDED
    try:
        return _plain(_decision(ending, failures, crashes, policy, chance))
    except BaseException as error:  # noqa: BLE001 - a policy or an outcome of the user's may raise anything
        reason = "what to do next could not be decided"
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
            return _after_failure(ending, failures, policy, chance, asked=ending.after)
        case Snooze():
            wait, reason = ending.wait or 0.0, ending.reason or None
            return Settlement("snooze", delay=wait, until=ending.until, reason=reason, throttle=ending.throttle)
        case Dead():
            cause = None if ending.__cause__ is None else describe(ending.__cause__)
            return Settlement("dead", reason=ending.reason or "the task said so", error=cause, failed=1)
        case Cancel():
            return Settlement("cancelled", reason=ending.reason or "the task said so")
        case Settlement():
            # Decided already, in the process that ran it alone.
            return ending
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
        # Others hold the connections: it says nothing about this job.
        return Settlement("snooze", delay=CONNECTION_PAUSE * (1 + chance.random()), reason=storable(error))
    if policy.is_permanent(error):
        found = describe(error)
        return Settlement("dead", reason=f"permanent error: {found.name}", error=found, failed=1)
    return _after_failure(error, failures, policy, chance)


def _after_failure(
    error: BaseException, failures: int, policy: Backoff, chance: Random, asked: float | None = None
) -> Settlement:
    delay = policy.delay(failures + 1, chance)
    if delay is None:
        return Settlement("dead", reason=f"failed {failures + 1} times", error=describe(error), failed=1)
    return Settlement(
        "retry", delay=delay if asked is None else asked, reason=_own_reason(error), error=describe(error)
    )


def _own_reason(error: BaseException) -> str | None:
    """Return the `reason` that an exception carries; an attribute that cannot be read is none."""
    try:
        return getattr(error, "reason", None) or None
    except BaseException:  # noqa: BLE001 - a property of the user's may raise anything
        return None


def _plain(decision: Settlement) -> Settlement:
    """Exact numbers, instants and texts: what came from a handler may be a subclass, or no such value at all."""
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

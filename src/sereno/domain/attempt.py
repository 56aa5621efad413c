"""How an attempt can end, as named values, and what each ending means for the job.

A handler returns (succeeded), or returns or raises one of:

    Retry(after="30s")      try again; counts as a failure
    Snooze("10m")           not now; counts as nothing
    RetryAfter("30s")       told to wait by whoever it calls: its rate limits close until then, for everyone
    Dead("account closed")  never again; kept whole in the dead letter
    Cancel("not wanted")    never again, and nothing is wrong

Any other exception is classified by the task's policy: permanent ones are dead, the rest is retried.
"""

import traceback
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import Literal, NamedTuple, assert_never

from sereno.domain.duration import Duration, seconds
from sereno.domain.job import check_text
from sereno.domain.retry import Backoff
from sereno.errors import ConfigurationError, ConnectionsInUse

# A job that killed this many processes of its own goes to the dead letter.
CRASH_LIMIT = 3
# A traceback longer than this says no more; the end of it holds the cause.
TRACEBACK_LIMIT = 16_000
MESSAGE_LIMIT = 4_000
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
        self.until = until


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
class Released:
    """The worker gives the job back, without charge."""

    reason: str
    started: bool = True


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran this job alone died."""

    reason: str


class IsolatedError(Exception):
    """An exception of another process: only its description could travel."""

    def __init__(self, kind: str | None, message: str | None, trace: str | None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.trace = trace


@dataclass(slots=True)
class Settlement:
    """What is written about one attempt. `outcome` is a word of the attempts table."""

    outcome: Literal["succeeded", "retry", "snooze", "release", "crash", "dead", "cancelled"]
    delay: float = 0.0
    until: datetime | None = None
    reason: str | None = None
    error: BaseException | None = None
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

Ending = Outcome | Released | Crashed | Settlement | BaseException | None


def settlement(ending: Ending, *, failures: int, crashes: int, policy: Backoff, chance: Random) -> Settlement:
    """The decision: what this ending means for a job with these counts under this policy. Pure."""
    match ending:
        case None:
            return SUCCEEDED
        case Retry():
            return _after_failure(ending, failures, policy, chance, asked=ending.after)
        case Snooze():
            wait, reason = ending.wait or 0.0, ending.reason or None
            return Settlement("snooze", delay=wait, until=ending.until, reason=reason, throttle=ending.throttle)
        case Dead():
            return Settlement("dead", reason=ending.reason or "the task said so", error=ending.__cause__, failed=1)
        case Cancel():
            return Settlement("cancelled", reason=ending.reason or "the task said so")
        case Settlement():
            # Decided already, in the process that ran it alone.
            return ending
        case Released():
            return Settlement("release", reason=ending.reason, started=ending.started)
        case Crashed():
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
        return Settlement("dead", reason=f"permanent error: {type(error).__name__}", error=error, failed=1)
    return _after_failure(error, failures, policy, chance)


def _after_failure(
    error: BaseException, failures: int, policy: Backoff, chance: Random, asked: float | None = None
) -> Settlement:
    delay = policy.delay(failures + 1, chance)
    if delay is None:
        return Settlement("dead", reason=f"failed {failures + 1} times", error=error, failed=1)
    reason = getattr(error, "reason", None) or None
    return Settlement("retry", delay=delay if asked is None else asked, reason=reason, error=error)


def described(error: BaseException | None) -> tuple[str | None, str | None, str | None]:
    """Type, message and traceback as PostgreSQL can store them: whatever a handler raises, its job still settles."""
    if error is None:
        return None, None, None
    if isinstance(error, IsolatedError):
        return error.kind, error.message, error.trace
    lines = "".join(traceback.format_exception(error)) if error.__traceback__ else ""
    return storable(type(error).__qualname__), storable(error), storable(lines[-TRACEBACK_LIMIT:], TRACEBACK_LIMIT)


def storable(value: object, limit: int = MESSAGE_LIMIT) -> str:
    """Text that PostgreSQL can store, of anything: a reason given as a number, a broken `__str__`, a NUL byte."""
    try:
        text = str(value)[:limit]
    except Exception:  # noqa: BLE001 - whatever it is, it must not keep the job from settling
        text = f"(a {type(value).__name__} that could not be turned into text)"
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")

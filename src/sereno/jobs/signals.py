"""Operations on signals: send one, receive those that a running job waits for, and wake waiting jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec

from sereno.database.json_values import stored
from sereno.database.statement import Operation, Statement, queries
from sereno.database.vacuum import PAGE
from sereno.errors import InvalidArguments, LeaseLost
from sereno.telemetry import tracing
from sereno.text import check_text

_sql = queries("jobs/signals")
_values = msgspec.json.Decoder(list[Any])

Which = Literal["first", "latest", "all"]

# Characters of a name; the limit of the table too.
NAME_LIMIT = 200
# When a job runs that waits without a timeout, unless its signal is sent.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
# A hundred years in seconds: the longest timeout.
LONGEST_TIMEOUT = 86400.0 * 36500
# Signals that one wait with which="all" returns at most.
MOST_VALUES = 1000
# Signals or waits that one statement checks, and jobs that it wakes for each signal.
CHECK_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SignalRow:
    """A stored signal."""

    id: int
    name: str
    tenant: str | None
    value: Any
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class SignalWait:
    """The signal that a job waits for. `until`: None without a timeout."""

    name: str
    until: datetime | None


class ReceivedSignals(NamedTuple):
    """`values`: of the signals that were sent; empty if there is none. `until`: when the wait times out.

    `traces`: of the senders that have one.
    """

    values: list[Any]
    until: datetime
    timed_out: bool
    traces: Sequence[str] = ()


def check_name(name: str) -> None:
    """Raise InvalidArguments unless it is the name of a signal."""
    check_text("signal", name)
    if len(name) > NAME_LIMIT:
        raise InvalidArguments(
            f"signal {name!r:.60} is longer than {NAME_LIMIT} characters: use an id, such as paid:42"
        )


def encode_value(name: str, value: Any, limit: int) -> bytes:
    """Return the JSON of a value, or raise InvalidArguments: values have the limits of arguments."""
    raw = stored(value, lambda why: InvalidArguments(f"signal {name!r:.60}: its value cannot be stored: {why}"))
    if len(raw) > limit:
        raise InvalidArguments(
            f"signal {name!r:.60}: {len(raw):,} bytes of JSON, the limit is {limit:,}: "
            "store the data elsewhere and send its id"
        )
    return raw


def send(name: str, value: bytes, tenant: str | None = None, trace: str | None = None) -> Operation[int]:
    """Store a signal and wake the jobs that wait for it; return its id. `trace`: by default the current span."""
    cause = trace if trace is not None else tracing.current()
    rows = yield Statement(_sql["send"], {"name": name, "value": value.decode(), "tenant": tenant, "trace": cause})
    return int(rows[0][0])


def receive(
    session: int, job_id: int, attempt: int, name: str, *, timeout: float | None = None, which: Which = "first"
) -> Operation[ReceivedSignals]:
    """Return the signals sent to a running job since it was created; if there are none, store that it waits."""
    rows = yield Statement(
        _sql["receive"],
        {
            "session": session,
            "id": job_id,
            "attempt": attempt,
            "name": name,
            "timeout": min(LONGEST_TIMEOUT, timeout) if timeout is not None else None,
            "never": NEVER,
            "which": which,
            "most": MOST_VALUES,
        },
    )
    held, values, until, timed_out, traces = rows[0]
    if not held:
        raise LeaseLost(f"job {job_id}: attempt {attempt} has lost its lease; it cannot wait for signal {name!r}")
    return ReceivedSignals(_values.decode(values) if values else [], until or NEVER, timed_out, traces or ())


def keep_answer(
    session: int,
    job_id: int,
    attempt: int,
    name: str,
    *,
    step: str,
    result: bytes,
    position: int | None = None,
    pending: Sequence[str] = (),
) -> Operation[Any]:
    """End a wait: store its answer as a step and return the stored answer, or raise LeaseLost."""
    params = {"step": step, "result": result.decode(), "position": position, "pending": list(pending) or None}
    rows = yield Statement(
        _sql["keep_answer"], {"session": session, "id": job_id, "attempt": attempt, "name": name, **params}
    )
    if not rows:
        raise LeaseLost(f"job {job_id}: attempt {attempt} has lost its lease; signal {name!r} was not stored")
    return msgspec.json.decode(rows[0][0])


def arm(waits: Sequence[tuple[int, int, str]]) -> Operation[None]:
    """Let settled jobs wait for signals: (job, attempt, name) each. In the transaction of their settlement."""
    ids, attempts, names = zip(*waits, strict=True)
    yield Statement(_sql["arm"], {"ids": list(ids), "attempts": list(attempts), "names": list(names)})


def wake_waiting(page: int = CHECK_PAGE) -> Operation[tuple[int, bool]]:
    """Wake jobs whose signal and wait were committed at the same time; return how many, and whether there are more.

    Each statement needs a snapshot of its own that is newer than the rows it checks: not inside a transaction above
    READ COMMITTED.
    """
    by_waits = (yield Statement(_sql["check_waits"], {"most": page}))[0]
    by_signals = (yield Statement(_sql["check_signals"], {"most": page}))[0]
    return int(by_waits[0] + by_signals[0]), bool(by_waits[1] or by_signals[1])


def list_signals(*, name: str | None = None, tenant: str | None = None, limit: int = 50) -> Operation[list[SignalRow]]:
    """Return the newest signals first. `tenant`: of the reader; None shows all."""
    rows = yield Statement(_sql["list"], {"name": name, "tenant": tenant, "limit": limit})
    return [SignalRow(*row) for row in rows]


def awaited_signal(job_id: int) -> Operation[SignalWait | None]:
    """Return the signal that a job waits for, if it does."""
    rows = yield Statement(_sql["waiting"], {"id": job_id})
    if not rows:
        return None
    name, until = rows[0]
    return SignalWait(name, None if until >= NEVER else until)


def forget_old(days: int) -> Operation[bool]:
    """Delete a page of signals that are older than `days`; return whether there may be more."""
    rows = yield Statement(_sql["forget"], {"days": days, "most": PAGE})
    return len(rows) >= PAGE

"""Operator actions on limits: list, show, change, reset, close and open."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation
from sereno.duration import Duration, duration_text, seconds
from sereno.errors import ConfigurationError, InvalidArguments, Refused
from sereno.jobs.limits import store
from sereno.jobs.limits.limit import AnyLimit, Limit, Rate
from sereno.jobs.limits.rows import BOUND, LimiterRow, LimitRow
from sereno.text import check_text

DAY = 86400.0
# Seconds: the longest time to close a limit for, and the longest time between two starts of a rate.
LONGEST = 365 * DAY
SHORTEST_PERIOD = 0.001
# Limits that an error message lists.
NAMED = 8
PERIODS = {1.0: "a second", 60.0: "a minute", 3600.0: "an hour", DAY: "a day"}


@dataclass(frozen=True, slots=True)
class LimitDetail:
    """One limit with its most relevant keys: closed ones first, then waited for, then in use."""

    limit: LimitRow
    keys: list[LimiterRow]


def in_words(numbers: Mapping[str, Any]) -> str:
    """Return the numbers of a limit as text: "2 at once", "100 a minute, burst 10"."""
    if "slots" in numbers:
        return f"{numbers['slots']:,} at once"
    period = float(numbers["period"])
    per = PERIODS.get(period) or f"in {duration_text(period)}"
    return f"{_number(numbers['units'])} {per}, burst {_number(numbers['burst'])}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,g}"


# Read


def list_limits(pattern: str | None = None, *, most: int = BOUND) -> Operation[list[LimitRow]]:
    """Return limits by name; `pattern`: such as "mail.*"."""
    check_text("pattern", pattern)
    return (yield from store.list_limits(pattern, most=most))


def find(name: str) -> Operation[LimitRow]:
    """Return one limit, or raise a ConfigurationError that lists the existing ones."""
    check_required("limit", name)
    row = yield from store.find(name)
    if row is None:
        raise ConfigurationError(_unknown(name, (yield from store.names())))
    return row


def show(name: str, *, key: str | None = None, keys: int = 20) -> Operation[LimitDetail]:
    row = yield from find(name)
    if key is not None:
        check_key(key)
    return LimitDetail(row, (yield from store.limiters(name, key, keys)))


def _unknown(name: str, names: Sequence[str]) -> str:
    if not names:
        return (
            f"there is no limit {name!r:.80}; no limits exist yet: a worker stores the declared ones when it starts, "
            "and `sereno limit set --queue default --slots 10` limits a whole queue"
        )
    near = get_close_matches(name, names, 1)
    if near:
        return f"there is no limit {name!r:.80}: did you mean {near[0]}?"
    more = ", …" if len(names) > NAMED else ""
    return f"there is no limit {name!r:.80}; there are: {', '.join(names[:NAMED])}{more} (`sereno limit list`)"


# Change


def change(
    name: str | None = None,
    *,
    queue: str | None = None,
    slots: int | None = None,
    rate: float | None = None,
    per: Duration | None = None,
    burst: float | None = None,
    note: str | None = None,
    actor: str | None = None,
) -> Operation[LimitRow]:
    """Override a limit by name, or that of a whole queue: `slots`, or `rate` with `per` and `burst`."""
    if (slots is None) == (rate is None):
        raise InvalidArguments("give either slots (jobs at once) or rate (starts per period)")
    if slots is not None:
        if per is not None or burst is not None:
            raise InvalidArguments("per and burst belong to a rate: remove them, or give rate instead of slots")
        return (yield from set_slots(name, slots, queue=queue, note=note, actor=actor))
    assert rate is not None
    return (yield from set_rate(name, rate, "1s" if per is None else per, burst, queue=queue, note=note, actor=actor))


def set_slots(
    name: str | None, slots: int, *, queue: str | None = None, note: str | None = None, actor: str | None = None
) -> Operation[LimitRow]:
    """Override the declared slots until `reset`. Running jobs continue."""
    return (yield from _set(name, queue, _checked(lambda: Limit(slots)), note, actor))


def set_rate(
    name: str | None,
    amount: float,
    per: Duration = "1s",
    burst: float | None = None,
    *,
    queue: str | None = None,
    note: str | None = None,
    actor: str | None = None,
) -> Operation[LimitRow]:
    """Override the declared rate until `reset`."""
    return (yield from _set(name, queue, _checked(lambda: _rate(amount, per, burst)), note, actor))


def _rate(amount: float, per: Duration, burst: float | None) -> Rate:
    rate = Rate(amount, per, burst=burst)
    if not SHORTEST_PERIOD <= seconds(per) <= LONGEST or seconds(per) / amount > LONGEST:
        raise ConfigurationError(
            f"{amount!r:.40} per {per!r:.40} is not a valid rate: use 1 ms to a year, with one start a year at least"
        )
    return rate


def _checked(make: Callable[[], AnyLimit]) -> AnyLimit:
    """Return the limit, or raise InvalidArguments if its numbers are invalid."""
    try:
        limit = make()
        limit.numbers  # noqa: B018 - raises for numbers that are too large
    except ConfigurationError as error:
        raise InvalidArguments(str(error)) from None
    except (OverflowError, ValueError):
        raise InvalidArguments("the number is too large for a limit") from None
    return limit


def _set(
    name: str | None, queue: str | None, wanted: AnyLimit, note: str | None, actor: str | None
) -> Operation[LimitRow]:
    check_text("note", note)
    check_text("actor", actor)
    who = actor or default_actor()
    kind = "slots" if isinstance(wanted, Limit) else "rate"
    if queue is None:
        before: LimitRow | None = yield from find(check_required("limit", name))
    else:
        name, before = yield from _of_queue(name, queue, kind)
    if before is not None and before.kind != kind:
        raise InvalidArguments(_other_kind(before))
    chosen = name if before is None else before.name
    assert chosen is not None
    done = yield from store.change(chosen, kind, wanted.numbers, queue=queue, actor=who, note=note)
    after = yield from find(chosen)
    if not done:
        # A limit of the other kind was created concurrently.
        raise InvalidArguments(_other_kind(after))
    detail = {**wanted.numbers, "queue": queue, "note": note, "before": None if before is None else before.numbers}
    yield from audit.audit(who, "limit.set", f"limit {chosen}", detail)
    return after


def _of_queue(name: str | None, queue: str, kind: str) -> Operation[tuple[str, LimitRow | None]]:
    """Return the limit of a whole queue, or the name of the one to create."""
    check_required("queue", queue)
    own = [row for row in (yield from store.list_limits(queue=queue)) if row.kind == kind]
    if name is None and len(own) > 1:
        raise InvalidArguments(
            f"the queue {queue} has several such limits: give the name of one of {', '.join(row.name for row in own)}"
        )
    if name is None and own:
        return own[0].name, own[0]
    chosen = name or f"queue.{queue}.{'concurrency' if kind == 'slots' else 'rate'}"
    _checked(lambda: Limit(0, name=chosen))
    row = yield from store.find(chosen)
    if row is not None and row.queue != queue:
        holds = f"the queue {row.queue}" if row.queue else f"each {row.key}" if row.key else "jobs that name it"
        raise InvalidArguments(
            f"the limit {chosen} holds for {holds}, not for the queue {queue} as a whole: "
            "change it by its name alone, or give the queue's limit another name"
        )
    return chosen, row


def _other_kind(row: LimitRow) -> str:
    numbers = in_words(row.numbers)
    if row.kind == "slots":
        return f"the limit {row.name} counts jobs at once ({numbers}): give it slots, not a rate"
    return f"the limit {row.name} is a rate ({numbers}): give it a rate, not slots"


def reset(name: str, *, actor: str | None = None) -> Operation[LimitRow | None]:
    """Restore the declared limit; return None when it is not declared in code and was deleted."""
    check_text("actor", actor)
    who = actor or default_actor()
    before = yield from find(name)
    done = yield from store.reset(name, who)
    if done is None and before.declared is None:
        raise Refused(f"the limit {name} is not declared in code, and jobs use it: set other numbers instead")
    after = None if done == "gone" else (yield from find(name))
    if done is not None:
        detail = {"before": before.numbers, "now": None if after is None else after.numbers}
        yield from audit.audit(who, "limit.reset", f"limit {name}", detail)
    return after


# Close and open


def close(name: str, length: Duration, *, key: str | None = None, actor: str | None = None) -> Operation[datetime]:
    """Start no jobs under the limit, or one of its keys, for `length`; return the end. A longer close stays."""
    check_text("actor", actor)
    duration = _length(length)
    row = yield from find(name)
    if key is not None:
        check_key(key)
    if key is None and (yield from _is_keyed(row)):
        each = f"each {row.key}" if row.key else "each key"
        raise InvalidArguments(
            f"the limit {name} counts {each} separately: give the key to close, "
            + ("or set its slots to 0 to stop them all" if row.kind == "slots" else "or pause the queue")
        )
    until = yield from store.close(name, key or "", duration)
    if until is None:
        raise ConfigurationError(_unknown(name, (yield from store.names())))
    detail = {"key": key or "", "seconds": duration, "until": until}
    yield from audit.audit(actor or default_actor(), "limit.close", f"limit {name}", detail)
    return until


def _is_keyed(row: LimitRow) -> Operation[bool]:
    """Return whether the limit counts keys separately. The row of a limit that came with a job does not say so."""
    if row.key or row.queue:
        return bool(row.key)
    if (yield from store.limiters(row.name, "", 1)):
        return False
    return bool((yield from store.limiters(row.name, None, 1)))


def _length(length: Duration) -> float:
    try:
        duration = seconds(length)
    except ConfigurationError as error:
        raise InvalidArguments(str(error)) from None
    if not 0 < duration <= LONGEST:
        raise InvalidArguments(f"{length!r:.40} is not a valid time to close a limit for: more than 0, at most a year")
    return duration


def reopen(name: str, *, key: str | None = None, actor: str | None = None) -> Operation[int]:
    """Open one closed key or all of them; return how many were closed."""
    check_text("actor", actor)
    yield from find(name)
    if key is not None:
        check_key(key)
    opened = yield from store.reopen(name, key)
    if opened:
        detail = {"key": key, "opened": opened}
        yield from audit.audit(actor or default_actor(), "limit.open", f"limit {name}", detail)
    return opened


def check_key(key: str) -> None:
    """Check a key; it may be empty, because jobs without a tenant share the empty key."""
    if key != "":
        check_required("key", key)


def check_required(what: str, value: str | None) -> str:
    """Return a required text, or raise InvalidArguments."""
    if value is None:
        raise InvalidArguments(f"give the name of a {what}")
    check_text(what, value)
    return value

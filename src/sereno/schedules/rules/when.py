"""The rules that users write: once, at an interval, by a cron expression, daily.

A rule is stored as JSON. `checked` gives each rule its canonical form, so that equal rules have equal JSON, and refuses
invalid ones.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from sereno.duration import Duration, duration_text, seconds
from sereno.errors import ConfigurationError, InvalidSchedule
from sereno.jobs.job import EARLIEST, LATEST, LONGEST_WAIT
from sereno.schedules.rules.cron import canonical, parsed
from sereno.zones import zone

DstGap: TypeAlias = Literal["shift", "skip"]
DstFold: TypeAlias = Literal["first", "second", "both"]
CountFrom: TypeAlias = Literal["plan", "end", "clock"]

# Seconds.
SHORTEST_INTERVAL = 0.001
LONGEST_SPREAD = 400 * 86400.0
# Intervals up to this many seconds follow elapsed time; longer ones follow the wall clock.
LONGEST_ELAPSED = 3600

_MICROSECONDS = 1_000_000
# Seconds up to which a float is exact to the microsecond: more than thirty years.
_COUNTED = 1_000_000_000
# Longest text of a duration in characters.
_LONGEST_TEXT = 100
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_UNITS = (("week", 604800), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


class Once(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="once"):
    """At one instant."""

    at: datetime


class _LocalTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Fields of every recurring rule: time zone, spread, and the policy for clock changes."""

    tz: str = "UTC"
    spread: Duration = 0
    dst_gap: DstGap = "shift"
    dst_fold: DstFold = "first"


class _CountedRule(_LocalTime, frozen=True, kw_only=True):
    count_from: CountFrom = "plan"
    phase: Duration = 0


class Every(_CountedRule, frozen=True, tag="every"):
    """At an interval, counted from the previous planned instant, from the end of the previous run, or from the clock.

    Every("5m")                                           5 minutes after the previous planned instant
    Every("5m", count_from="end")                         5 minutes after the last run ended
    Every("5m", count_from="clock", phase="1m")           at :01, :06, :11 …
    """

    interval: Duration


class Cron(_LocalTime, frozen=True, tag="cron"):
    """By a cron expression: "30 9 * * MON-FRI", six fields with seconds first, or @daily."""

    expression: str


class Daily(_LocalTime, frozen=True, tag="daily"):
    """Every day at a time of the wall clock: "03:00" or "03:00:30"."""

    at: str


When: TypeAlias = Once | Every | Cron | Daily

_KINDS: dict[str, type[When]] = {"once": Once, "every": Every, "cron": Cron, "daily": Daily}


def checked(when: When) -> When:
    """Return the rule in its canonical form. InvalidSchedule names the wrong field."""
    match when:
        case Once():
            return Once(_at(when.at))
        case Every():
            return _spelled(when, _every(when))
        case Cron():
            expression = parsed(canonical(when.expression))
            wildcard = "a cron rule with * as minute or hour, or with seconds" if expression.is_wildcard else None
            fields = _local(when, elapsed=wildcard)
            return _spelled(when, {"expression": expression.text, **fields})
        case Daily():
            return _spelled(when, {"at": _time(when.at), **_local(when)})
        case _:
            raise InvalidSchedule(f"a schedule needs Once, Every, Cron or Daily, not {_shown(when)}")


def encode(when: When) -> bytes:
    """Return its JSON; equal rules have equal JSON."""
    return msgspec.json.encode(checked(when))


def decode(raw: bytes | str | dict[str, Any]) -> When:
    """Return the checked rule of this JSON."""
    fields = dict(raw) if isinstance(raw, dict) else _object(raw)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidSchedule(f'kind is "once", "every", "cron" or "daily", not {_shown(kind)}')
    wanted = _KINDS[kind]
    unknown = [name for name in fields if name not in wanted.__struct_fields__]
    if unknown:
        raise InvalidSchedule(f"{wanted.__name__} has no field {_shown(unknown[0])}: {_listed(wanted)}")
    (first, *_) = wanted.__struct_fields__
    if first not in fields:
        raise InvalidSchedule(f"{wanted.__name__} needs {first}: {_listed(wanted)}")
    if wanted is Once and isinstance(fields["at"], str):
        fields["at"] = _date(fields["at"])
    return checked(wanted(**fields))


def describe(when: When) -> str:
    """Return the rule as text: "every 5 minutes (aligned to the clock)", "every day at 03:00, America/Sao_Paulo"."""
    when = checked(when)
    match when:
        case Once():
            precision = "minutes" if not (when.at.second or when.at.microsecond) else "auto"
            return f"once at {when.at.replace(tzinfo=None).isoformat(' ', precision)} UTC"
        case Every():
            text = _counted(when)
        case Cron():
            explained = parsed(when.expression).explain()
            text = f"{explained[0].lower()}{explained[1:]}, {when.tz}"
        case Daily():
            text = f"every day at {when.at}, {when.tz}"
    return text + _suffix(when)


def microseconds(duration: Duration) -> int:
    """Return a checked duration in microseconds."""
    return round(seconds(duration) * _MICROSECONDS)


def _spelled(when: Every | Cron | Daily, fields: dict[str, Any]) -> When:
    """Return the rule without default values: msgspec leaves a default out only if it is the identical object."""
    kind = type(when)
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    return kind(**{name: value for name, value in fields.items() if name not in defaults or value != defaults[name]})


def _every(when: Every) -> dict[str, Any]:
    interval = _duration("interval", when.interval)
    if not SHORTEST_INTERVAL <= interval <= LONGEST_WAIT:
        raise InvalidSchedule(f"interval {_shown(when.interval)} is out of range: 1 ms to a thousand years")
    count_from = _choice("count_from", when.count_from, CountFrom)
    phase = _duration("phase", when.phase)
    if phase and count_from != "clock":
        raise InvalidSchedule('phase shifts the times on the clock: it needs count_from="clock"')
    if phase >= interval:
        raise InvalidSchedule(f"phase {_shown(when.phase)} must be shorter than the interval {_shown(when.interval)}")
    elapsed = None
    if count_from != "clock":
        elapsed = 'an interval without count_from="clock"'
    elif interval <= LONGEST_ELAPSED:
        elapsed = "an interval of an hour or less"
    return {"interval": interval, "count_from": count_from, "phase": phase, **_local(when, elapsed=elapsed)}


def _local(when: _LocalTime, *, elapsed: str | None = None) -> dict[str, Any]:
    """Return the fields of every recurring rule; `elapsed` describes a rule that follows elapsed time."""
    spread = _duration("spread", when.spread)
    if not spread < LONGEST_SPREAD:
        raise InvalidSchedule(f"spread {_shown(when.spread)} is out of range: less than 400 days")
    gap, fold = _choice("dst_gap", when.dst_gap, DstGap), _choice("dst_fold", when.dst_fold, DstFold)
    for name, value, default in (("dst_gap", gap, "shift"), ("dst_fold", fold, "first")):
        if elapsed and value != default:
            raise InvalidSchedule(f'{name}="{value}" has no effect on {elapsed}: it follows elapsed time; leave it out')
    return {"tz": zone(when.tz).name, "spread": spread, "dst_gap": gap, "dst_fold": fold}


def _duration(name: str, value: Duration) -> int | float:
    """Return whole seconds if possible, else seconds rounded to the microsecond."""
    unreadable = isinstance(value, str) and (len(value) > _LONGEST_TEXT or not value.isascii())
    if unreadable or not isinstance(value, str | int | float | timedelta):
        raise InvalidSchedule(
            f'{name} {_shown(value)} is not a duration: write "15m", a number of seconds or a timedelta'
        )
    try:
        length = seconds(value)
    except ConfigurationError as error:
        raise InvalidSchedule(f"{name}: {error}") from None
    except ValueError:
        # An integer of thousands of digits cannot be converted to text.
        raise InvalidSchedule(f"{name} is not a duration: it must be finite and not negative") from None
    if length > LONGEST_WAIT:
        raise InvalidSchedule(f"{name} {_shown(value)} is out of range: at most a thousand years")
    whole, rest = divmod(round(length * _MICROSECONDS), _MICROSECONDS)
    # Beyond the exact range of a float, microseconds are dropped.
    return whole + rest / _MICROSECONDS if rest and whole < _COUNTED else whole


def _choice(name: str, value: object, choices: object) -> str:
    for choice in get_args(choices):
        if isinstance(value, str) and value == choice:
            return str(choice)
    known = " or ".join(f'"{choice}"' for choice in get_args(choices))
    raise InvalidSchedule(f"{name} is {known}, not {_shown(value)}")


def _at(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidSchedule(f"at is a datetime with a time zone, not {_shown(value)}")
    try:
        is_aware = value.utcoffset() is not None
        is_near = is_aware and EARLIEST <= value <= LATEST
        at = value.astimezone(UTC) if is_near else value
    except Exception as error:  # noqa: BLE001 - a third-party tzinfo may raise anything
        raise InvalidSchedule(f"at has a broken time zone: {_shown(error)}") from None
    if not is_aware:
        raise InvalidSchedule("at needs a time zone: a naive time means a different instant elsewhere")
    if not is_near:
        raise InvalidSchedule(f"at {at.isoformat()} is out of range: 1900 to 9999")
    # A subclass of datetime becomes a plain one.
    return datetime.combine(at.date(), at.time(), UTC)


def _date(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text[:_LONGEST_TEXT])
    except ValueError:
        raise InvalidSchedule(f'at {_shown(text)} is not a time: write it like "2027-01-08T09:00:00Z"') from None


def _time(value: object) -> str:
    found = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise InvalidSchedule(f'at {_shown(value)} is not a time of day: write it like "03:00" or "03:00:30"')
    hour, minute, second = (int(part or 0) for part in found.groups())
    for name, number, most in (("hour", hour, 23), ("minute", minute, 59), ("second", second, 59)):
        if number > most:
            raise InvalidSchedule(
                f"at {_shown(value)} is not a time of day: {name} {number} is out of range 0 to {most}"
            )
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"


def _object(raw: object) -> dict[str, Any]:
    if not isinstance(raw, bytes | str):
        raise InvalidSchedule(f"a schedule's rule is a JSON object, not {_shown(raw)}")
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidSchedule(f"a schedule's rule is a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise InvalidSchedule(f"a schedule's rule is a JSON object, not {_shown(value)}")
    return value


def _listed(kind: type[When]) -> str:
    return f"its fields are {', '.join(kind.__struct_fields__)}"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a foreign __repr__ may raise anything
        return f"something of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_TEXT else f"{text[:60]}…"


def _counted(when: Every) -> str:
    interval = seconds(when.interval)
    unit, size = next(((unit, size) for unit, size in _UNITS if interval % size == 0), _UNITS[-1])
    number = f"{interval / size:.6f}".rstrip("0").rstrip(".")
    text = f"every {unit}" if number == "1" else f"every {number} {unit}s"
    match when.count_from:
        case "plan":
            return text
        case "end":
            return f"{text} (counted from the end of the last run)"
        case "clock":
            phase = f", {duration_text(seconds(when.phase))} past it" if when.phase else ""
            return f"{text} (aligned to the clock{phase})" + (f", {when.tz}" if when.tz != "UTC" else "")


def _suffix(when: Every | Cron | Daily) -> str:
    texts = {
        "shift": "",
        "skip": ", skipped when the clock jumps over it",
        "first": "",
        "second": ", on the second pass where the clock goes back",
        "both": ", on both passes where the clock goes back",
    }
    spread = f", spread over {duration_text(seconds(when.spread))}" if when.spread else ""
    return texts[when.dst_gap] + texts[when.dst_fold] + spread

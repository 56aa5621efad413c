"""The rule of a schedule, in the viewer's language."""

from typing import Any

from sereno.duration import duration_text, seconds
from sereno.errors import InvalidSchedule
from sereno.schedules.lists import in_words
from sereno.schedules.rules.when import Cron, Daily, Every, Once, When, decode
from sereno.server.web.page_request import PageRequest

_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60))


def rule_words(page: PageRequest, rule: dict[str, Any], *, zone: bool = True) -> str:
    """`zone`: with its time zone. English is the same text as on the command line."""
    try:
        when = decode(rule)
    except InvalidSchedule:
        return in_words(rule)
    if page.language == "en":
        words = in_words(rule)
        return words if zone else words.replace(f", {zone_of(rule)}", "", 1)
    return _translated(page, when) + (f", {zone_of(rule)}" if zone and not isinstance(when, Every | Once) else "")


def zone_of(rule: dict[str, Any]) -> str:
    """Return its time zone; UTC by default."""
    return str(rule.get("tz") or "UTC")


def exact(length: float | str | None) -> str:
    """Return a duration as a form shows and parses it: "90m", "12.5s"; empty for none."""
    if length is None or not isinstance(length, int | float):
        return str(length or "")
    unit, size = next(((unit, size) for unit, size in _UNITS if length and length % size == 0), ("s", 1))
    return f"{length / size:.6f}".rstrip("0").rstrip(".") + unit


def _translated(page: PageRequest, when: When) -> str:
    say = page.say
    match when:
        case Once():
            return say("once at %(at)s UTC", at=f"{when.at:%Y-%m-%d %H:%M:%S}")
        case Daily():
            words = say("every day at %(at)s", at=when.at)
        case Cron():
            words = f"cron {when.expression}"
        case Every():
            words = say("every %(time)s", time=duration_text(seconds(when.interval)))
            if when.count_from == "end":
                words += ", " + say("counted from the end of the last run")
            if when.count_from == "clock":
                words += ", " + say("aligned to the clock")
    return words + (", " + say("spread over %(time)s", time=duration_text(seconds(when.spread))) if when.spread else "")

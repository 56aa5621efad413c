"""The end of a schedule as text, in which instants are replaced by their order: equal ends have equal texts.

Invariants and checks compare instants with each other and with delays of seconds and more. So an instant is written as
its place among all instants, and its distance from the beginning in tens of seconds.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

INSTANT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d)(?P<part>\.\d+)?(?P<zone>[+-]\d\d(?::?\d\d)?|Z)?"
    # Microseconds as a float or an integer, and seconds with a fraction, since 1970.
    r"|\b(?P<float>[12]\.\d{3,}e\+15)|\b(?P<micros>[12]\d{15})\b|\b(?P<seconds>[12]\d{9}\.\d+)"
)
# Microseconds.
GRAIN = 10_000_000
# A duration in seconds that was measured. What programs record of it, no check compares with less than seconds; in rows
# it may also be a number of tokens.
DURATION = re.compile(r"\b\d{1,2}\.\d{4,}\b")


def end_state(rows: Mapping[str, str], world: object) -> str:
    """Return the text of all rows, by table, and of what the programs recorded."""
    parts = [f"{table}:\n{text}" for table, text in sorted(rows.items()) if table != "clock"]
    recorded = repr(msgspec.to_builtins(world, enc_hook=_name, order="deterministic"))
    parts.append(DURATION.sub(lambda match: f"{float(match.group()):.0f}", recorded))
    text = "\n\n".join(parts)
    found = {match.group(): _micros(match) for match in INSTANT.finditer(text)}
    if not found:
        return text
    first = min(found.values())
    places = {instant: place for place, instant in enumerate(sorted(set(found.values())))}
    replaced = {written: f"@{places[at]}+{round((at - first) / GRAIN)}" for written, at in found.items()}
    text = INSTANT.sub(lambda match: replaced[match.group()], text)
    text = DURATION.sub(lambda match: f"{float(match.group()):.1f}", text)
    # PostgreSQL returns the rows of a table in any order.
    return "\n\n".join("\n".join(sorted(part.split("\n"))) for part in text.split("\n\n"))


def _micros(match: re.Match[str]) -> int:
    if match["float"] or match["micros"]:
        return int(float(match.group()))
    if match["seconds"]:
        return int(float(match["seconds"]) * 1e6)
    moment = datetime.fromisoformat(f"{match['date']}T{match['time']}{match['zone'] or ''}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000 + int((match["part"] or ".0")[1:].ljust(6, "0")[:6])


def _name(value: Any) -> str:
    """Return the type of an object that only its program uses, such as a cache."""
    return type(value).__name__

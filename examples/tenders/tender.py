"""A tender as one source describes it: validation and merging, without I/O."""

import re
from dataclasses import asdict, dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

# The time zone of the publisher: days begin there, and times without a zone are in it.
CHILE = ZoneInfo("America/Santiago")

LONGEST_TEXT = 200
LARGEST_AMOUNT = 10**15
_CODE = re.compile(r"[0-9A-Za-z-]{1,40}")


@dataclass(frozen=True)
class Tender:
    """One tender. None: the source does not have this field."""

    code: str
    title: str
    region: str | None = None
    buyer: str | None = None
    amount: int | None = None
    closes_at: datetime | None = None


def read(
    code: str,
    title: str | None,
    *,
    region: str | None = None,
    buyer: str | None = None,
    amount: float | None = None,
    closes: str | None = None,
) -> Tender | None:
    """Return a validated tender that can be stored and sent, or None if the input is not a tender."""
    if not _CODE.fullmatch(code) or not (clean_title := _text(title)):
        return None
    return Tender(code, clean_title, _text(region), _text(buyer), _amount(amount), _moment(closes))


def merge(one: Tender, other: Tender) -> Tender:
    """Return the more complete record, with gaps filled from the other. A tie goes to the first."""
    better, worse = sorted((one, other), key=completeness, reverse=True)
    known = {name: value for name, value in asdict(better).items() if value is not None}
    return Tender(**(asdict(worse) | known))


def completeness(tender: Tender) -> int:
    """Return the number of fields that are known."""
    return sum(value is not None for value in asdict(tender).values())


def _text(value: str | None) -> str | None:
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in value or "").split())
    return text[:LONGEST_TEXT] or None


def _amount(value: float | None) -> int | None:
    return int(value) if value is not None and 0 < value < LARGEST_AMOUNT else None


def _moment(value: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=CHILE)

"""A tender, as far as a source knows it. Pure: nothing here asks anybody."""

import re
from dataclasses import asdict, dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

# Where tenders are published: a day begins there, and times without a zone are of there.
CHILE = ZoneInfo("America/Santiago")

LONGEST_TEXT = 200
LARGEST_AMOUNT = 10**15
_CODE = re.compile(r"[0-9A-Za-z-]{1,40}")


@dataclass(frozen=True)
class Tender:
    """None is what a source does not say."""

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
    """What a source says, made fit to be stored and sent; None for what is no tender."""
    if not _CODE.fullmatch(code) or not (words := _text(title)):
        return None
    return Tender(code, words, _text(region), _text(buyer), _amount(amount), _moment(closes))


def merge(one: Tender, other: Tender) -> Tender:
    """The more complete record, and what only the other one knows. Where both know as much, the first one wins."""
    better, worse = sorted((one, other), key=completeness, reverse=True)
    known = {name: value for name, value in asdict(better).items() if value is not None}
    return Tender(**(asdict(worse) | known))


def completeness(tender: Tender) -> int:
    """How many of its fields are known."""
    return sum(value is not None for value in asdict(tender).values())


def _text(said: str | None) -> str | None:
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in said or "").split())
    return words[:LONGEST_TEXT] or None


def _amount(said: float | None) -> int | None:
    return int(said) if said is not None and 0 < said < LARGEST_AMOUNT else None


def _moment(said: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(said or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=CHILE)

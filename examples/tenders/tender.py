"""A tender as one source describes it: validation and merging, without I/O."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, time
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

from tenders.regions import region_of

# The time zone of the publisher: days begin there, and times without a zone are in it.
CHILE = ZoneInfo("America/Santiago")
# Of a closing date without a time.
END_OF_DAY = time(23, 59)

# A push has at most 4 KiB, and contains a text twice.
LONGEST_TEXT, LONGEST_TEXT_BYTES = 200, 400
LARGEST_AMOUNT = 10**15
MOST_CATEGORIES = 20
# Years outside are no dates: the API writes 1900-01-01 for one that was not set.
YEARS = range(2000, 2100)
_CODE = re.compile(r"[0-9A-Za-z-]{1,40}")
# 4886-34-LE26: the kind, and the year.
_KIND_IN_CODE = re.compile(r"-([A-Z][A-Z0-9])\d{2}")
_KIND = re.compile(r"[A-Z][A-Z0-9]")
_CATEGORY = re.compile(r"[0-9]{8}")
_DATE = re.compile(r"(\d{2})/(\d{2})/(\d{4})")


@dataclass(frozen=True)
class Tender:
    """One tender. None: the source does not have this field.

    `kind`: such as LE, public from 100 to 1,000 UTM. `amount`: in pesos; another currency or a range is in
    `amount_text`. `categories`: codes of the United Nations' catalogue, eight digits, of the goods and services.
    """

    code: str
    title: str
    kind: str | None = None
    region: str | None = None
    buyer: str | None = None
    amount: int | None = None
    amount_text: str | None = None
    categories: tuple[str, ...] | None = None
    published_at: datetime | None = None
    closes_at: datetime | None = None


def read(
    code: object,
    title: object,
    *,
    kind: object = None,
    region: object = None,
    buyer: object = None,
    amount: object = None,
    currency: object = "CLP",
    categories: Sequence[object] = (),
    published: object = None,
    closes: object = None,
) -> Tender | None:
    """Return a validated tender that can be stored and sent, or None if the input is not a tender."""
    clean_code, clean_title = text_of(code), text_of(title)
    if clean_code is None or clean_title is None or not _CODE.fullmatch(clean_code):
        return None
    pesos, amount_text = amount_of(amount, currency)
    return Tender(
        clean_code,
        clean_title,
        kind=_kind(kind, clean_code),
        region=region_of(text_of(region)),
        buyer=text_of(buyer),
        amount=pesos,
        amount_text=amount_text,
        categories=_categories(categories),
        published_at=moment_of(published),
        closes_at=moment_of(closes, END_OF_DAY),
    )


def merge(one: Tender, other: Tender) -> Tender:
    """Return the more complete record, with gaps filled from the other. A tie goes to the first."""
    better, worse = sorted((one, other), key=completeness, reverse=True)
    known = {name: value for name, value in asdict(better).items() if value is not None}
    return Tender(**(asdict(worse) | known))


def completeness(tender: Tender) -> int:
    """Return the number of fields that are known."""
    return sum(value is not None for value in asdict(tender).values())


def text_of(value: object) -> str | None:
    """Return the printable text of a value on one line, cut to a length that fits into a push."""
    if not isinstance(value, str):
        return None
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in value).split())
    return text[:LONGEST_TEXT].encode(errors="ignore")[:LONGEST_TEXT_BYTES].decode(errors="ignore").strip() or None


def amount_of(value: object, currency: object) -> tuple[int | None, str | None]:
    """Return pesos, or else the text to show. `value`: a number, or text in the notation of Chile: "6.700.000,50"."""
    number, unit = _number(value), text_of(currency) or "CLP"
    if number is None:
        return None, text_of(value)
    if not 0 < number < LARGEST_AMOUNT:
        return None, None
    return (int(number), None) if unit == "CLP" else (None, f"{number:,.0f} {unit}".replace(",", "."))


def moment_of(value: object, end: time = time()) -> datetime | None:
    """Return the time that ISO text, or a date as 30/11/2026, names in Chile. `end`: the time of a date."""
    text = text_of(value) or ""
    try:
        if found := _DATE.fullmatch(text):
            day, month, year = map(int, found.groups())
            moment = datetime.combine(datetime(year, month, day, tzinfo=CHILE), end, CHILE)
        else:
            moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.year not in YEARS:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=CHILE)


def _number(value: object) -> Decimal | None:
    digits = str(value)
    if isinstance(value, str):
        digits = value.strip().removeprefix("$").strip()
        if "," in digits or re.fullmatch(r"\d{1,3}(\.\d{3})+", digits):
            digits = digits.replace(".", "").replace(",", ".")
    try:
        number = Decimal(digits)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _kind(value: object, code: str) -> str | None:
    text = (text_of(value) or "").upper()
    if _KIND.fullmatch(text):
        return text
    found = _KIND_IN_CODE.search(code)
    return found[1] if found else None


def _categories(values: Sequence[object]) -> tuple[str, ...] | None:
    codes = sorted({str(value) for value in values if isinstance(value, str | int)})
    return tuple(code for code in codes if _CATEGORY.fullmatch(code))[:MOST_CATEGORIES] or None

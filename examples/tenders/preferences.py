"""What a phone wants to hear of, as a condition on the announcement of a tender. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenders.regions import folded
from tenders.tender import CHILE, Tender, text_of

DIGITS_OF_A_CATEGORY = 8
PAGE_OF_A_TENDER = "https://www.mercadopublico.cl/Procurement/Modules/RFB/DetailsAcquisition.aspx?idlicitacion="


@dataclass(frozen=True)
class Announcement:
    """The payload of the event: what conditions and templates use, and the data of the push.

    `words`: the title without accents and capitals. `closes_at`: ISO text in the time of Chile.
    """

    code: str
    title: str
    words: str
    kind: str | None
    region: str | None
    buyer: str | None
    amount: int | None
    amount_text: str | None
    categories: tuple[str, ...]
    closes_at: str | None
    url: str


def announcement(tender: Tender) -> Announcement:
    closes = tender.closes_at
    return Announcement(
        code=tender.code,
        title=tender.title,
        words=text_of(folded(tender.title)) or "",
        kind=tender.kind,
        region=tender.region,
        buyer=tender.buyer,
        amount=tender.amount,
        amount_text=tender.amount_text,
        categories=tender.categories or (),
        closes_at=None if closes is None else closes.astimezone(CHILE).isoformat(timespec="minutes"),
        url=f"{PAGE_OF_A_TENDER}{tender.code}",
    )


@dataclass(frozen=True)
class Preferences:
    """Empty and None: any. `categories`: codes or their first digits. `words`: one of them in the title is enough."""

    enabled: bool = True
    regions: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    amount_min: int | None = None
    amount_max: int | None = None
    words: tuple[str, ...] = ()


def condition(wanted: Preferences) -> dict[str, Any]:
    """Return the condition: no reason against the tender holds. What is not known of a tender is no reason."""
    reasons: list[Mapping[str, Any]] = []
    for name, values in (("region", wanted.regions), ("kind", wanted.kinds)):
        if values:
            reasons.append({name: {"exists": True}, "not": {name: list(values)}})
    if wanted.amount_min is not None:
        reasons.append({"amount": {"max": wanted.amount_min - 1}})
    if wanted.amount_max is not None:
        reasons.append({"amount": {"min": wanted.amount_max + 1}})
    if wanted.categories:
        spans = [{"categories": _span(each)} for each in wanted.categories]
        reasons.append({"categories": {"exists": True}, "not": {"any": spans}})
    if wanted.words:
        reasons.append({"not": {"any": [{"words": {"contains": folded(word)}} for word in wanted.words]}})
    return {"not": {"any": reasons}} if reasons else {}


def _span(category: str) -> dict[str, str]:
    """Return the first and the last code that begin with these digits."""
    return {"min": category.ljust(DIGITS_OF_A_CATEGORY, "0"), "max": category.ljust(DIGITS_OF_A_CATEGORY, "9")}

"""Validation of tenders, and the merge of two sources."""

from datetime import datetime

import pytest

from tenders.app import merged
from tenders.tender import CHILE, LONGEST_TEXT, LONGEST_TEXT_BYTES, Tender, amount_of, merge, moment_of, read, text_of

pytestmark = pytest.mark.slow

BARE = Tender("1-1-LE26", "A bridge")
OF_PAGE = Tender("1-1-LE26", "A bridge, as the page says", kind="LE", amount=7)
OF_API = Tender("1-1-LE26", "A bridge", buyer="Lota", region="Biobío", closes_at=datetime(2026, 11, 30, tzinfo=CHILE))


@pytest.mark.parametrize("pair", [(OF_PAGE, OF_API), (OF_API, OF_PAGE)], ids=["page first", "API first"])
def test_the_more_complete_record_wins_and_the_other_one_fills_its_gaps(pair: tuple[Tender, Tender]) -> None:
    assert merge(*pair) == Tender(
        "1-1-LE26", "A bridge", kind="LE", buyer="Lota", region="Biobío", amount=7, closes_at=OF_API.closes_at
    )


def test_merged_has_one_tender_for_each_code() -> None:
    other = Tender("2-2-LE26", "A well")
    assert merged([BARE, other, OF_PAGE]) == [OF_PAGE, other]


def test_read_cleans_text_amount_and_time() -> None:
    made = read("1-1-LE26", "a\x00b\n c" + "d" * 500, region=" ", amount=float("nan"), closes="2026-11-20T15:00:00")
    assert made is not None
    assert (made.title[:5], len(made.title), made.region, made.amount, made.kind) == (
        "a b c",
        LONGEST_TEXT,
        None,
        None,
        "LE",
    )
    assert made.closes_at == datetime(2026, 11, 20, 15, tzinfo=CHILE)


def test_an_invalid_code_is_no_tender(subtests: pytest.Subtests) -> None:
    for code in ["", "a b", "1" * 41, "../etc", "٣-1", None, 7, ["1-1-LE26"]]:
        with subtests.test(code=code):
            assert read(code, "A bridge") is None


def test_texts_fit_into_a_push(subtests: pytest.Subtests) -> None:
    for text in ("x" * 5000, "ñ" * 5000, "\U0001f4cb" * 5000, "a\u0301" * 5000):
        with subtests.test(text[:2]):
            assert 0 < len((text_of(text) or "").encode()) <= LONGEST_TEXT_BYTES
    for nothing in (None, 7, "", " \x00\x1f\u200b", "\ud800"):
        with subtests.test(repr(nothing)):
            assert text_of(nothing) is None


def test_amounts_are_read_in_the_notation_of_chile(subtests: pytest.Subtests) -> None:
    cases: dict[object, tuple[int | None, str | None]] = {
        6_700_000: (6_700_000, None),
        6_700_000.4: (6_700_000, None),
        123.456: (123, None),
        "$ 6.700.000": (6_700_000, None),
        "6.700.000,90": (6_700_000, None),
        "123.456": (123_456, None),
        "6700000.0": (6_700_000, None),
        "Entre 100 y 1000 UTM": (None, "Entre 100 y 1000 UTM"),
        "US$ 70.063,00": (None, "US$ 70.063,00"),
        -5: (None, None),
        10**30: (None, None),
        "1e400": (None, None),
        "": (None, None),
        None: (None, None),
    }
    for value, expected in cases.items():
        with subtests.test(repr(value)):
            assert amount_of(value, "CLP") == expected
    assert amount_of(70_063.5, "USD") == (None, "70.064 USD")


def test_times_are_those_of_chile(subtests: pytest.Subtests) -> None:
    cases = {
        "2026-11-20T15:00:00": datetime(2026, 11, 20, 15, tzinfo=CHILE),
        "2026-07-20T15:00:00.847": datetime(2026, 7, 20, 15, 0, 0, 847000, CHILE),
        "2026-11-20T18:00:00+00:00": datetime(2026, 11, 20, 15, tzinfo=CHILE),
        "20/11/2026": datetime(2026, 11, 20, tzinfo=CHILE),
        "31/02/2026": None,
        "1900-01-03T00:00:00": None,
        "9999-12-31T23:59:59": None,
        "tomorrow": None,
    }
    for text, expected in cases.items():
        with subtests.test(text):
            assert moment_of(text) == expected

"""Validation of tenders, and the merge of two sources."""

from datetime import datetime

import pytest

from tenders.app import merged
from tenders.tender import CHILE, LONGEST_TEXT, Tender, merge, read

pytestmark = pytest.mark.slow

BARE = Tender("1-1-LE26", "A bridge")
OF_PAGE = Tender("1-1-LE26", "A bridge, as the page says", region="Biobío")
OF_API = Tender("1-1-LE26", "A bridge", buyer="Lota", amount=7)


@pytest.mark.parametrize("pair", [(OF_PAGE, OF_API), (OF_API, OF_PAGE)], ids=["page first", "API first"])
def test_the_more_complete_record_wins_and_the_other_one_fills_its_gaps(pair: tuple[Tender, Tender]) -> None:
    assert merge(*pair) == Tender("1-1-LE26", "A bridge", region="Biobío", buyer="Lota", amount=7)


def test_merged_has_one_tender_for_each_code() -> None:
    other = Tender("2-2-LE26", "A well")
    assert merged([BARE, other, OF_PAGE]) == [OF_PAGE, other]


def test_read_cleans_text_amount_and_time() -> None:
    made = read("1-1-LE26", "a\x00b\n c" + "d" * 500, region=" ", amount=float("nan"), closes="2026-11-20T15:00:00")
    assert made is not None
    assert (made.title[:5], len(made.title), made.region, made.amount) == ("a b c", LONGEST_TEXT, None, None)
    assert made.closes_at == datetime(2026, 11, 20, 15, tzinfo=CHILE)


def test_an_invalid_code_is_no_tender(subtests: pytest.Subtests) -> None:
    for code in ["", "a b", "1" * 41, "1-1\n", "../etc", "٣-1"]:
        with subtests.test(code=code):
            assert read(code, "A bridge") is None

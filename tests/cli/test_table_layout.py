"""Tables fit their terminal: the important columns stay, names are shortened in the middle."""

import re
from pathlib import Path

import pytest

from sereno.cli.notifications.delivery import COLUMNS as DELIVERIES
from sereno.cli.output import Column
from sereno.cli.table_layout import Layout, layout, middle
from tests.cli.terminal import screen
from tests.manual_worker import ManualWorker

COLUMNS = (
    Column("id", str, "number"),
    Column("state", str, "state"),
    Column("task", str, "name"),
    Column("tries", str, "number", 1),
    Column("at", str),
    Column("what", str, "wide"),
)
NEEDS = [4, 9, 40, 5, 8, 60]
FULL = [True] * 6

CASES = [
    # Width, filled, and the expected places and widths.
    (200, FULL, (0, 1, 2, 3, 4, 5), (4, 9, 40, 5, 8, 60)),
    (100, FULL, (0, 1, 2, 3, 4, 5), (4, 9, 32, 5, 8, 32)),
    (70, FULL, (0, 1, 2, 4, 5), (4, 9, 21, 8, 20)),
    (60, FULL, (0, 1, 2, 5), (4, 9, 21, 20)),
    (70, [True, True, True, True, False, True], (0, 1, 2, 3, 5), (4, 9, 24, 5, 20)),
    (30, FULL, (0, 1, 5), (4, 9, 13)),
    (10, FULL, (0, 1, 5), (4, 9, 8)),
]


def test_columns_are_dropped_by_importance_and_names_before_texts_get_the_room(subtests: pytest.Subtests) -> None:
    for available, filled, places, widths in CASES:
        with subtests.test(available=available, filled=filled):
            assert layout(COLUMNS, NEEDS, filled, available) == Layout(places, widths)
    assert layout(COLUMNS, NEEDS, FULL, 60).dropped(COLUMNS, FULL) == ["tries", "at"]


def test_a_dropped_column_without_values_is_not_missed() -> None:
    filled = [True, True, True, True, False, True]
    assert layout(COLUMNS, NEEDS, filled, 60).dropped(COLUMNS, filled) == ["tries"]


def test_a_narrow_list_of_deliveries_names_the_recipient_before_the_event_id() -> None:
    needs = {"recipient": 13, "channel": 12, "event": 24, "what happened": 40}
    chosen = layout(DELIVERIES, [needs.get(column.name, 9) for column in DELIVERIES], [True] * len(DELIVERIES), 80)
    shown = [DELIVERIES[place].name for place in chosen.places]
    assert shown == ["id", "state", "event", "recipient", "what happened"]


def test_a_name_is_shortened_in_its_middle() -> None:
    assert middle("reconciliation.reconcile:r-0412", 40) == "reconciliation.reconcile:r-0412"
    assert middle("reconciliation.reconcile:r-0412", 20) == "reconcil…cile:r-0412"
    assert len(middle("x" * 99, 20)) == 20
    assert middle("abcdef", 4) == "abc…"


TASKS = ("reconciliation.reconcile_account:r-0001", "reconciliation.reconcile_account:r-0002")
COMMANDS = (
    ["job", "list"],
    ["queue", "list"],
    ["worker", "list"],
    ["error", "list"],
    ["status"],
    ["log", "list"],
    ["alert", "now"],
    ["verify"],
    ["top", "--every", "0.1", "--seconds", "0.1"],
)


def _lines(text: str) -> list[str]:
    """Return the lines without the terminal's sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()


@pytest.mark.slow
def test_every_list_fits_60_80_and_140_columns(
    manual: ManualWorker, database_url: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    manual.dead("no route to the bank of this account, after many tries", tenant="restaurant-0412")
    for task in TASKS:
        manual.connection.execute(
            "select sereno.enqueue(%s, queue => 'a-queue-with-a-long-name', tenant => 'restaurant-0412')", [task]
        )
    manual.worker(queues={"default": 2, "a-queue-with-a-long-name": 30, "apart": 4})
    for width in (60, 80, 140):
        for words in COMMANDS:
            with subtests.test(width=width, command=words):
                lines = _lines(screen(words, database_url, tmp_path, width))
                tables = [line for line in lines if not line.startswith("No room for")]
                assert all(len(line.rstrip()) <= width for line in tables), lines
        jobs = "\n".join(_lines(screen(["job", "list"], database_url, tmp_path, width)))
        assert all(task[-6:] in jobs for task in TASKS), jobs
        assert all(word in jobs for word in ("dead", "ready", "what happened"))
        assert ("No room for" in jobs) == (width < 140)
        assert "q quits" in screen(["top", "--seconds", "0.1"], database_url, tmp_path, width)

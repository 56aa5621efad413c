"""A short soak runs through: real processes, the moved clock, archive, maintenance, figures and invariants."""

import pytest

from tests.shared_server import MEMORY
from tests.soak.figures import DayFigures
from tests.soak.judge import judge
from tests.soak.load import Load
from tests.soak.services import DAYS_RETAINED, FREEZE_AGE
from tests.soak.simulation import simulate
from tests.soak.table import line

DAYS = 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_days_with_a_small_load_are_done_and_measured() -> None:
    reported: list[DayFigures] = []
    days = simulate(
        DAYS, Load().scaled(0.02), rounds=1, report=reported.append, parent=MEMORY if MEMORY.is_dir() else None
    )

    assert days == reported
    assert [figures.day for figures in days] == [1, 2]
    # Two days are too few to show growth; vacuum and the age of rows are judged.
    assert [found for found in judge(days, FREEZE_AGE) if "drain" not in found.subject] == []
    last = days[-1]
    assert last.jobs > 0
    assert last.sequences["jobs_id_seq"] > days[0].sequences["jobs_id_seq"]
    for table in ("history_done", "attempts", "fires", "deliveries", "events", "minutes", "error_groups", "inbox"):
        assert last.relations[table].rows > 0, table
    assert last.relations["history_done"].relations > DAYS_RETAINED
    assert last.memory.keys() == {"worker", "scheduler", "server"}
    assert "Index Scan jobs jobs_ready bounded" in last.plans["jobs/transitions.claim"]
    assert all(min(share.speed, share.processor) > 0 for figures in days for share in figures.drain)
    assert line(last).split()[0] == "2"

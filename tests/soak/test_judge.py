"""A series that grows is reported, and a steady one is not."""

import pytest

from tests.soak.figures import DayFigures, DrainShare, RelationFigures, family
from tests.soak.hot_plans import signature
from tests.soak.judge import FREEZE_GROWTH, PAGE, SETTLED, Finding, drains, grows, judge, thirds

FREEZE_AGE = 100_000
DAYS = 30


def month() -> list[DayFigures]:
    """Return the figures of a month in which nothing grows, after the days in which the retention fills up."""
    return [
        DayFigures(
            day=day,
            seconds=60.0,
            jobs=20_000,
            relations={
                "jobs": RelationFigures(1, 80 * PAGE, 200 + day % 3, 500),
                "history_done": RelationFigures(4 + min(day, 5), min(day, 5) * 900 * PAGE, min(day, 5) * 20_000, 0),
                "history_done.history_done_id_idx": RelationFigures(9, min(day, 5) * 60 * PAGE),
                "minutes": RelationFigures(1, min(day, 9) * 10 * PAGE, min(day, 9) * 1_000, 0),
                "audit": RelationFigures(1, day * 2 * PAGE, day * 250, 0),
                "catalog:pg_attribute": RelationFigures(1, 100 * PAGE, 0, 40),
            },
            sequences={"jobs_id_seq": day * 21_000},
            memory={"worker": 140.0 + day % 2, "scheduler": 50.0, "server": 85.0},
            plans={"jobs/transitions.claim": ["Index Scan jobs jobs_ready bounded"]},
            frozen_age=min(day * 4_000, FREEZE_AGE),
            vacuums=day * 100,
            behind=[],
            drain=[DrainShare(0.60, 0.50), DrainShare(0.62, 0.50)],
        )
        for day in range(1, DAYS + 1)
    ]


def subjects(days: list[DayFigures]) -> list[str]:
    return [finding.subject for finding in judge(days, FREEZE_AGE)]


def test_a_steady_month_has_no_findings() -> None:
    assert judge(month(), FREEZE_AGE) == []


def test_growth_of_a_relation_is_found(subtests: pytest.Subtests) -> None:
    for name in ("jobs", "history_done", "history_done.history_done_id_idx", "minutes", "catalog:pg_attribute"):
        for field in ("bytes", "rows", "relations"):
            if field != "bytes" and "." in name:
                continue
            with subtests.test(name=name, field=field):
                days = month()
                for each in days:
                    value = getattr(each.relations[name], field)
                    # A day adds 4 % of the size of a settled day, or 20 rows of a small table.
                    setattr(each.relations[name], field, value + each.day * max(20, value // 25))
                assert subjects(days) == [name]


def test_a_relation_that_appears_late_is_found() -> None:
    days = month()
    for each in days[20:]:
        each.relations["forgotten"] = RelationFigures(1, 3 * PAGE, 100, 0)
    assert subjects(days) == ["forgotten"] * 3


def test_the_size_may_vary_by_the_dead_rows_that_autovacuum_leaves_alone() -> None:
    days = month()
    for each in days:
        dead = 1_000 if each.day > 20 else 0
        each.relations["batches"] = RelationFigures(1, PAGE + dead * 100, 0, dead, threshold=1_000)
        each.relations["batches.batches_pkey"] = RelationFigures(1, 2 * PAGE + dead * 30, threshold=1_000)
    assert judge(days, FREEZE_AGE) == []
    for each in days:
        each.relations["batches"].bytes += 2 * PAGE * each.day
    assert subjects(days) == ["batches"]


def test_one_page_and_a_few_rows_are_no_growth() -> None:
    days = month()
    for each in days:
        later = each.day > 20
        each.relations["pauses"] = RelationFigures(1, PAGE * (2 if later else 1), 8 if later else 0, 0)
    assert judge(days, FREEZE_AGE) == []


def test_a_retained_table_may_grow_steadily_but_not_faster() -> None:
    days = month()
    for each in days:
        each.relations["audit"].rows = each.day * each.day * 10
    (finding,) = judge(days, FREEZE_AGE)
    assert finding.subject == "audit"
    assert finding.detail.startswith("rows a day grew from ")


def test_a_sequence_that_advances_faster_is_found() -> None:
    days = month()
    for each in days:
        each.sequences["jobs_id_seq"] += each.day * each.day * 500
    assert subjects(days) == ["sequence jobs_id_seq"]


def test_growing_memory_is_found() -> None:
    days = month()
    for each in days:
        each.memory["server"] += 0.3 * each.day
    assert subjects(days) == ["memory of the server"]


def test_a_changed_plan_is_found_once_the_tables_are_settled() -> None:
    days = month()
    days[0].plans = {"jobs/transitions.claim": ["Seq Scan jobs"]}
    assert judge(days, FREEZE_AGE) == []
    for each in days[SETTLED + 5 :]:
        each.plans = {"jobs/transitions.claim": ["Seq Scan jobs"]}
    (finding,) = judge(days, FREEZE_AGE)
    assert finding == Finding(
        "plan of jobs/transitions.claim",
        "changed on day 11: ['Index Scan jobs jobs_ready bounded'] became ['Seq Scan jobs']",
    )


def test_a_vacuum_that_does_not_keep_up_is_found() -> None:
    days = month()
    days[7].behind = ["jobs"]
    days[-1].frozen_age = round(FREEZE_GROWTH * FREEZE_AGE) + 1
    assert subjects(days) == ["vacuum of jobs", "age of the oldest rows"]


def test_a_slower_drain_is_found() -> None:
    days = month()
    for each in days[-5:]:
        each.drain = [DrainShare(0.55, 0.50), DrainShare(0.57, 0.50)]
    assert subjects(days) == ["speed of the drain"]
    assert drains(days) == (DrainShare(0.61, 0.50), DrainShare(0.56, 0.50))
    for each in days[-5:]:
        each.drain = [DrainShare(0.60, 0.46)]
    assert subjects(days) == ["processor time of the drain"]


def test_one_slow_day_is_not_a_slower_drain() -> None:
    days = month()
    days[-1].drain = [DrainShare(0.30, 0.31)]
    assert judge(days, FREEZE_AGE) == []


def test_few_days_are_judged_by_what_they_show() -> None:
    days = month()[:3]
    assert judge(days, FREEZE_AGE) == []
    days[2].behind = ["jobs"]
    assert subjects(days) == ["vacuum of jobs"]


def test_medians_of_thirds_ignore_single_days() -> None:
    assert thirds([1, 1, 9, 1, 1, 1, 1, 9, 1]) == (1, 1)
    assert grows([100, 100, 900, 100, 100, 100, 100, 900, 100], 1.1, 0) is None
    assert grows([100, 100, 100, 120, 120, 120], 1.1, 0) is not None
    assert grows([100, 100, 100, 110, 110, 110], 1.1, 0) is None


def test_partitions_and_batches_are_one_family() -> None:
    assert family("history_done_20261118") == "history_done"
    assert family("history_done_20261118_id_idx") == "history_done_id_idx"
    assert family("jobs_17") == "jobs"
    assert family("ten_minutes") == "ten_minutes"


def test_a_plan_is_the_same_with_more_partitions() -> None:
    def scan(day: str) -> dict[str, object]:
        table = f"fires_{day}"
        return {
            "Node Type": "Index Scan",
            "Relation Name": table,
            "Index Name": f"{table}_pkey",
            "Index Cond": "planned_at = $1",
        }

    one = {"Node Type": "LockRows", "Plans": [scan("20261118")]}
    two = {"Node Type": "LockRows", "Plans": [{"Node Type": "Append", "Plans": [scan("20261119"), scan("20261120")]}]}
    assert signature(one) == signature(two) == ["Index Scan fires fires_pkey bounded", "LockRows"]
    unbounded = {key: value for key, value in scan("20261118").items() if key != "Index Cond"}
    assert signature(unbounded) == ["Index Scan fires fires_pkey"]

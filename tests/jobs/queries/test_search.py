"""A search finds the same jobs in lists, counts and changes."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.errors import InvalidArguments
from sereno.jobs import bulk_selection
from sereno.jobs import operations as jobs
from sereno.jobs.attempt import SUCCEEDED
from sereno.jobs.filters import JobFilter
from sereno.jobs.job import JobOptions
from sereno.jobs.queries.search import WINDOW, jobs_wanted
from sereno.search.syntax import InvalidSearch
from tests.manual_worker import ManualWorker

NOON = datetime(2026, 11, 14, 12, tzinfo=ZoneInfo("Europe/Riga"))


def _fill(manual: ManualWorker) -> dict[str, int]:
    """Create one job of every kind that a search distinguishes."""
    made = {
        "dead": manual.dead(tenant="r1", tags=["blue", "big"]),
        "done": manual.finish(SUCCEEDED, tenant="r2"),
        "tagged": manual.enqueue(queue="q2", tags=["blue", "100%"], trace="t-1"),
        "later": manual.enqueue("other", delay="1h", unique_key="menu:42"),
        "plain": manual.enqueue(),
    }
    (inner,) = manual.app.enqueue_many(
        [manual.app.new_job("takes", b'{"order": {"account": 42, "ids": [7, "x"], "open": true}}', JobOptions())]
    )
    fired = manual.connection.execute(
        """with made as (
               insert into sereno.schedules (key, task, args, rule)
               values ('menu:9', 'greet', '{}', '{"cron": "0 9 * * *"}')
               returning id)
           update sereno.jobs set schedule_id = (select id from made) where id = %s returning id""",
        [made["plain"]],
    ).fetchone()
    assert fired is not None
    manual.connection.execute("update sereno.jobs set attempt = 4 where id = %s", [made["later"]])
    return made | {"inner": inner.id}


CASES = (
    ("", "dead done tagged later plain inner"),
    ("state:dead", "dead"),
    ("state:dead,ready", "dead tagged plain inner"),
    ("-state:dead,ready", "done later"),
    ("state:dead state:ready", ""),
    ("task:greet", "dead done tagged plain"),
    ("task:greet,other", "dead done tagged later plain"),
    ("-task:greet", "later inner"),
    ("task:gr*", "dead done tagged plain"),
    ("task:g_eet", ""),
    ("task:greet task:gr*", "dead done tagged plain"),
    ("task:greet task:other", ""),
    ("queue:q2", "tagged"),
    ("-queue:default,apart", "tagged"),
    ("tenant:r1,r2", "dead done"),
    ("tenant:*", "dead done"),
    ("-tenant:r1", "done tagged later plain inner"),
    ("-tenant:*", "tagged later plain inner"),
    ("tag:blue", "dead tagged"),
    ("tag:blue tag:big", "dead"),
    ("tag:big,100%", "dead tagged"),
    ('tag:"100%"*', "tagged"),
    ("-tag:big", "done tagged later plain inner"),
    ("key:menu:42", "later"),
    ("key:menu:*", "later"),
    ("trace:t-1", "tagged"),
    ('error:"CONNECTION reset"', "dead"),
    ("attempts:>3", "later"),
    ("attempts:4", "later"),
    ("attempts:1..3", "dead done"),
    ("attempts:<1", "tagged plain inner"),
    ("attempts:>=1 attempts:<=1", "dead done"),
    ("by:schedule:menu:9", "plain"),
    ("by:schedule:menu:*", "plain"),
    ("-by:schedule:*", "dead done tagged later inner"),
    ("args.order.account:42", "inner"),
    ('args.order.account:"42"', ""),
    ("args.order.account:41,42", "inner"),
    ("-args.order.account:42", "dead done tagged later plain"),
    ("args.order.ids:7", "inner"),
    ("args.order.open:true", "inner"),
    ("args.name:Ada -state:dead", "done tagged later plain"),
    ("args.name:42", ""),
    ("created:yesterday..", "dead done tagged later plain inner"),
    ("created:2000-01-01", ""),
    ("finished:1h..", "dead done"),
    ("age:>1h", ""),
    ("age:<1h state:dead", "dead"),
    ("other", "later"),
    ('"menu:"*', "later"),
    ("t-1,q2", "tagged"),
    ("-r1", "done tagged later plain inner"),
)


@pytest.mark.slow
def test_a_search_finds_the_matching_jobs(manual: ManualWorker) -> None:
    @manual.app.task(name="takes")
    def takes(order: dict[str, Any]) -> None:
        """Never run in this test."""

    made = _fill(manual)
    database = manual.app.database
    for text, names in CASES:
        wanted = jobs_wanted(text, datetime.now(UTC))
        expected = sorted(made[name] for name in names.split())
        assert sorted(line.id for line in database.run(jobs.list_jobs(wanted)).items) == expected, text
        assert sorted(database.run(bulk_selection.matching(wanted))) == expected, text
        assert database.run(jobs.count(wanted)).total.value == len(expected), text


def test_jobs_are_found_by_id(manual: ManualWorker) -> None:
    first, second, third = (manual.enqueue() for _ in range(3))

    def found(text: str) -> set[int]:
        return {line.id for line in manual.app.database.run(jobs.list_jobs(jobs_wanted(text, NOON))).items}

    assert found(f"id:{first},{second}") == {first, second}
    assert found(f"{third}") == {third}
    assert found(f"-id:{first}") == {second, third}


TIME_SEARCHES = (
    ("created:today", JobFilter(created_after=NOON.replace(hour=0), created_before=NOON.replace(day=15, hour=0))),
    (
        "created:yesterday",
        JobFilter(created_after=NOON.replace(day=13, hour=0), created_before=NOON.replace(hour=0)),
    ),
    ("finished:2026-11-01..", JobFilter(finished_after=NOON.replace(day=1, hour=0))),
    ("finished:..2026-11-01", JobFilter(finished_before=NOON.replace(day=2, hour=0))),
    ("created:>2026-11-01", JobFilter(created_after=NOON.replace(day=2, hour=0))),
    ("created:<2026-11-01", JobFilter(created_before=NOON.replace(day=1, hour=0))),
    ("created:>=2026-11-01T03:05", JobFilter(created_after=NOON.replace(day=1, hour=3, minute=5))),
    ("created:<=2026-11-01T03:05", JobFilter(created_before=NOON.replace(day=1, hour=3, minute=6))),
    ("created:>2026-11-01T03:05:00", JobFilter(created_after=NOON.replace(day=1, hour=3, minute=5, second=1))),
    ("created:>=2026-11-01T03:05Z", JobFilter(created_after=datetime(2026, 11, 1, 3, 5, tzinfo=UTC))),
    ("age:>1h", JobFilter(created_before=NOON - timedelta(hours=1))),
    ("age:1h..1d", JobFilter(created_after=NOON - timedelta(days=1), created_before=NOON - timedelta(hours=1))),
    ("finished:2h..", JobFilter(finished_after=NOON - timedelta(hours=2))),
)


def test_times_are_parsed_into_filters(subtests: pytest.Subtests) -> None:
    for text, wanted in TIME_SEARCHES:
        with subtests.test(text=text):
            found = jobs_wanted(text, NOON)
            assert found.window == WINDOW
            assert found.both(wanted) == found
            assert found.as_detail().keys() == wanted.as_detail().keys()
            assert found.as_detail() == wanted.as_detail()


INVALID_SEARCHES = (
    ("menu:*", "Quote a word"),
    ("created:soon", "write a day"),
    ("created:2h", "2h.."),
    ("created:0001-01-01", "the year must be"),
    ("created:>9999-12-31", "the year must be"),
    ("age:1h", "for older or"),
    ("age:>99999d", "not a duration"),
    ("age:>x", "not a duration"),
    ("attempts:x", "not a non-negative number"),
    ("attempts:>9999999999", "not a non-negative number"),
    ("attempts:²", "not a non-negative number"),
    ("id:9223372036854775808", "not a non-negative number"),
    ("id:x", "not a non-negative number"),
    ("by:me", "schedule:KEY"),
    ("by:schedule:", "schedule:KEY"),
)


def test_an_invalid_value_is_refused_with_a_hint(subtests: pytest.Subtests) -> None:
    for text, message in INVALID_SEARCHES:
        with subtests.test(text=text):
            with pytest.raises(InvalidSearch, match=r"at character \d+") as caught:
                jobs_wanted(text, NOON)
            assert message in str(caught.value)


PIECES = st.sampled_from(
    [
        "created:",
        "age:",
        "attempts:",
        "id:",
        "by:schedule:",
        "args.a:",
        "-",
        "1",
        "2026-11-01",
        "..",
        ">",
        "d",
        "T03",
        " ",
    ]
)


@pytest.mark.slow
@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=30).map("created:{}".format))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        wanted = jobs_wanted(text, NOON)
    except InvalidArguments:
        return
    assert wanted.params()["live"] in (True, False)


def test_two_filters_that_contradict_each_other_are_refused() -> None:
    assert JobFilter(tenant="a").both(JobFilter(tenant="a", queue="q")) == JobFilter(tenant="a", queue="q")
    with pytest.raises(InvalidArguments, match="tenant"):
        JobFilter(tenant="a").both(JobFilter(tenant="b"))


def test_conditions_without_an_index_are_tested_on_the_newest_jobs(manual: ManualWorker) -> None:
    manual.connection.execute(
        """insert into sereno.jobs (task, args, state, ready_seq)
           select 'greet', '{}', 'ready', nextval('sereno.ready_seq') from generate_series(1, 20)"""
    )
    manual.connection.execute(
        """insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes,
                                       releases, priority, state, queue, task, args)
           select 1000 + n, now(), now(), now(), 1, 1, 0, 0, 0, 5,
                  case when mod(n, 2) = 0 then 'dead' else 'succeeded' end, 'default', 'greet', '{}'
           from generate_series(1, 20) n"""
    )

    def found(**fields: Any) -> list[int]:
        operation = jobs.list_jobs(JobFilter(queue="default", **fields), limit=100)
        return [line.id for line in manual.app.database.run(operation).items]

    live = found(states=["ready"])
    assert found(states=["ready"], window=5) == live[:5]
    assert found(states=["dead"], window=5) == [1020, 1018, 1016, 1014, 1012]
    assert found(states=["dead", "succeeded"], window=5) == [1020, 1019, 1018, 1017, 1016]
    page = manual.app.database.run(jobs.list_jobs(JobFilter(states=["dead"], window=5), limit=100, before=1012)).items
    assert [line.id for line in page] == [1010, 1008, 1006, 1004, 1002]
    assert jobs_wanted("state:dead", NOON).window is None
    assert jobs_wanted("id:7 -tag:x", NOON).window is None
    assert jobs_wanted("tenant:r1", NOON).window == WINDOW


@pytest.mark.slow
def test_a_search_reads_each_table_along_its_index(manual: ManualWorker) -> None:
    """Checked by the query plan: no page of a search reads a whole table."""
    manual.connection.execute(
        """insert into sereno.jobs (task, args, state, ready_seq)
           select 'greet', '{}', 'ready', nextval('sereno.ready_seq') from generate_series(1, 20000)"""
    )
    manual.connection.execute(
        """insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes,
                                       releases, priority, state, queue, task, args)
           select 100000 + n, now(), now(), now(), 1, 1, 0, 0, 0, 5, 'dead', 'default', 'greet', '{}'
           from generate_series(1, 20000) n"""
    )
    manual.connection.execute("analyze sereno.jobs, sereno.history")
    for text in ("-tag:x tenant:a,b", "args.name:Ada", "state:dead -tag:x", "by:schedule:k", "by:schedule:k*", "word"):
        statement = next(jobs.list_jobs(jobs_wanted(text, NOON), limit=10))
        explain: Any = f"explain {statement.sql}"
        plan = "\n".join(row[0] for row in manual.connection.execute(explain, statement.params))
        assert "Seq Scan on jobs" not in plan, text
        assert "Seq Scan on history_dead" not in plan, text

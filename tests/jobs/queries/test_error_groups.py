"""Error groups: added to by every worker, bounded, deleted after retention; their jobs are found by an index."""

from datetime import UTC, datetime

import psycopg
import pytest

from sereno import Dead
from sereno.database.statement import run
from sereno.error_text import FailureText
from sereno.jobs.filters import JobFilter
from sereno.jobs.fingerprint import failure
from sereno.jobs.queries import error_groups, minute_stats
from sereno.jobs.queries.error_groups import MOST_GROUPS, MOST_TENANTS
from sereno.jobs.queries.search import jobs_wanted
from sereno.telemetry.metrics import MOST_KINDS, MOST_PAIRS, MOST_TRIES, MetricTally
from tests.database.plans import Access, accesses, nodes, plan
from tests.facts import advance, one
from tests.jobs.job_steps import decided

DAY = 86400.0
LATER = datetime(2096, 1, 1, tzinfo=UTC)


def failed(*failures: tuple[str, str | None]) -> MetricTally:
    """Return a tally of failures with these fingerprints and tenants."""
    found = MetricTally()
    for number, (fingerprint, tenant) in enumerate(failures, 1):
        found.failed(FailureText(fingerprint, "work", "OSError", f"message {number}", "shop.py:charge"), number, tenant)
    return found


def test_two_workers_add_to_the_same_error_group(connection: psycopg.Connection) -> None:
    run(connection, error_groups.add(failed(("a", "t"), ("a", "t"), ("b", None))))
    advance(connection, 3600)
    run(connection, error_groups.add(failed(("a", "u"))))
    of_a, of_b = run(connection, error_groups.list_groups(DAY))
    assert (of_a.fingerprint, of_a.count, of_a.total, of_b.fingerprint, of_b.count) == ("a", 3, 3, "b", 1)
    assert (of_a.task, of_a.error_type, of_a.message, of_a.frame) == ("work", "OSError", "message 1", "shop.py:charge")
    assert (of_a.hours[-2:], len(of_a.hours), of_b.hours[-2:]) == ([2, 1], 24, [1, 0])
    assert of_a.first_at < of_a.last_at
    (for_u,) = run(connection, error_groups.list_groups(DAY, tenant="u"))
    assert (for_u.fingerprint, for_u.count, for_u.total, sum(for_u.hours)) == ("a", 1, 3, 1)
    hit = run(connection, error_groups.tenants("a", DAY, 10))
    assert [(each.tenant, each.count) for each in hit] == [("t", 2), ("u", 1)]
    assert run(connection, error_groups.tenants("b", DAY, 10))[0].tenant is None
    assert sum(each.count for each in run(connection, error_groups.hours("a", DAY))) == 3
    assert len(run(connection, error_groups.hours("a", DAY))) == 25


def test_error_groups_are_sorted_and_filtered(connection: psycopg.Connection) -> None:
    run(connection, error_groups.add(failed(("a", None), ("a", None))))
    advance(connection, 1)
    run(connection, error_groups.add(failed(("b", None))))

    def names(**wanted: object) -> list[str]:
        since = wanted.pop("since", DAY)
        found = run(connection, error_groups.list_groups(since, **wanted))  # type: ignore[arg-type]  # as a caller would
        return [each.fingerprint for each in found]

    assert names() == ["b", "a"]
    assert names(by_count=True) == ["a", "b"]
    assert names(limit=1) == ["b"]
    assert names(limit=1, skip=1) == ["a"]
    assert names(task="other") == []
    assert run(connection, error_groups.mute("a", LATER, "known", with_note=True))
    assert names() == ["b"]
    assert names(muted=True) == ["b", "a"]
    advance(connection, 2 * DAY)
    assert names(muted=True) == []
    found = run(connection, error_groups.find_group("a", DAY))
    assert found is not None
    assert (found.count, found.total, found.note) == (0, 2, "known")


def test_a_worker_counts_a_bounded_number_of_error_groups() -> None:
    tally = failed(*((f"{number}", f"t{number}") for number in range(MOST_KINDS + 10)))
    assert len(tally.failures) == len(tally.hit) == MOST_KINDS
    tally = failed(*(("a", f"t{number}") for number in range(MOST_PAIRS + 10)))
    assert (len(tally.hit), tally.hit["a\t"], tally.failures["a"].count) == (MOST_PAIRS + 1, 10, MOST_PAIRS + 10)
    double = MetricTally()
    double.add(tally)
    double.add(tally)
    assert (tally.failures["a"].count, double.failures["a"].count) == (MOST_PAIRS + 10, 2 * (MOST_PAIRS + 10))
    assert sum(double.hit.values()) == 2 * (MOST_PAIRS + 10)


def test_tenants_beyond_a_hundred_per_hour_are_counted_without_a_name(connection: psycopg.Connection) -> None:
    run(connection, error_groups.add(failed(*(("a", f"t{number:03}") for number in range(MOST_TENANTS - 1)))))
    run(connection, error_groups.add(failed(("a", "t000"), ("a", "x"), ("a", "y"), ("a", "z"))))
    hit = {each.tenant: each.count for each in run(connection, error_groups.tenants("a", DAY, 1000))}
    assert (hit["t000"], hit["x"], hit[None], sum(hit.values())) == (2, 1, 2, MOST_TENANTS + 3)


@pytest.mark.slow
def test_only_known_error_groups_are_counted_at_the_maximum(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.error_groups (fingerprint, task, error_type, message, frame, first_at, last_at, count, "
        "last_job_id) select 'g' || n, '', '', '', '', sereno.now(), sereno.now() - n * interval '1 s', 1, 1 "
        "from generate_series(1, %s) as n",
        [MOST_GROUPS - 1],
    )
    run(connection, error_groups.add(failed(("g1", None), ("new1", None), ("new2", None))))
    assert one(connection, "select count(*) from sereno.error_groups") == MOST_GROUPS
    assert one(connection, "select count from sereno.error_groups where fingerprint = 'g1'") == 2
    assert one(connection, "select count(*) from sereno.error_hours") == 2
    run(connection, minute_stats.forget())
    assert one(connection, "select count(*) from sereno.error_groups") == error_groups.LEFT_AFTER_FORGETTING
    assert one(connection, "select count(*) from sereno.error_groups where fingerprint = 'new1'") == 1
    run(connection, error_groups.add(failed(("new2", None))))
    assert one(connection, "select count from sereno.error_groups where fingerprint = 'new2'") == 1


def test_an_error_group_is_deleted_after_a_month_unless_it_is_muted(connection: psycopg.Connection) -> None:
    run(connection, error_groups.add(failed(("a", "t"), ("b", "t"))))
    run(connection, error_groups.mute("b", LATER, None, with_note=False))
    advance(connection, 29 * DAY)
    run(connection, minute_stats.forget())
    assert one(connection, "select count(*) from sereno.error_hours") == 2
    advance(connection, 2 * DAY)
    run(connection, minute_stats.forget())
    assert one(connection, "select count(*) from sereno.error_hours") == 0
    assert one(connection, "select string_agg(fingerprint, '') from sereno.error_groups") == "b"


def test_successes_are_counted_by_their_number_of_attempts(connection: psycopg.Connection) -> None:
    tally = MetricTally()
    for failures in (0, 0, 1, 3, MOST_TRIES, 500):
        tally.job("default", "work", "succeeded", 0, 0)
        if failures:
            tally.succeeded_after("work", failures)
    tally.job("default", "other", "succeeded", 0, 0)
    tally.job("default", "broken", "dead", 0, 0)
    for _ in range(2):
        run(connection, error_groups.add(tally))
    assert run(connection, error_groups.tries("work", DAY)) == [4, 2, 0, 2, 0, 0, 0, 0, 0, 0, 4]
    assert run(connection, error_groups.tries("other", DAY)) == [2]
    assert run(connection, error_groups.tries("broken", DAY)) == []


def test_hostile_error_messages_are_stored_and_read(connection: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for message in ["\x00", "\ud800", "x" * 1_000_000, "\x1b[2J", "<b>", '"\\', "{}"]:
        with subtests.test(message=message[:12]), connection.transaction(force_rollback=True):
            found = failure("work", decided(Dead(message)))
            assert found is not None
            tally = MetricTally()
            tally.failed(found, 1, "a\ttenant 'with' \"all\"")
            run(connection, error_groups.add(tally))
            (group,) = run(connection, error_groups.list_groups(DAY))
            assert group.message == found.message
            assert (
                run(connection, error_groups.tenants(found.fingerprint, DAY, 5))[0].tenant == "a\ttenant 'with' \"all\""
            )


def test_the_jobs_of_an_error_group_are_found_by_an_index(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.jobs (task, state, run_at) "
        "select 'work', 'scheduled', sereno.now() + make_interval(secs => n) from generate_series(1, 5000) as n"
    )
    connection.execute("analyze sereno.jobs")
    connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")
    wanted = JobFilter(states=["dead"], fingerprint="abc").params() | {"after": 0, "limit": 1000}
    matching = plan(connection, "jobs/bulk_selection", "matching", wanted)["Plans"][0]
    (found,) = accesses(matching, "history_dead")
    assert (found.by, found.bounded) == ("history_dead_fingerprint", True)
    tables = {node.get("Relation Name") for node in nodes(matching)}
    assert not {name for name in tables if name and name.startswith(("history_done", "jobs"))}
    live = JobFilter(states=["scheduled"], fingerprint="abc").params() | {"limit": 50, "before": None}
    waiting = plan(connection, "jobs/queries/jobs", "list_jobs", live)["Plans"][0]
    days = {name for node in nodes(waiting) if (name := node.get("Relation Name")) and name.startswith("attempts_")}
    assert days
    for day in days:
        by_kind = [read for read in accesses(waiting, day) if "fingerprint" in str(read.by)]
        assert [(read.how, read.bounded) for read in by_kind] == [("Index Only Scan", True)], day
    assert Access("Index Scan", "jobs_pkey", True) in accesses(waiting)


def test_a_search_by_fingerprint_has_no_window() -> None:
    found = jobs_wanted("state:dead fingerprint:3fa9c01b77d2", datetime.now(UTC))
    assert found == JobFilter(states=["dead"], fingerprint="3fa9c01b77d2")

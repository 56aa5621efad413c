"""Searches of schedules, fires, errors, tenants and the audit find exactly the matching rows."""

import json
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.access import audit, audit_queries
from sereno.bulk.operations import begin_schedules, changes
from sereno.database.driver import drive
from sereno.database.statement import run
from sereno.error_text import FailureText
from sereno.jobs import pauses
from sereno.jobs.bulk import ClaimedBatch
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.queries import error_groups as groups_store
from sereno.jobs.queries import minute_stats
from sereno.monitoring import error_operations, tenants
from sereno.monitoring.search_fields import AUDIT_FIELDS, ERROR_FIELDS, TENANT_FIELDS
from sereno.schedules import operations as schedules
from sereno.schedules import queries as schedule_queries
from sereno.schedules import store as schedule_store
from sereno.schedules.lists import in_batches, list_schedules, tally
from sereno.schedules.search_fields import FIRE_FIELDS, SCHEDULE_FIELDS
from sereno.search.search_filter import search_params
from sereno.search.sql_terms import SearchParams
from sereno.search.syntax import InvalidSearch, SearchField
from sereno.telemetry.metrics import MetricTally
from tests.facts import one
from tests.search.test_search_deliveries import check

RULES = (
    {"kind": "cron", "expression": "0 3 * * *", "tz": "Europe/Riga"},
    {"kind": "every", "interval": 300},
    {"kind": "once", "at": "2099-01-01T00:00:00+00:00"},
)
MAKE_SCHEDULE = """insert into sereno.schedules
    (key, rule, task, queue, tenant, tags, args, state, paused_until, declared_by, changed_by, note, last_state,
     last_error, failed_in_row, next_run_at, last_fired_at, created_at)
    values (%(key)s, %(rule)s, %(task)s, %(queue)s, %(tenant)s, %(tags)s, %(args)s, %(state)s,
            sereno.now() + make_interval(hours => %(pause)s), %(declared)s, %(by)s, %(note)s, %(last)s, %(error)s,
            %(failed)s, sereno.now() + make_interval(hours => %(next)s),
            sereno.now() - make_interval(hours => %(fired)s), sereno.now() - make_interval(days => %(age)s))
    returning id"""
NOTHING: dict[str, Any] = dict.fromkeys(
    ("tenant", "tags", "pause", "declared", "by", "note", "last", "error", "next", "fired")
)
SCHEDULES: tuple[dict[str, Any], ...] = (
    {"key": "menu:1", "task": "menu", "queue": "ifood", "tenant": "r1", "tags": ["blue"], "args": {"account": 42}}
    | {"state": "enabled", "last": "dead", "error": "OSError: reset", "failed": 3, "next": 72, "fired": 1, "age": 9},
    {"key": "menu:2", "task": "menu", "queue": "default", "tenant": "r2", "args": {"account": "x"}, "state": "enabled"}
    | {"pause": 5, "declared": "shop", "by": "maria", "note": "Holidays", "last": "succeeded", "failed": 0, "age": 3},
    {"key": "close", "task": "close.day", "queue": "default", "args": {}, "state": "disabled", "failed": 0, "age": 0},
)
OF_SCHEDULES = (
    ("state:enabled", "0"),
    ("state:paused,disabled", "1 2"),
    ("-state:paused", "0 2"),
    ("key:menu:*", "0 1"),
    ("key:menu:1", "0"),
    ("key:menu:1,close", "0 2"),
    ("key:*:1", "0"),
    ("-key:menu:1", "1 2"),
    ("task:menu", "0 1"),
    ("task:close.*", "2"),
    ("queue:ifood", "0"),
    ("tenant:r1", "0"),
    ("tenant:r1,r2", "0 1"),
    ("-tenant:*", "2"),
    ("tag:blue", "0"),
    ("-tag:*", "1 2"),
    ("kind:cron", "0"),
    ("kind:every,once", "1 2"),
    ("zone:Europe/*", "0"),
    ("zone:UTC", "1 2"),
    ("declared:shop", "1"),
    ("-declared:*", "0 2"),
    ("by:maria", "1"),
    ("note:holiday", "1"),
    ("last:dead", "0"),
    ("-last:dead", "1 2"),
    ("error:RESET", "0"),
    ("failed:>2", "0"),
    ("failed:0", "1 2"),
    ("next:today..", "0"),
    ("next:..today", ""),
    ("fired:2h..", "0"),
    ("fired:..2h", ""),
    ("created:1d..", "2"),
    ("created:..5d", "0"),
    ("changed:1h..", "0 1 2"),
    ("changed:..1h", ""),
    ("args.account:42", "0"),
    ("-args.account:42", "1 2"),
    ("MENU", "0 1"),
    ("clo", "2"),
    ("*2", "1"),
    ("-menu", "2"),
    ("day", "2"),
    ("key:menu:* last:dead", "0"),
    ("last:lost", None),
)


def parsed(text: str, fields: tuple[SearchField, ...]) -> SearchParams | None:
    return search_params(text, fields, datetime.now(UTC))


@pytest.fixture
def three_schedules(connection: psycopg.Connection) -> list[int]:
    """Create the three schedules above; return their ids."""
    made = []
    for given, rule in zip(SCHEDULES, RULES, strict=True):
        values = NOTHING | given | {"rule": json.dumps(rule), "args": json.dumps(given["args"])}
        row = connection.execute(MAKE_SCHEDULE.encode(), values).fetchone()
        assert row is not None
        made.append(int(row[0]))
    return made


def wanted(text: str, **named: Any) -> ScheduleFilter:
    return ScheduleFilter(**named, search_params=parsed(text, SCHEDULE_FIELDS))


@pytest.mark.slow
def test_a_search_finds_matching_schedules(connection: psycopg.Connection, three_schedules: list[int]) -> None:
    def find(text: str) -> list[int]:
        found = [row.id for row in run(connection, list_schedules(wanted(text), limit=50)).items]
        # A change affects the same schedules.
        assert run(connection, tally(wanted(text), "delete")).total.value == len(found), text
        assert [row.id for row in run(connection, schedule_store.lock_page(wanted(text), 50))] == found
        return found

    check(OF_SCHEDULES, three_schedules, find)
    assert [row.id for row in run(connection, list_schedules(wanted("menu"), soonest=True)).items] == three_schedules[
        :1
    ]
    assert [
        row.id for row in run(connection, list_schedules(wanted("tenant:r1"), soonest=True)).items
    ] == three_schedules[:1]
    assert run(connection, list_schedules(wanted("close"), soonest=True)).items == []


def test_a_filter_and_a_search_of_schedules_both_apply(
    connection: psycopg.Connection, three_schedules: list[int]
) -> None:
    def find(text: str, **named: Any) -> list[str]:
        return [row.key for row in run(connection, list_schedules(wanted(text, **named))).items]

    assert find("task:menu", tenant="r1") == ["menu:1"]
    assert find("tenant:r2", tenant="r1") == []
    assert find("key:menu:1,menu:2", keys=["menu:2"]) == ["menu:2"]
    assert find("last:dead", states=["paused"]) == []
    assert find("menu", pattern="*:2") == ["menu:2"]
    assert find("-tenant:r1", declared_by="shop") == ["menu:2"]


def test_a_long_scan_of_schedules_continues_where_it_ended(
    connection: psycopg.Connection, three_schedules: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_queries, "WINDOW", 2)
    first = run(connection, list_schedules(wanted("*2")))
    assert ([row.key for row in first.items], first.next) == ([], "menu:1")
    rest = run(connection, list_schedules(wanted("*2"), after="menu:1"))
    assert ([row.key for row in rest.items], rest.next) == (["menu:2"], None)
    # With an index or a prefix, no row is skipped.
    for text in ("key:menu:2", "key:menu:2*", "tenant:r2"):
        found = run(connection, list_schedules(wanted(text)))
        assert ([row.key for row in found.items], found.next) == (["menu:2"], None), text
    whole = run(connection, list_schedules(wanted("task:menu"), limit=1))
    assert ([row.key for row in whole.items], whole.next) == (["menu:1"], "menu:1")


def test_a_change_affects_the_schedules_of_its_search(
    app: Sereno, connection: psycopg.Connection, three_schedules: list[int]
) -> None:
    plan = in_batches(wanted("task:menu -tenant:r1"), lambda found: schedules.pause(found, actor="test"))
    assert drive(plan, app.database.run) == 1
    assert one(connection, "select string_agg(key, ' ') from sereno.schedules where state = 'paused'") == "menu:2"
    detail = one(connection, "select detail from sereno.audit order by id desc limit 1")
    assert (detail["q"], detail["keys"], detail["changed"]) == ("task:menu -tenant:r1", ["menu:2"], 1)


def test_a_bulk_operation_affects_the_schedules_of_its_search(
    connection: psycopg.Connection, three_schedules: list[int]
) -> None:
    text = "failed:>2 created:..5d"
    made = run(connection, begin_schedules("schedule.disable", wanted(text), yes=True, actor="test"))
    assert made.wanted["q"] == text
    row = connection.execute(
        "select selection::text, wanted::text, upper_id, created_at from sereno.bulk_operations"
    ).fetchone()
    assert row is not None
    taken = ClaimedBatch(
        made.id, made.action, row[0], row[1], "{}", None, None, "test", 0, 0, None, 0, "", row[2], row[3], False, 0.0
    )
    step = run(connection, changes(lambda _: iter(()))["schedule.disable"](taken))  # type: ignore[arg-type,return-value]  # never called
    assert (step.done, step.left, step.place.ends) == (1, 0, True)
    assert one(connection, "select note is null and state = 'disabled' from sereno.schedules where key = 'menu:1'")
    assert one(connection, "select state from sereno.schedules where key = 'menu:2'") == "enabled"


def test_unused_search_parameters_are_not_stored_for_older_workers(
    connection: psycopg.Connection, three_schedules: list[int]
) -> None:
    run(connection, begin_schedules("schedule.delete", ScheduleFilter(task="menu"), yes=True, actor="test"))
    assert "terms" not in one(connection, "select selection from sereno.bulk_operations")


FIRES = """insert into sereno.history
    (id, task, queue, state, attempt, schedule_id, planned_at, created_at, started_at, finished_at, priority, run_at,
     error_type, error_message, stands_for, failures, crashes, snoozes, releases, args)
    select number, 'menu', 'default', state, number, %s, sereno.now() - make_interval(days => number), sereno.now(),
           sereno.now(), sereno.now() - make_interval(days => number), 5, sereno.now(), error, error, 1, 0, 0, 0, 0,
           '{}'
    from (values (1, 'succeeded', null), (2, 'dead', 'OSError')) as made (number, state, error) returning id"""
SKIPS = """insert into sereno.fires (planned_at, schedule_id, fired_at, stands_for, reason)
    values (sereno.now() - interval '12 hours', %s, sereno.now(), 1, 'overlap') returning schedule_id"""
OF_FIRES = (
    ("", "skipped succeeded dead"),
    ("state:dead", "dead"),
    ("-state:skipped", "succeeded dead"),
    ("reason:overlap", "skipped"),
    ("-reason:*", "succeeded dead"),
    ("error:oserror", "dead"),
    ("job:1", "succeeded"),
    ("attempts:>1", "dead"),
    ("planned:30h..", "skipped succeeded"),
    ("finished:30h..", "succeeded"),
    ("fired:1h..", "skipped succeeded dead"),
    ("fired:..1h", ""),
    ("over", "skipped"),
)


def test_a_search_finds_matching_fires(connection: psycopg.Connection, three_schedules: list[int]) -> None:
    one(connection, FIRES, three_schedules[0])
    one(connection, SKIPS, three_schedules[0])
    for text, states in OF_FIRES:
        found = run(connection, schedules.show("menu:1", fires=3, search_params=parsed(text, FIRE_FIELDS)))
        assert [fire.state for fire in found.fires] == states.split(), text
    # Tested on the newest fires, not only on those that are shown.
    found = run(connection, schedules.show("menu:1", fires=1, search_params=parsed("state:dead", FIRE_FIELDS)))
    assert [fire.job_id for fire in found.fires] == [2]


OF_ERRORS = (
    ("task:menu", "0 1"),
    ("task:bi*", "2"),
    ("-task:menu", "2"),
    ("type:OSError", "0"),
    ("type:*Error", "0 1 2"),
    ("message:RESET", "0"),
    ("message:100%", "1"),
    ("where:orders.py", "0"),
    ("fingerprint:00000000000a", "0"),
    ("fingerprint:*b,*c", "1 2"),
    ("note:team", ""),
    ("job:12", "1"),
    ("count:>1", "0"),
    ("count:1", "1 2"),
    ("total:3..", "0"),
    ("first:1h..", "0 1 2"),
    ("first:..1h", ""),
    ("last:1h..", "0 1 2"),
    ("last:..1h", ""),
    ("muted:no", "0 1 2"),
    ("muted:yes", ""),
    ("peer", "0"),
    ("bill", "2"),
    ("0000000000", "0 1 2"),
    ("-peer -bill", "1"),
)


def test_a_search_finds_matching_error_groups(connection: psycopg.Connection) -> None:
    failed = MetricTally()
    kinds = (
        (FailureText("00000000000a", "menu", "OSError", "Connection reset by peer", "orders.py:7"), 11, 3),
        (FailureText("00000000000b", "menu", "ValueError", "100% of it", "sums.py:8"), 12, 1),
        (FailureText("00000000000c", "bill", "KeyError", "x", ""), 13, 1),
    )
    for kind, job, times in kinds:
        for _ in range(times):
            failed.failed(kind, job, None)
    run(connection, groups_store.add(failed))

    def find(text: str) -> list[int]:
        found = run(connection, error_operations.list_groups(search_params=parsed(text, ERROR_FIELDS)))
        return [int(group.fingerprint, 16) - 10 for group in found]

    check(OF_ERRORS, [0, 1, 2], find)
    muted = groups_store.mute("00000000000b", datetime(2099, 1, 1, tzinfo=UTC), "the team knows", with_note=True)
    assert run(connection, muted)
    assert find("type:ValueError") == []
    assert (find("muted:yes"), sorted(find("muted:no")), sorted(find("-muted:yes"))) == ([1], [0, 2], [0, 2])
    assert find("note:TEAM muted:yes,no") == [1]
    both = error_operations.list_groups(task="bill", search_params=parsed("menu", ERROR_FIELDS))
    assert run(connection, both) == []


OF_TENANTS = (
    ("tenant:ann", "0"),
    ("tenant:*b", "1"),
    ("-tenant:ann,bob", "2"),
    ("jobs:2", "0"),
    ("jobs:<1", "2"),
    ("failed:>0", "0"),
    ("seconds:8..", "0"),
    ("seconds:<8", "1 2"),
    ("deliveries:0", "0 1 2"),
    ("deliveries:>0", ""),
    ("paused:yes", "2"),
    ("paused:no", "0 1"),
    ("AN", "0"),
    ("_", ""),
    ("-an", "1 2"),
)


def test_a_search_finds_matching_tenants(connection: psycopg.Connection) -> None:
    names, worked = ["ann", "bob", "zed"], MetricTally()
    for tenant, outcome, length in (("ann", "succeeded", 6.5), ("ann", "dead", 2.0), ("bob", "succeeded", 1.0)):
        worked.job("default", "work", outcome, 0.1, length, tenant)
    run(connection, minute_stats.add(worked))
    run(connection, pauses.pause("tenant", "zed", actor="test"))

    def find(text: str) -> list[int]:
        found = run(connection, tenants.list_tenants(search_params=parsed(text, TENANT_FIELDS)))
        return [names.index(line.tenant) for line in found]

    check(OF_TENANTS, [0, 1, 2], find)
    assert run(connection, tenants.list_tenants(part="b", search_params=parsed("ann", TENANT_FIELDS))) == []


OF_AUDIT = (
    ("actor:maria", "0 2"),
    ("-actor:maria", "1"),
    ("action:queue.*", "0 1"),
    ("action:queue", ""),
    ('subject:"queue ifood"', "0 1"),
    ('subject:"queue ifood" actor:ops', "1"),
    ("subject:schedule*", "2"),
    ("at:1h..", "1 2"),
    ("at:..1h", "0"),
    ("IFOOD", "0 1"),
    ("resume", "1"),
    ("-ifood", "2"),
)


def test_a_search_finds_matching_audit_lines(connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    done = (
        ("maria", "queue.pause", "queue ifood"),
        ("ops", "queue.resume", "queue ifood"),
        ("maria", "schedule.run", "schedule a"),
    )
    for actor, action, subject in done:
        run(connection, audit.audit(actor, action, subject, {}))
    connection.execute("update sereno.audit set at = at - interval '1 day' where action = 'queue.pause'")
    ids = [row[0] for row in connection.execute("select id from sereno.audit order by id")]

    def find(text: str) -> list[int]:
        return [
            line.id for line in run(connection, audit_queries.audit_lines(search_params=parsed(text, AUDIT_FIELDS)))
        ]

    check(OF_AUDIT, ids, find)
    assert (
        run(connection, audit_queries.audit_lines(actor="ops", search_params=parsed("actor:maria", AUDIT_FIELDS))) == []
    )
    monkeypatch.setattr(audit_queries, "AUDIT_WINDOW", 1)
    assert (find("actor:ops"), find('subject:"queue ifood"')) == ([], [ids[1]])


def test_an_invalid_search_of_schedules_errors_or_tenants_is_refused_with_its_position(
    subtests: pytest.Subtests,
) -> None:
    for text, fields, at in [
        ("kind:hourly", SCHEDULE_FIELDS, 5),
        ("menu:1", SCHEDULE_FIELDS, 0),
        ("failed:x", SCHEDULE_FIELDS, 7),
        ("args:1", SCHEDULE_FIELDS, 0),
        ("state:late", FIRE_FIELDS, 6),
        ("muted:maybe", ERROR_FIELDS, 6),
        ("seconds:1.5", TENANT_FIELDS, 8),
        ("at:now", AUDIT_FIELDS, 3),
    ]:
        with subtests.test(text=text):
            with pytest.raises(InvalidSearch) as caught:
                parsed(text, fields)
            assert caught.value.at == at

"""Every kind of condition is found, with its text; a tenant sees only its own."""

from collections.abc import Iterator

import psycopg
import pytest

from sereno import Daily, Sereno
from sereno.database.migrate import migrate
from sereno.errors import InvalidArguments
from sereno.jobs import pauses
from sereno.monitoring.alerts import condition_queries as store
from sereno.monitoring.alerts.condition import KINDS, AlertCondition, clean, condition, filled
from sereno.monitoring.alerts.current_conditions import current_conditions
from sereno.notifications.deliveries import store as deliveries
from tests.facts import advance, until
from tests.manual_worker import ManualWorker


def conditions_by_kind(manual: ManualWorker, **options: object) -> dict[str, AlertCondition]:
    """Return the last condition of each kind."""
    return {each.kind: each for each in found(manual, **options)}


def found(manual: ManualWorker, **options: object) -> list[AlertCondition]:
    return manual.app.database.run(current_conditions(manual.app.settings, **options))  # type: ignore[arg-type]  # as a caller would


@pytest.fixture
def quiet(manual: ManualWorker) -> ManualWorker:
    """An application with an idle worker."""
    manual.worker()
    return manual


def test_an_idle_system_has_no_conditions(quiet: ManualWorker) -> None:
    assert found(quiet) == []


def test_a_missing_worker_is_found(manual: ManualWorker) -> None:
    assert conditions_by_kind(manual)["worker.none"].level == "warn"
    manual.enqueue()
    first = found(manual)[0]
    assert (first.kind, first.level, first.remedy) == ("worker.none", "bad", "sereno worker")
    assert first.words == "No worker is alive."


def test_an_unserved_queue_is_found(quiet: ManualWorker) -> None:
    quiet.enqueue(queue="mails")
    quiet.enqueue(queue="mails")
    (each,) = found(quiet)
    assert (each.kind, each.subject, each.level, each.values["ready"]) == ("queue.unserved", "mails", "bad", 2)
    assert each.values["age"] == "1 s"
    assert each.words.startswith("The queue mails has 2 ready jobs and no worker; the oldest waits for ")
    assert each.remedy == "sereno worker -q mails"
    assert each.since == quiet.run_at(quiet.enqueue(queue="mails")) or each.since is not None


def test_a_queue_is_late_until_it_is_paused(quiet: ManualWorker, connection: psycopg.Connection) -> None:
    quiet.enqueue()
    assert "queue.late" not in conditions_by_kind(quiet)
    advance(connection, 180)
    late = conditions_by_kind(quiet)["queue.late"]
    assert (late.subject, late.level, str(late.values["age"])[:3]) == ("default", "warn", "3 m")
    assert "queue.late" not in conditions_by_kind(quiet, late="8m")
    advance(connection, 7200 - 180)
    late = conditions_by_kind(quiet)["queue.late"]
    assert (late.subject, late.level, late.values["age"]) == ("default", "bad", "2 h")
    # Jobs that an operator has paused are expected to wait.
    for kind, name in (("queue", "default"), ("task", "greet")):
        quiet.app.database.run(pauses.pause(kind, name))  # type: ignore[arg-type]  # one of the two
        assert "queue.late" not in conditions_by_kind(quiet)
        quiet.app.database.run(pauses.resume(kind, name))  # type: ignore[arg-type]  # see above
    assert "queue.late" in conditions_by_kind(quiet)


def test_counting_stops_at_a_bound(
    quiet: ManualWorker, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "COUNTED", 3)
    for _ in range(5):
        quiet.enqueue(queue="mails")
    assert "has 3 or more ready jobs" in conditions_by_kind(quiet)["queue.unserved"].words


def test_an_unknown_task_is_found(manual: ManualWorker) -> None:
    manual.worker(tasks=["other"])
    manual.enqueue()
    unknown = conditions_by_kind(manual)["task.unknown"]
    assert (unknown.subject, unknown.values) == ("greet in default", {"task": "greet", "queue": "default"})


def test_recently_dead_jobs_are_found_for_all_and_for_one_tenant(
    quiet: ManualWorker, connection: psycopg.Connection
) -> None:
    for tenant in ("r42", "r42", "r7", None):
        quiet.dead(tenant=tenant)
    dead = conditions_by_kind(quiet)["job.dead"]
    assert (dead.subject, dead.words) == ("greet", "Jobs of the task greet died within the last hour: 4.")
    assert [each.values["count"] for each in found(quiet, tenant="r42")] == [2]
    assert found(quiet, tenant="unknown") == []
    advance(connection, 3601)
    assert "job.dead" not in conditions_by_kind(quiet)


def test_a_missing_or_slow_scheduler_is_found(quiet: ManualWorker, connection: psycopg.Connection) -> None:
    job = quiet.app.new_job("greet", b'{"name": "Ada"}')
    quiet.app.schedules.upsert("nightly", job, Daily("03:00", tz="UTC"))
    assert conditions_by_kind(quiet)["scheduler.none"].level == "bad"
    connection.execute(
        "insert into sereno.leases (name, holder, since, until) "
        "values ('scheduler', 'me', sereno.now(), sereno.now() + interval '9 days')"
    )
    assert "scheduler.none" not in conditions_by_kind(quiet)
    advance(connection, 2 * 86400)
    behind = conditions_by_kind(quiet)["scheduler.behind"]
    assert behind.since is not None
    assert "waits for 1 d" in behind.words or "waits for 2 d" in behind.words


def test_parked_failed_and_missed_schedules_are_found(quiet: ManualWorker, connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.schedules (key, rule, task, tenant, state, note) values "
        "('a', '{}', 'greet', 'r42', 'parked', 'no such zone'), "
        "('b', '{}', 'greet', null, 'disabled', 'disabled after 3'), "
        "('c', '{}', 'greet', 'r42', 'disabled', 'by hand'), ('d', '{}', 'greet', 'r42', 'finished', null)"
    )
    connection.execute(
        "insert into sereno.fires (planned_at, schedule_id, fired_at, stands_for, reason) "
        "select sereno.now() - interval '7 hours', id, sereno.now(), 4, 'missed' from sereno.schedules where key = 'd'"
    )
    connection.execute(
        "insert into sereno.fires (planned_at, schedule_id, fired_at, reason) "
        "select sereno.now(), id, sereno.now(), 'overlap' from sereno.schedules"
    )
    words = {each.kind: each.words for each in found(quiet)}
    assert words == {
        "schedule.parked": "The schedule a is parked: no such zone",
        "schedule.failed": "The schedule b was disabled, because its runs failed: disabled after 3",
        "schedule.missed": "The schedule d missed 4 fires, and they were dropped.",
    }
    assert {each.kind for each in found(quiet, tenant="r42")} == {"schedule.parked", "schedule.missed"}
    assert found(quiet, tenant="r7") == []


def test_paused_and_failing_channels_are_found(quiet: ManualWorker, connection: psycopg.Connection) -> None:
    quiet.app.database.run(deliveries.pause_channel("sms", "", "401: bad credentials"))
    quiet.app.database.run(deliveries.pause_channel("sms", "r42", "no_account: none"))
    paused = conditions_by_kind(quiet)
    assert (paused["channel.paused"].level, paused["channel.account"].level) == ("bad", "warn")
    assert "401: bad credentials" in paused["channel.paused"].words
    assert [each.kind for each in found(quiet, tenant="r42")] == ["channel.account"]
    connection.execute("insert into sereno.recipients (key, tenant) select n, '' from generate_series(1, 15) as n")
    connection.execute(
        "insert into sereno.events (type, payload, channels, key) values ('news', '{}', '{pager}', 'one') returning id"
    )
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at) "
        "select e.id, r.id, 'pager', case when r.key::integer < 12 then 'failed' else 'sent' end, sereno.now() "
        "from sereno.events e, sereno.recipients r"
    )
    failing = conditions_by_kind(quiet)["channel.failing"]
    assert failing.words == "The channel pager fails: 11 of the last 15 deliveries."


def test_a_paused_tenant_is_a_condition_of_that_tenant(quiet: ManualWorker) -> None:
    quiet.app.database.run(pauses.pause("tenant", "r42"))
    assert found(quiet) == []
    (each,) = found(quiet, tenant="r42")
    assert (each.kind, each.remedy) == ("tenant.paused", "sereno queue resume --tenant r42")
    assert found(quiet, tenant="r7") == []


def test_a_long_transaction_is_found(quiet: ManualWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LONG_TRANSACTION", 0.0)
    with psycopg.connect(quiet.app.url, application_name="a report") as holder:
        holder.execute("select 1")
        subject = f"transaction {holder.info.backend_pid}"
        # Other tests use the same server; this transaction soon is among the oldest.
        (pinned,) = until(lambda: [each for each in found(quiet) if each.subject == subject])
        assert (pinned.kind, "a report" in pinned.words) == ("snapshot.pinned", True)


def test_a_moved_clock_is_found(quiet: ManualWorker, connection: psycopg.Connection) -> None:
    advance(connection, 30)
    assert conditions_by_kind(quiet)["clock.moved"].words == "The clock is moved by 30 s: this is for tests."


@pytest.mark.slow
def test_a_missing_or_outdated_schema_is_found(
    app: Sereno, manual: ManualWorker, connection: psycopg.Connection, empty_database_url: str
) -> None:
    connection.execute("delete from sereno.migrations where number = (select max(number) from sereno.migrations)")
    assert conditions_by_kind(manual)["schema.behind"].words == "1 migrations are not applied."
    empty = Sereno(empty_database_url)
    (only,) = empty.database.run(current_conditions(empty.settings))
    assert (only.kind, only.words) == ("schema.none", "The schema sereno of sereno does not exist.")
    empty.close()
    with psycopg.connect(empty_database_url, autocommit=True) as other:
        assert migrate(other)


def test_user_chosen_names_are_cleaned_and_quoted(quiet: ManualWorker) -> None:
    hostile = "a\x1b[31m\u202e$(reboot) @everyone %(queue)s <b>\n;"
    quiet.enqueue(queue=hostile)
    (each,) = found(quiet)
    assert "\x1b" not in each.words + each.remedy
    assert "\u202e" not in each.words
    assert "\n" not in each.words
    assert "%(queue)s <b>" in each.words
    # Copying the command into a shell runs exactly that command.
    assert each.remedy == "sereno worker -q 'a [31m $(reboot) @everyone %(queue)s <b> ;'"


def test_every_kind_belongs_to_a_query() -> None:
    covered = [kind for query in store.QUERIES for kind in query.kinds]
    assert sorted([*covered, "log.lines"]) == sorted(KINDS)


def test_a_sentence_in_another_language_takes_the_same_values() -> None:
    each = condition("queue.late", "q", "bad", "look", queue="q", ready=1200, age="5 m")
    assert filled("Fila %(queue)s: %(ready)s (%(missing)s)", each.values) == "Fila q: 1,200 (…)"
    assert clean("x" * 500) == "x" * 199 + "…"


def test_invalid_arguments_are_refused(manual: ManualWorker) -> None:
    for options in ({"late": 0}, {"late": "2d"}, {"tenant": ""}, {"tenant": "a\x00"}):
        with pytest.raises(InvalidArguments):
            found(manual, **options)


@pytest.fixture(autouse=True)
def _closed(app: Sereno) -> Iterator[None]:
    yield
    app.close()

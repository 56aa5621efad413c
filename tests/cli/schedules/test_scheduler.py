"""The heatmap, the scheduler in `sereno status`, and `sereno scheduler`."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno.schedules import heatmap as heatmap_module
from sereno.schedules.heatmap import CELL, HeatmapCells
from tests.cli.conftest import PROGRAM, Command, process_environment
from tests.cli.schedules.schedule_steps import add
from tests.facts import advance, one, until
from tests.warm_process import WarmProcess

# The heatmap


def cells(sereno: Command, *words: str) -> dict[str, Any]:
    result = sereno("schedule", "heatmap", "-o", "json", *words)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def filled(found: dict[str, Any]) -> dict[datetime, float]:
    return {datetime.fromisoformat(cell["at"]): cell["fires"] for cell in found["cells"] if cell["fires"]}


def test_a_heatmap_evaluates_a_shared_rule_once(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute(
        "select sereno.schedule('k' || n, 'work', daily => '03:00', tz => 'Asia/Tokyo') from generate_series(1, 500) n"
    )
    sereno("schedule", "tick")
    found = cells(sereno)
    assert (found["rules"], found["schedules"], found["left_out"]) == (1, 500, 0)
    ((at, fires),) = filled(found).items()
    assert fires == 500
    assert (at.hour, at.minute) == (18, 0)


def test_a_heatmap_covers_the_given_time(sereno: Command) -> None:
    add(sereno, "k", "--cron", "*/10 * * * *")
    found = cells(sereno, "--next", "2h")
    assert sum(filled(found).values()) == 12
    moments = [datetime.fromisoformat(cell["at"]) for cell in found["cells"]]
    assert all(later - earlier == timedelta(minutes=5) for earlier, later in pairwise(moments))
    assert moments[0] <= datetime.fromisoformat(found["now"]) < moments[1]
    assert moments[-1] < datetime.fromisoformat(found["until"]) <= moments[-1] + timedelta(minutes=5)


def test_a_spread_is_smeared_over_its_window(sereno: Command) -> None:
    add(sereno, "k", "--daily", "03:00", "--spread", "20m")
    found = filled(cells(sereno))
    assert sum(found.values()) == pytest.approx(1.0, abs=0.02)
    inside = [fires for at, fires in found.items() if at.hour == 3 and at.minute < 20]
    assert len(inside) == len(found)


def test_intervals_are_smeared_over_the_whole_time(sereno: Command) -> None:
    add(sereno, "plan", "--every", "10m")
    add(sereno, "fast", "--every", "1ms", "--count-from", "clock")
    found = cells(sereno, "--next", "1h")
    assert sum(filled(found).values()) == pytest.approx(6 + 3_600_000, rel=0.001)


def test_a_heatmap_is_filtered_and_omits_stopped_schedules(sereno: Command) -> None:
    add(sereno, "a", "--cron", "0 * * * *", "--tenant", "r1")
    add(sereno, "b", "--cron", "0 * * * *")
    assert cells(sereno, "a*")["schedules"] == 1
    assert cells(sereno, "--tenant", "r1")["schedules"] == 1
    sereno("schedule", "pause", "a")
    assert cells(sereno)["schedules"] == 1
    sereno("schedule", "disable", "b")
    assert "No fire within 1 d." in sereno("schedule", "heatmap", "-o", "table").stdout


def test_a_heatmap_has_one_line_for_each_hour(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute("select sereno.schedule('k' || n, 'work', cron => '30 * * * *') from generate_series(1, 100) n")
    connection.execute("select sereno.schedule('x' || n, 'work', cron => '0 * * * *') from generate_series(1, 20) n")
    sereno("schedule", "tick")
    *hours, _, total, legend = sereno("schedule", "heatmap", "--tz", "Asia/Kolkata", "-o", "table").stdout.splitlines()
    assert len(hours) in (25, 24)
    whole = hours[5]
    assert ":00 IST  ██··········░░··········  " in whole or ":00 IST  ░░··········██··········  " in whole
    assert "peak 100 at " in whole
    assert max(map(len, hours)) < 80
    assert "2,880 fires of 120 schedules" in total
    assert "░ up to 25  ▒ up to 50  ▓ up to 75  █ up to 100" in legend


def test_a_small_heatmap_uses_whole_numbers(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--at", "20h")
    *_, total, legend = sereno("schedule", "heatmap", "-o", "table").stdout.splitlines()
    assert "1 fire of 1 schedule;" in total
    assert legend == "█ up to 1"
    connection.execute("select sereno.schedule('k' || n, 'work', cron => '30 * * * *') from generate_series(1, 3) n")
    connection.execute("delete from sereno.schedules where key = 'k'")
    add(sereno, "x", "--cron", "0 * * * *")
    sereno("schedule", "tick")
    assert sereno("schedule", "heatmap", "-o", "table").stdout.splitlines()[-1] == "▒ up to 1  ▓ up to 2  █ up to 3"


def test_an_invalid_rule_is_omitted_from_the_heatmap(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute("select sereno.schedule('bad', 'work', cron => '61 * * * *')")
    add(sereno, "k", "--cron", "0 * * * *")
    found = cells(sereno)
    assert (found["schedules"], found["left_out"]) == (1, 1)
    assert "Omitted" in sereno("schedule", "heatmap", "-o", "table").stdout


def test_schedules_with_too_many_instants_are_omitted_with_a_note(
    sereno: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heatmap_module, "MOST_OF_A_RULE", 1000)
    add(sereno, "seconds", "--cron", "* * * * * *")
    add(sereno, "hours", "--cron", "0 * * * *")
    found = cells(sereno)
    assert (found["schedules"], found["left_out"]) == (1, 1)


def test_a_heatmap_in_a_pipe_and_with_invalid_arguments(sereno: Command) -> None:
    add(sereno, "k", "--cron", "0 * * * *")
    header, *lines = sereno("schedule", "heatmap", "--next", "1h").stdout.splitlines()
    assert header == "at\tfires"
    assert len(lines) in (12, 13)
    for wrong in ("soon", "1s", "400d"):
        assert sereno("schedule", "heatmap", "--next", wrong).exit_code == 2
    assert sereno("schedule", "heatmap", "--tz", "Riga").exit_code == 2


def test_smearing_preserves_the_sum() -> None:
    now = 1_800_000_123_456_789
    span = 24 * 12 * CELL
    found = HeatmapCells(now, now + span)
    total = 0.0
    for number in range(1000):
        first, length = now + number * 71_000_000, 1 + number * 977_777
        found.smear(first, first + length, number)
        total += number
    assert sum(cell.fires for cell in found.sums()) == pytest.approx(total, rel=1e-6)
    edge = HeatmapCells(now, now + span)
    edge.smear(now - span, now + span, 2.0)
    edge.smear(now - 10, now, 5.0)
    assert sum(cell.fires for cell in edge.sums()) == pytest.approx(1.0, abs=0.2)


# The status


def test_status_says_that_no_scheduler_has_run(sereno: Command, connection: psycopg.Connection) -> None:
    text = sereno("status").stdout
    assert "Scheduler: none has run yet." in text
    assert "Schedules: none." in text
    add(sereno, "k", "--every", "1h")
    add(sereno, "stopped", "--every", "1h")
    sereno("schedule", "disable", "stopped")
    advance(connection, 2 * 3600)
    text = sereno("status").stdout
    assert "Schedules: 1 disabled, 1 enabled; the oldest due one is 1 h" in text
    assert "No scheduler is alive: start `sereno scheduler`, or a worker without SERENO_SCHEDULER=false." in text
    found = json.loads(sereno("status", "-o", "json").stdout)["scheduler"]
    assert found["schedules"] == {"disabled": 1, "enabled": 1}
    assert found["holder"] is None
    assert 3500 < found["lag_seconds"] < 3700


def lease(connection: psycopg.Connection, left: str, **more: Any) -> None:
    connection.execute(
        "insert into sereno.leases (name, holder, since, until, ticked_at, tick_seconds, tick_fires, error, error_at) "
        "values ('scheduler', 'host:1:abc', sereno.now() - interval '1 hour', sereno.now() + %s::interval, "
        "sereno.now() - interval '3 seconds', 0.008, 12, %s, sereno.now())",
        [left, more.get("error")],
    )


def test_status_shows_the_leader_and_its_last_tick(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--every", "1h")
    lease(connection, "1 hour", error="a schedule could not be fired\nat all")
    text = sereno("status").stdout
    assert "Scheduler: host:1:abc leads since " in text
    assert re.search(r"Last tick \d+ s ago: 12 fires in 8 ms\.", text)
    assert ": a schedule could not be fired\n" in text
    assert "Schedules: 1 enabled; none is late." in text
    found = json.loads(sereno("status", "-o", "json").stdout)["scheduler"]
    assert (found["alive"], found["holder"], found["tick_fires"]) == (True, "host:1:abc", 12)
    assert 3000 < found["lease_seconds"] <= 3600


def test_status_says_that_the_scheduler_lost_its_lease(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--every", "1h")
    lease(connection, "-5 seconds")
    text = sereno("status").stdout
    assert "Scheduler: none is alive. The last one, host:1:abc, lost its lease at " in text
    assert "No scheduler is alive: start `sereno scheduler`" in text
    assert json.loads(sereno("status", "-o", "json").stdout)["scheduler"]["lease_seconds"] < 0


# The standalone scheduler

# Seconds. Long enough that the lease does not expire before the status is read, however slow that is.
LEASE = 3600
LONG_LEASE = f"from sereno.schedules import scheduler; scheduler.LEASE = {LEASE}.0; {PROGRAM}"


@contextmanager
def scheduler(database_url: str, directory: Path) -> Iterator["subprocess.Popen[str]"]:
    running = WarmProcess(
        [sys.executable, "-c", LONG_LEASE, "scheduler"],
        cwd=directory,
        env=process_environment(SERENO_DATABASE_URL=database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.quick), pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_a_standalone_scheduler_fires_until_it_is_stopped(
    sereno: Command, connection: psycopg.Connection, database_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    add(sereno, "k", "--every", "100ms", "--overlap", "allow")
    with scheduler(database_url, tmp_path) as running:
        assert running.stdout is not None
        started = running.stdout.readline()
        assert started.startswith("Scheduler ")
        assert "schema sereno. Stop it with TERM or Ctrl-C." in started
        until(lambda: one(connection, "select count(*) from sereno.jobs") >= 2)
        assert "leads since" in sereno("status").stdout
        running.send_signal(number)
        output, errors = running.communicate(timeout=30)
    assert running.returncode == 0, errors
    assert "Stopped: " in output
    assert "Traceback" not in errors
    assert "Scheduler: none is alive." in sereno("status").stdout


@pytest.mark.slow
def test_a_killed_scheduler_is_replaced_by_another(
    sereno: Command, connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    with scheduler(database_url, tmp_path) as running:
        until(lambda: one(connection, "select count(*) from sereno.leases"))
        running.kill()
        running.wait()
    assert "leads since" in sereno("status").stdout, "its lease has not expired yet"
    advance(connection, LEASE + 60)
    assert "Scheduler: none is alive." in sereno("status").stdout
    first = one(connection, "select holder from sereno.leases")
    with scheduler(database_url, tmp_path):
        until(lambda: one(connection, "select holder from sereno.leases") != first)
        assert "leads since" in sereno("status").stdout


def test_a_scheduler_needs_a_database_with_the_schema(sereno: Command, empty_database_url: str) -> None:
    assert sereno("scheduler", SERENO_DATABASE_URL=empty_database_url).exit_code == 5
    assert sereno("scheduler", "--database-url", "postgresql://user@127.0.0.1:1/x").exit_code == 4
    assert sereno("scheduler", SERENO_DATABASE_URL="").exit_code == 3


def test_a_heatmap_uses_the_clock_of_the_database(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--daily", "03:00")
    advance(connection, 400 * 86400)
    found = cells(sereno)
    assert datetime.fromisoformat(found["now"]) > datetime.now(UTC) + timedelta(days=399)

"""One server is shared by processes that start, stop and are killed."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.programs import SystemAccount, wheel_bin_dir
from tests.database.embedded.server_steps import (
    DEADLINE_SECONDS,
    another_user,
    end_server,
    environment,
    leave,
    query,
    run_python,
    server_process,
    wait_until,
    waits_for_a_lock,
)
from tests.facts import is_gone
from tests.warm_process import WarmProcess

pytestmark = pytest.mark.slow


def test_the_server_outlives_a_killed_starter_and_ends_with_its_last_user(directory: Path) -> None:
    with another_user(directory) as (starter, starters_url):
        process = server_process(starters_url)
        with another_user(directory) as (second, url):
            assert url == starters_url
            starter.kill()
            starter.wait(DEADLINE_SECONDS)
            assert server_process(url) == process
            leave(second)
    wait_until(lambda: is_gone(process))


def test_an_orphaned_server_is_used_again(directory: Path) -> None:
    with another_user(directory) as (starter, url):
        process = server_process(url)
        starter.kill()
        starter.wait(DEADLINE_SECONDS)
    with EmbeddedPostgres(directory) as server:
        assert server_process(server.url) == process
    wait_until(lambda: is_gone(process))


def test_the_first_process_to_stop_does_not_stop_the_server(directory: Path) -> None:
    with another_user(directory) as (starter, url):
        process = server_process(url)
        with EmbeddedPostgres(directory) as server:
            leave(starter)
            assert server_process(server.url) == process
    wait_until(lambda: is_gone(process))


def test_processes_that_start_and_stop_never_lose_the_server(place: Path) -> None:
    program = """
import sys, psycopg
from pathlib import Path
from sereno.database.embedded import EmbeddedPostgres
for _ in range(8):
    with EmbeddedPostgres(Path(sys.argv[1])) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
"""
    processes = [
        WarmProcess(
            [sys.executable, "-c", program, str(place / ".sereno")],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(4)
    ]
    assert [process.communicate(timeout=DEADLINE_SECONDS)[0] for process in processes] == [""] * len(processes)
    assert not list(place.rglob("postmaster.pid"))


def test_a_process_that_joins_during_the_last_stop_gets_a_running_server(directory: Path, place: Path) -> None:
    signals = place / "signals"
    signals.mkdir()
    signals.chmod(0o777)
    slow_to_stop = place / "bin"
    slow_to_stop.mkdir()
    for name in ("initdb", "pg_ctl", "postgres"):
        program = slow_to_stop / name
        program.write_text(f"""#!/bin/sh
if [ "$1" = stop ]; then touch {signals}/stopping; until [ -e {signals}/continue ]; do sleep 0.01; done; fi
exec {wheel_bin_dir()}/{name} "$@"
""")
        program.chmod(0o755)
    last = EmbeddedPostgres(directory, bin_dir=slow_to_stop)
    last.start()
    joining = EmbeddedPostgres(directory)
    with ThreadPoolExecutor() as threads:
        stopped = threads.submit(last.stop)
        wait_until((signals / "stopping").exists)
        started = threads.submit(joining.start)
        wait_until(lambda: started.done() or waits_for_a_lock())
        (signals / "continue").touch()
        stopped.result()
        url = started.result()
    try:
        assert query(url, "select 1") == "1"
    finally:
        joining.stop()


def test_a_manually_launched_server_is_used_and_left_running(directory: Path) -> None:
    with EmbeddedPostgres(directory) as server:
        cluster = Path(query(server.url, "show data_directory")).parent
        bin_dir = server.bin_dir
    status = cluster.stat()
    options = f"-c listen_addresses= -k {cluster}"
    started = SystemAccount(status.st_uid, status.st_gid).run(
        bin_dir / "pg_ctl", "start", "-w", "-D", "data", "-l", "hand.log", "-o", options, cwd=cluster
    )
    assert started.returncode == 0, started.stdout
    with EmbeddedPostgres(directory) as server:
        process = server_process(server.url)
    assert query(f"postgresql://postgres@/postgres?host={cluster}", "select 1") == "1"
    end_server(process)


def test_ctrl_c_does_not_reach_the_server(directory: Path) -> None:
    with another_user(directory) as (starter, url), EmbeddedPostgres(directory) as server:
        process = server_process(url)
        os.killpg(starter.pid, signal.SIGINT)
        starter.wait(DEADLINE_SECONDS)
        assert server_process(server.url) == process


def test_a_server_prints_nothing_and_stops_at_exit(place: Path) -> None:
    program = """
import sys
from pathlib import Path
from sereno.database.embedded import EmbeddedPostgres
EmbeddedPostgres(Path(sys.argv[1])).start()
"""
    result = run_python(program, str(place / ".sereno"))
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)
    assert not list(place.rglob("postmaster.pid"))


def test_a_forked_child_does_not_stop_its_parents_server(directory: Path, place: Path) -> None:
    program = """
import os, sys, psycopg
from pathlib import Path
from sereno.database.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
with psycopg.connect(server.url) as connection:
    print(connection.execute("select 'alive'").fetchone()[0])
"""
    result = run_python(program, str(directory))
    assert (result.stdout, result.stderr, result.returncode) == ("alive\n", "", 0)
    assert not list(place.rglob("postmaster.pid"))

"""The commands of docs/operate/scale.md, run as the page prints them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.schedules.rules.when import Cron
from tests.databases import DatabasePool
from tests.docs.pages import ROOT, only
from tests.facts import TIMEOUT, one, until
from tests.server.two_shards import second_database

PAGE = ROOT / "docs" / "operate" / "scale.md"

pytestmark = pytest.mark.slow


@pytest.fixture
def second_url(databases: DatabasePool) -> Iterator[str]:
    with second_database(databases) as url:
        yield url


def test_the_printed_commands_move_the_schedules_and_hold_the_jobs_of_a_tenant(
    app: Sereno, second_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    work = app.task(name="work")(lambda: None)
    for tenant in ("r42", "r43"):
        app.schedules.upsert(f"nightly:{tenant}", work.using(tenant=tenant).job(), Cron("0 3 * * *"))
    work.using(tenant="r42").enqueue()
    commands = only(PAGE, "sh", beginning="# 1. B accepts")
    assert commands.count("\nsereno ") == 6
    before, resume = commands.split("# 5. ")
    shards = {"SHARD_A": app.url, "SHARD_B": second_url}

    found = run(before, tmp_path, shards)
    assert "r42" in found, "the job that is left on A is listed"
    exported = [json.loads(line) for line in (tmp_path / "r42.jsonl").read_text().splitlines()]
    assert [each["key"] for each in exported] == ["nightly:r42"]
    keys = "select array_agg(key order by key) from sereno.schedules where starts_with(key, 'nightly:')"
    assert one(connection, keys) == ["nightly:r43"]
    with psycopg.connect(second_url, autocommit=True) as second, closing(Sereno(second_url)) as other:
        assert one(second, keys) == ["nightly:r42"]
        assert one(second, "select tenant from sereno.schedules where key = 'nightly:r42'") == "r42"
        assert one(second, "select count(*) from sereno.pauses where kind = 'tenant' and name = 'r42'") == 1
        other.task(name="work")(lambda: None).using(tenant="r42").enqueue()
        run(f"# {resume}", tmp_path, shards)
        assert one(second, "select count(*) from sereno.pauses") == 0


def test_the_workers_of_the_page_run_the_jobs_of_their_own_shard(
    app: Sereno, second_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    for name in ("shop.py", "shards.py"):
        (tmp_path / name).write_text(only(PAGE, "python", name=name))
    lines = only(PAGE, "", beginning="SERENO_DATABASE_URL=$SHARD_A").splitlines()
    shards = {"SHARD_A": app.url, "SHARD_B": second_url}
    run("\n".join(lines[:2]), tmp_path, shards)
    produce = "from shards import send_invoice\nfor number in range(40, 60): send_invoice(f'r{number}', number)"
    run(f'"{sys.executable}" -c "{produce}"', tmp_path, shards)
    assert one(connection, "select count(*) from sereno.jobs where state = 'ready'") > 0
    workers = [start(line, tmp_path, shards) for line in lines[2:]]
    try:
        with psycopg.connect(second_url, autocommit=True) as second:
            done = "select count(*) from sereno.history where state = 'succeeded' and task = 'invoice.send'"
            until(lambda: one(connection, done) + one(second, done) == 20)
            assert one(second, done) > 0
    finally:
        for worker in workers:
            os.killpg(worker.pid, signal.SIGTERM)
            worker.communicate(timeout=TIMEOUT)


def start(command: str, directory: Path, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=directory,
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def environment(variables: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **variables, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(commands: str, directory: Path, variables: dict[str, str]) -> str:
    ran = subprocess.run(
        ["/bin/sh", "-e", "-c", commands],
        cwd=directory,
        env=environment(variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout

"""The commands that move a tenant from one shard to another, run as docs/operate/scale.md prints them."""

import json
import os
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
from tests.facts import one
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


def run(commands: str, directory: Path, variables: dict[str, str]) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["/bin/sh", "-e", "-c", commands],
        cwd=directory,
        env={**os.environ, **variables, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout

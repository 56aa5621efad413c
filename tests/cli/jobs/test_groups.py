"""`sereno group …`, and `sereno job enqueue --after`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Dead, Sereno
from tests.cli.conftest import Command, Process
from tests.facts import one, state
from tests.jobs.job_steps import decided, end, session, take


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task
    def work(number: int) -> None: ...

    return work


def test_groups_are_listed(sereno: Command, app: Sereno, work: Any) -> None:
    first = app.group([work.job(1), work.job(2)], then=work.job(3), name="load").enqueue()
    assert first.then is not None
    app.group([work.job(4)], tenant="ann").enqueue()
    listed = json.loads(sereno("group", "list", "-o", "json").stdout)
    assert [(each["id"], each["total"]) for each in listed["items"]] == [(2, 1), (1, 2)]
    assert listed["next"] is None
    assert json.loads(sereno("group", "list", "-n", 1, "-o", "json").stdout)["next"] == 2
    (line,) = json.loads(sereno("group", "list", "--tenant", "ann", "-o", "json").stdout)["items"]
    assert line["id"] == 2
    table = sereno("group", "list", "-o", "table").stdout
    assert "0 of 2" in table
    assert f"{first.then.id} waiting" in table


def test_a_group_is_shown(sereno: Command, app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    made = app.group([work.job(number) for number in range(1200)], then=work.job(0), name="load").enqueue()
    owner = session(connection, queues={"default": 2000})
    claimed = take(connection, owner, 200)
    end(connection, owner, claimed[:-1], decided())
    end(connection, owner, claimed[-1:], decided(Dead("no account")))
    text = sereno("group", "show", made.id).stdout
    assert "group       1  load\n" in text
    assert "ended       199 of 1,200\n" in text
    assert "jobs        1,000 ready, 199 succeeded, 1 dead\n" in text
    assert "work waiting\n" in text
    assert f"dead        {claimed[-1].id}  work: no account" in text
    assert "sereno job retry --state dead --search group:1 --yes" in text
    missing = sereno("group", "show", 4711)
    assert missing.exit_code == 7
    assert "no group has the id 4711" in missing.stderr


def test_dead_jobs_of_a_group_are_retried_as_its_page_says(
    sereno: Command, app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    made = app.group([work.job(1), work.job(2)], then=work.job(3)).enqueue()
    owner = session(connection)
    end(connection, owner, take(connection, owner), decided(Dead("no")))
    retried = sereno("job", "retry", "--state", "dead", "--search", f"group:{made.id}", "--yes")
    assert retried.stdout == "Retried: 2 jobs.\n"
    end(connection, owner, take(connection, owner), decided())
    assert made.then is not None
    assert state(connection, made.then.id) == "ready"


def test_a_group_is_cancelled(sereno: Command, app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    made = app.group([work.job(1), work.job(2)], then=work.job(3), on_dead="continue").enqueue()
    cancelled = sereno("group", "cancel", made.id, "--reason", "wrong file")
    assert (cancelled.exit_code, cancelled.stdout) == (0, "Cancelled: 3 jobs.\n")
    assert one(connection, "select count(*) from sereno.history where reason = 'wrong file'") == 3
    again = sereno("group", "cancel", made.id)
    assert again.exit_code == 7
    assert "nothing was changed" in again.stdout
    assert sereno("group", "show", made.id, "--follow").exit_code == 0


def test_a_job_is_enqueued_after_others(sereno: Command, connection: psycopg.Connection, tmp_path: Path) -> None:
    program = "from sereno import Sereno\napp = Sereno()\n\n@app.task\ndef work(): ...\n"
    (tmp_path / "links_app.py").write_text(program)
    app = ("-a", "links_app:app")
    first, second = (int(sereno("job", "enqueue", "work", *app).stdout) for _ in range(2))
    last = int(
        sereno("job", "enqueue", "work", "--after", first, "--after", second, "--on-dead", "cancel", *app).stdout
    )
    assert state(connection, last) == "waiting"
    shown = sereno("job", "show", last).stdout
    assert f"after       {first} {second}; on dead: cancel\n" in shown
    assert f"It waits for 2 jobs: {first} (work, ready), {second} (work, ready)." in sereno("why", last).stdout
    unknown = sereno("job", "enqueue", "work", "--after", 4711, *app)
    assert unknown.exit_code == 2
    assert "after: job 4711 does not exist" in unknown.stderr


def test_queues_show_how_many_jobs_wait_for_others(sereno: Command, work: Any) -> None:
    first = work.enqueue(1)
    work.using(after=[first]).enqueue(2)
    (line,) = json.loads(sereno("queue", "list", "-o", "json").stdout)["items"]
    assert (line["ready"]["value"], line["waiting"]["value"]) == (1, 1)
    assert "default: 1 ready, 0 running, 0 scheduled, 1 waiting" in sereno("status").stdout


@pytest.mark.slow
async def test_follow_shows_a_group_until_its_end(app: Sereno, process: Process) -> None:
    @app.task
    async def work(number: int) -> None: ...

    made = await app.group([work.job(number) for number in range(3)], then=work.job(9)).aenqueue()
    following = asyncio.create_task(asyncio.to_thread(process, "group", "show", made.id, "--follow", "--every", "0.1"))
    async with app.working({"default": 1}):
        followed = await following
    assert followed.returncode == 0
    assert "jobs        3 succeeded\n" in followed.stdout
    assert "work succeeded\n" in followed.stdout

"""`manage.py sereno …` in real processes, with the database and the tasks of Django."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command

from sereno.contrib.django.management.commands.sereno import without_django_options
from sereno.contrib.django.project import Project
from tests.contrib.django.shop import tasks
from tests.facts import one, until

HERE = Path(__file__).parent


def environment(database_url: str) -> dict[str, str]:
    return {**os.environ, "SHOP_DATABASE": database_url, "PYTHONWARNINGS": "error::DeprecationWarning:sereno"}


def manage(database_url: str, *arguments: str, code: int = 0) -> str:
    """Run manage.py from a directory outside the project; return its output."""
    command = [sys.executable, str(HERE / "manage.py"), *arguments]
    ran = subprocess.run(
        command, env=environment(database_url), cwd="/", capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture
def database(empty_database_url: str) -> Iterator[psycopg.Connection]:
    """A database without Django's tables."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        yield connection


@pytest.mark.slow
def test_a_worker_of_the_project_runs_its_tasks(database: psycopg.Connection, empty_database_url: str) -> None:
    """`migrate` creates both schemas; the child process of the worker finds the project."""
    code = (
        "from django.core.management import call_command; call_command('migrate', run_syncdb=True); "
        "from shop.tasks import *; Order.objects.create(pk=1, total=40); Order.objects.create(pk=2, total=40); "
        "add_up.enqueue(1, 2); plain.enqueue(2)"
    )
    manage(empty_database_url, "shell", "-c", code)
    worker = subprocess.Popen(
        [sys.executable, str(HERE / "manage.py"), "sereno", "worker", "--settings=shop.settings"],
        env=environment(empty_database_url),
        cwd="/",
    )
    try:
        until(lambda: one(database, "select count(*) from sereno.history where state = 'succeeded'") == 2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()
    assert one(database, "select value from sereno_django_return") == 42
    assert one(database, "select total from shop_order where id = 2") == 7
    assert set(one(database, "select array_agg(task) from sereno.history")) == {"shop.tasks.add_up", "plain"}
    output = manage(empty_database_url, "sereno", "job", "show", "4711", code=7)
    assert output.startswith("Error: no job has the id 4711")
    queues = one(database, "select queues from sereno.sessions")
    assert set(queues) == {"default", "mail"}, "the queues that TASKS allows"
    assert one(database, "select key from sereno.schedules") == "sereno.django.delete_old_results"


def test_django_checks_pass(shop: Project, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("check", fail_level="WARNING")
    call_command("makemigrations", "sereno_django", check=True)
    assert "No changes" in capsys.readouterr().out


def test_options_of_manage_py_are_not_passed_to_sereno() -> None:
    arguments = ["worker", "--settings", "shop.settings", "--queue", "mail=2", "--pythonpath=/srv", "--schema", "s"]
    assert without_django_options(arguments) == ["worker", "--queue", "mail=2", "--schema", "s"]


def test_the_command_can_be_called_from_code(shop: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Including in tests: it uses the current database of Django, and leaves the process environment unchanged."""
    before = (dict(os.environ), list(sys.argv))
    job = tasks.add_up.enqueue(1)
    call_command("sereno", "job", "list", "-o", "json")
    assert [str(each["id"]) for each in json.loads(capsys.readouterr().out)["items"]] == [job.id]
    with pytest.raises(CommandError) as refused:
        call_command("sereno", "nonsense")
    assert refused.value.returncode == 2
    assert (dict(os.environ), list(sys.argv)) == before

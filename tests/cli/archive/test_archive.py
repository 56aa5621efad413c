"""`sereno archive …` without an archive, and of commands that fill it."""

import asyncio
import json
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from tests.archive.archive_steps import DAY, add_jobs, add_logs
from tests.cli.archive.conftest import archive_all
from tests.cli.conftest import Command
from tests.facts import advance, one


def test_without_an_archive_commands_say_how_to_turn_it_on(sereno: Command) -> None:
    assert "kind" in sereno("archive", "status").stdout
    shown = sereno("archive", "status", "-o", "table")
    assert (shown.exit_code, "SERENO_ARCHIVE_URL=disk" in shown.stdout) == (0, True)
    assert json.loads(sereno("archive", "status", "-o", "json").stdout)["on"] is False
    for words in (
        ["run"],
        ["verify"],
        ["query", "select 1"],
        ["restore", "job", "1"],
        ["export", "jobs", "--out", "x.csv"],
    ):
        result = sereno("archive", *words)
        assert result.exit_code == 3, words
        assert "SERENO_ARCHIVE_URL=disk" in result.stderr, words
    assert sereno("archive", "list").exit_code == 0


@pytest.mark.slow
def test_run_moves_exports_and_verifies(
    sereno: Command, connection: psycopg.Connection, archive_on: dict[str, str], place: Path
) -> None:
    add_jobs(connection, 1, 5)
    advance(connection, 60 * DAY)
    result = sereno("archive", "run", **archive_on)
    assert result.exit_code == 0, result.stderr
    assert "; dropped 0 batches." in result.stdout
    assert one(connection, "select count(*) from sereno.history") == 0
    assert sereno("archive", "run", **archive_on).stdout.startswith("Moved 0 days and 0 rows out")
    place.rename(place.with_name("elsewhere"))
    place.write_text("in the way")
    advance(connection, 40 * DAY)
    add_jobs(connection, 50, 5)
    advance(connection, 60 * DAY)
    result = sereno("archive", "run", **archive_on)
    assert result.exit_code == 1
    assert "Problem: " in result.stderr


@pytest.mark.slow
def test_a_damaged_file_is_written_again_while_its_rows_are_held(
    sereno: Command, app: Sereno, connection: psycopg.Connection, archive_on: dict[str, str], place: Path
) -> None:
    add_logs(connection, 4)
    advance(connection, 60 * DAY)
    asyncio.run(archive_all(app, place, archive_grace_days=7))
    file = place / one(connection, "select object from sereno.archive_files")
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    broken = sereno("archive", "verify", **archive_on)
    assert broken.exit_code == 1
    assert "the next export writes it again" in broken.stderr
    assert sereno("archive", "run", **archive_on).exit_code == 0
    assert sereno("archive", "verify", **archive_on).exit_code == 0
    assert (place / one(connection, "select object from sereno.archive_files")).read_bytes() == content

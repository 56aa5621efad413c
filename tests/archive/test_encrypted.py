"""Encrypted arguments and results stay encrypted in the history and in files, and are readable after a restore."""

import asyncio
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

from sereno import Sereno
from sereno.jobs.encryption import new_key
from tests.archive.archive_steps import DAY
from tests.archive.restore_steps import archive, restore_rows
from tests.facts import advance, one

CARD = "4111 1111 1111 1111"
LONG = "60s"


def texts(place: Path) -> list[str]:
    """Return the text of all rows of each file."""
    return [str(pq.read_table(file).to_pylist()) for file in sorted(place.rglob("*.parquet"))]


async def test_history_and_files_contain_ciphertext_only(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    old = new_key("2026a")
    app.override(encryption_keys=[old])

    @app.task(encrypt=True, retry=0)
    async def charge(card: str, amount: int) -> dict[str, str]:
        if amount < 0:
            raise ValueError(f"no negative amounts on {card}")
        return {"card": card}

    async with app.working():
        jobs = [await charge.aenqueue(CARD, amount) for amount in (5, -5)]
        assert [job.state for job in await app.jobs.wait_async(jobs, LONG)] == ["succeeded", "dead"]
    contain = "select count(*) from sereno.history where history::text like %s"
    assert [one(connection, contain, f"%{text}%") for text in ("$encrypted", CARD)] == [2, 0]

    advance(connection, 400 * DAY)
    await archive(app, place)
    assert one(connection, "select count(*) from sereno.history") == 0
    found = texts(place)
    assert any("$encrypted" in text for text in found)
    assert not any(CARD in text for text in found)

    restored = await asyncio.to_thread(restore_rows, app, place, "jobs")
    assert (restored.rows.restored, restored.rows.refused) == (2, 0)
    app.override(encryption_keys=[new_key("2026b"), old])
    assert await jobs[0].aresult(LONG) == {"card": CARD}
    await app.aclose()

"""Encrypted arguments of an isolated task are decrypted in its process, and its error does not contain them."""

import psycopg
import pytest

from sereno import Sereno
from tests.facts import auntil, one
from tests.worker.isolation import encrypted_tasks

CARD = "4111 1111 1111 1234"

pytestmark = pytest.mark.slow


async def test_an_isolated_task_gets_the_value_and_its_error_does_not_show_it(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url, encryption_keys=[encrypted_tasks.KEY])
    app.registry.add(encrypted_tasks.refuse.definition)
    app.enqueue_many([encrypted_tasks.refuse.job(CARD)])
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == 1)
    row = connection.execute("select error_message, history::text from sereno.history").fetchone()
    assert row is not None
    assert row[0] == f"refused [encrypted], of {len(CARD)} characters"
    assert CARD not in row[1]
    app.close()

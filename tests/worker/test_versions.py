"""An old worker leaves jobs of a newer version alone, also those with limits; a new one runs them."""

from typing import Any

import psycopg
import pytest

from sereno import Limit, Sereno
from tests.facts import auntil, one, state

pytestmark = pytest.mark.slow


def _app(url: str, version: int, options: dict[str, Any], queue_limit: int | None) -> Sereno:
    app = Sereno(url, poll=0.1)
    if queue_limit is not None:
        app.queue("default", concurrency=Limit(queue_limit))

    async def export(account: str) -> None: ...

    app.task(version=version, **options)(export)
    return app


@pytest.mark.parametrize(
    ("options", "queue_limit"),
    [
        ({}, None),
        ({"concurrency": Limit(3, key="{account}")}, None),
        ({"concurrency": Limit(3)}, None),
        ({"order_key": "{account}"}, None),
        ({}, 3),
        ({"history": False}, None),
    ],
)
async def test_an_old_worker_leaves_jobs_of_a_newer_version(
    database_url: str, connection: psycopg.Connection, options: dict[str, Any], queue_limit: int | None
) -> None:
    old, new = [_app(database_url, version, options, queue_limit) for version in (1, 2)]
    newer = new.enqueue_many([new.new_job("export", b'{"account": "a"}')])[0]
    older = old.enqueue_many([old.new_job("export", b'{"account": "b"}')])[0]
    async with old.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where id = %s", older.id) == 0)
        assert state(connection, newer.id) == "ready"
        assert one(connection, "select attempt from sereno.jobs where id = %s", newer.id) == 0
    async with new.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    assert one(connection, "select count(*) from sereno.history where state <> 'succeeded'") == 0
    old.close()
    new.close()

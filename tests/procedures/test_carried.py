"""A procedure in a carried queue: its run belongs to the row of its job."""

import psycopg
import pytest

from sereno import Backoff, Context, JetStream, Sereno
from sereno.carriers.local_server import LocalNats
from tests.facts import one
from tests.procedures.conftest import Allow, reason, result, run

pytestmark = pytest.mark.slow


async def test_it_is_called_once_and_its_result_is_stored(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = LocalNats(tmp_path_factory.mktemp("nats"))
    server.start()
    try:
        reporting.queue("reports", carrier=JetStream(server.url), direct=True)
        connection.execute("create function reporting.close_day() returns integer language sql as 'select 7'")
        await allow("reporting.close_day")
        job = await reporting.procedure("reporting.close_day", queue="reports").using(direct=True).aenqueue()
        assert await run(reporting, connection, job.id) == "succeeded"
        assert result(connection, job.id)["rows"] == [7]
        # It was called once: an attempt without a row could not store the result, and was repeated.
        assert one(connection, "select attempt from sereno.history where id = %s", job.id) == 1

        # A task of one's own may run without a row: there the call is refused before it begins.
        @reporting.task(queue="reports", retry=Backoff(0))
        async def close(ctx: Context) -> None:
            await reporting.call_procedure(ctx, "reporting.close_day")

        refused = await close.aenqueue()
        assert await run(reporting, connection, refused.id) == "dead"
        assert "queue reports has a carrier" in reason(connection, refused.id)
        assert one(connection, "select count(*) from sereno.procedure_runs") == 1
    finally:
        server.stop()

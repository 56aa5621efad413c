"""`sereno signal send` and `list`, and what the command line shows of a job that waits."""

import json

import psycopg
import pytest

from sereno import Context, Sereno
from tests.cli.conftest import Command
from tests.facts import auntil, one


async def _waiting_job(app: Sereno, connection: psycopg.Connection, timeout: str | None) -> int:
    @app.task
    async def order(ctx: Context) -> None:
        await ctx.wait_for("paid:42", timeout=timeout)

    job = await order.using(tenant="r42").aenqueue()
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.signal_waits where attempt is not null"))
    return job.id


@pytest.mark.slow
@pytest.mark.parametrize("timeout", ["14d", None])
async def test_a_waiting_job_says_what_it_waits_for_until_it_is_sent(
    app: Sereno, connection: psycopg.Connection, sereno: Command, timeout: str | None
) -> None:
    job_id = await _waiting_job(app, connection, timeout)
    until = " until 20" if timeout else ", without a timeout"
    assert f"waits for   the signal paid:42{until}" in sereno("job", "show", job_id).stdout
    shown = json.loads(sereno("job", "show", job_id, "-o", "json").stdout)["waits_for"]
    assert (shown["name"], shown["until"] is None) == ("paid:42", timeout is None)
    why = sereno("why", job_id).stdout
    assert f"It waits for the signal 'paid:42'{until}" in why
    assert "To send it: sereno signal send paid:42 [JSON] --tenant r42" in why
    assert sereno("signal", "send", "paid:42").exit_code == 0
    assert one(connection, "select state from sereno.jobs") == "scheduled"
    sent = sereno("signal", "send", "paid:42", '{"amount": 7}', "--tenant", "r42")
    assert (sent.exit_code, sent.stdout.strip()) == (0, "2")
    assert one(connection, "select state from sereno.jobs") == "ready"
    assert "waits for   the signal" not in sereno("job", "show", job_id).stdout


def test_signals_are_listed_newest_first_and_audited(sereno: Command, connection: psycopg.Connection) -> None:
    sereno("signal", "send", "paid:1", "1")
    sereno("signal", "send", "paid:2", '"two"', "--tenant", "a")
    listed = json.loads(sereno("signal", "list", "-o", "json").stdout)["items"]
    assert [(line["name"], line["tenant"], line["value"]) for line in listed] == [
        ("paid:2", "a", "two"),
        ("paid:1", None, 1),
    ]
    assert "paid:2" in sereno("signal", "list", "--tenant", "a").stdout
    assert "paid:2" not in sereno("signal", "list", "--name", "paid:1").stdout
    audited = connection.execute("select action, subject, detail from sereno.audit order by id").fetchall()
    assert audited == [
        ("signal.send", "signal 1", {"name": "paid:1", "tenant": None}),
        ("signal.send", "signal 2", {"name": "paid:2", "tenant": "a"}),
    ]


def test_a_value_that_is_not_json_is_refused(sereno: Command, connection: psycopg.Connection) -> None:
    refused = sereno("signal", "send", "paid:1", "two")
    assert refused.exit_code != 0
    assert "the value is not JSON" in refused.stderr
    assert one(connection, "select count(*) from sereno.signals") == 0

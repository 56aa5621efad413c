"""What a carried queue cannot have is refused when it is declared or enqueued, with the alternatives."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sereno import ConfigurationError, InvalidArguments, JetStream, Limit, Rate, Sereno
from sereno.jobs.carried import CarriedQueue

AWAY = JetStream("nats://127.0.0.1:9")
LIMITS = (
    "{} has limits, an order key or a fair key, and the queue clicks is carried outside of PostgreSQL, where they do "
    "not exist: remove them, or put the task into a queue without a carrier"
)


def refusal(call: Any) -> str:
    with pytest.raises((ConfigurationError, InvalidArguments)) as refused:
        call()
    return str(refused.value)


def test_limits_of_queues_and_tasks_are_refused(app: Sereno) -> None:
    def declare(**options: Any) -> Any:
        return lambda: app.task(name="click", queue="clicks", **options)(lambda: None)

    assert refusal(lambda: app.queue("clicks", carrier=AWAY, concurrency=Limit(3))) == LIMITS.format("queue clicks")
    app = Sereno(app.url)
    assert refusal(lambda: app.queue("clicks", carrier=AWAY, fair_key="{tenant}")) == LIMITS.format("queue clicks")
    app = Sereno(app.url)
    app.queue("clicks", carrier=AWAY)
    for options in ({"concurrency": Limit(1)}, {"rate": Rate(1, "1s")}, {"order_key": "{tenant}"}):
        assert refusal(declare(**options)) == LIMITS.format("task click")


def test_a_task_that_was_declared_before_its_queue_is_refused(app: Sereno) -> None:
    app.task(name="click", queue="clicks", concurrency=Limit(1))(lambda: None)
    assert refusal(lambda: app.queue("clicks", carrier=AWAY)) == LIMITS.format("task click")


def test_unique_keys_and_limits_of_a_job_are_refused(app: Sereno) -> None:
    app.queue("clicks", carrier=AWAY)
    click = app.task(name="click", queue="clicks")(lambda: None)
    where = "task click: the queue clicks is carried outside of PostgreSQL, where"
    assert refusal(lambda: click.using(unique_key="a").enqueue()) == (
        f"{where} unique keys do not exist: use a queue without a carrier, or make the handler idempotent"
    )
    assert refusal(lambda: click.using(concurrency=Limit(1, name="one")).enqueue()) == (
        f"{where} limits, order keys and fair keys do not exist: use a queue without a carrier"
    )


def test_direct_needs_a_carrier_and_no_transaction(app: Sereno, connection: psycopg.Connection) -> None:
    plain = app.task(name="plain", queue="others")(lambda: None)
    assert refusal(lambda: plain.using(direct=True).enqueue()) == (
        "direct=True: the queue others has no carrier; declare one with "
        'app.queue("others", carrier=JetStream(…)) or the setting carriers'
    )
    app.queue("clicks", carrier=AWAY)
    click = app.task(name="click", queue="clicks")(lambda: None)
    assert refusal(lambda: click.using(connection, direct=True).enqueue()) == (
        "direct=True publishes the job at once, and not with the transaction of the connection: give one of the two"
    )
    assert refusal(lambda: app.queue("more", direct=True)) == "queue more: direct needs a carrier"
    wrong: Any = "nats://a:4222"
    assert refusal(lambda: app.queue("wrong", carrier=wrong)) == (
        "queue wrong: its carrier is a JetStream(…), not 'nats://a:4222'"
    )


def test_jobs_that_postgresql_has_to_hold_are_stored(app: Sereno, connection: psycopg.Connection) -> None:
    """Future, expiring and dependent jobs of a direct queue: nothing connects to the carrier, which is away."""
    app.queue("clicks", carrier=AWAY, direct=True)
    click = app.task(name="click", queue="clicks")(lambda: None)
    first = click.using(delay="1h").enqueue()
    click.using(run_at=datetime.now(UTC) + timedelta(hours=1)).enqueue()
    click.using(expires_at=datetime.now(UTC) + timedelta(hours=1)).enqueue()
    click.using(after=[first]).enqueue()
    click.using(direct=False).enqueue()
    click.using(connection).enqueue()
    connection.commit()
    assert connection.execute("select count(*) from sereno.jobs where id < 10^15").fetchall() == [(6,)]


def test_the_setting_takes_precedence(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERENO_CARRIERS", '{"clicks": "jetstream://b:4222?replicas=3&direct=true"}')
    app = Sereno(database_url)
    app.queue("clicks", carrier=JetStream("nats://a:4222"))
    assert app.registry.carried["clicks"] == CarriedQueue("clicks", JetStream("nats://b:4222", replicas=3), direct=True)


def test_code_makes_a_queue_of_the_setting_direct(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERENO_CARRIERS", '{"clicks": "jetstream://b:4222"}')
    app = Sereno(database_url)
    app.queue("clicks", direct=True)
    assert app.registry.carried["clicks"] == CarriedQueue("clicks", JetStream("nats://b:4222"), direct=True)


@pytest.mark.slow
def test_the_client_of_nats_is_not_imported_before_it_is_needed(database_url: str) -> None:
    """A new interpreter: an application with a carried queue stores a job, and has no module of NATS."""
    program = """
import sys
from sereno import JetStream, Sereno

app = Sereno()
app.queue("clicks", carrier=JetStream("nats://127.0.0.1:9"))

@app.task(queue="clicks")
def click() -> None: ...

click.enqueue()
app.close()
assert not [name for name in sys.modules if name.partition(".")[0] == "nats"]
"""
    environment = {**os.environ, "SERENO_DATABASE_URL": database_url}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)

"""`/metrics` and `/autoscale` of the server: who may read them, and that they are read once in an interval."""

from collections.abc import Callable

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sereno import Sereno
from tests.facts import until
from tests.jobs.job_steps import add
from tests.server.api.conftest import PLAIN, Ask, Served

TOKEN = "m" * 40


def scrape(client: httpx.Client, served: Served, **headers: str) -> httpx.Response:
    return client.get(f"{served.url}/metrics", headers=headers)


def ready(response: httpx.Response) -> float:
    families = {each.name: each for each in text_string_to_metric_families(response.text)}
    return sum(sample.value for sample in families["sereno_jobs"].samples)


def test_a_viewer_reads_the_gauges_and_others_do_not(ask: Ask, served: Served, connection: psycopg.Connection) -> None:
    add(connection, 3)
    response = scrape(ask("viewer"), served)
    assert (response.status_code, ready(response)) == (200, 3)
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert scrape(ask("viewer", tenant="ann"), served).status_code == 403
    assert scrape(ask(None), served).status_code == 401
    assert scrape(ask(None), served, Authorization="Bearer srn_wrong").status_code == 401


def test_the_metrics_token_opens_metrics_alone(
    app: Sereno, serve: Callable[..., Served], subtests: pytest.Subtests
) -> None:
    app.override(metrics_token=TOKEN)
    served = serve()
    for token, path, status in (
        (TOKEN, "/metrics", 200),
        (TOKEN[:-1], "/metrics", 401),
        ("é" * 40, "/metrics", 401),
        (TOKEN, "/api/v1/status", 401),
    ):
        with subtests.test(token=token[:2], path=path):
            headers = {b"Authorization": f"Bearer {token}".encode()}
            assert httpx.get(served.url + path, headers=headers, **PLAIN).status_code == status


def test_gauges_are_read_once_in_an_interval(ask: Ask, served: Served, connection: psycopg.Connection) -> None:
    client = ask("viewer")
    add(connection, 1)
    assert ready(scrape(client, served)) == 1
    add(connection, 1)
    assert ready(scrape(client, served)) == 1, "within 15 seconds, the gauges are not read again"


def test_an_interval_of_zero_turns_them_off(
    app: Sereno, serve: Callable[..., Served], connection: psycopg.Connection
) -> None:
    app.override(gauge_interval=0.0, metrics_token=TOKEN)
    response = httpx.get(f"{serve().url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, **PLAIN)
    assert response.status_code == 200
    assert "sereno_build_info" in response.text
    assert "sereno_jobs" not in response.text


def test_autoscale_tells_the_wanted_workers(ask: Ask, served: Served, connection: psycopg.Connection) -> None:
    viewer = ask("viewer")
    add(connection, 45, queue="mails")
    found = viewer.get(f"{served.url}/autoscale?queue=mails&slots=10").json()
    assert (found["wanted_workers"], found["ready"], len(found["queues"])) == (5, 45, 1)
    assert viewer.get(f"{served.url}/autoscale?queue=mails&target=never").status_code == 400
    assert ask("viewer", tenant="ann").get(f"{served.url}/autoscale").status_code == 403
    assert ask(None).get(f"{served.url}/autoscale").status_code == 401


@pytest.mark.slow
def test_a_blocked_database_does_not_block_a_scrape(
    app: Sereno, serve: Callable[..., Served], connection: psycopg.Connection
) -> None:
    app.override(gauge_interval=1.0, metrics_token=TOKEN)
    served = serve()
    given = {"headers": {"Authorization": f"Bearer {TOKEN}"}, **PLAIN}
    assert "sereno_jobs" not in httpx.get(f"{served.url}/metrics", **given).text
    add(connection, 2)
    until(lambda: "sereno_jobs{" in httpx.get(f"{served.url}/metrics", **given).text)
    with connection.transaction():
        connection.execute("lock table sereno.jobs in access exclusive mode")
        response = httpx.get(f"{served.url}/metrics", **given)
        assert response.status_code == 200
        assert "sereno_gauges_age_seconds" in response.text or "sereno_jobs" not in response.text
        assert httpx.get(f"{served.url}/autoscale", **given).status_code == 503

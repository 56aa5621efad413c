"""Error texts are masked for viewers, and masked values are not found by a search."""

import json
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.masking import masked
from sereno.jobs import operations as jobs
from sereno.server.shared.error_masking import hidden
from tests.server.api.conftest import Ask, Served

SECRET, PERSON = "hunter2x", "carl@example.org"
MESSAGE = f"login failed: password={SECRET} for {PERSON}"
TRACEBACK = (
    f'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    raise Wrong("{MESSAGE}")\nWrong: {MESSAGE}'
)
FINGERPRINT = "3fa9c01b77d2"
PAGES = ("/", "/jobs", "/schedules", "/schedule?key=k", "/errors", "/trace?id=t-1", "/tenant?name=acme", "/deliveries")


@pytest.fixture(scope="module")
def failed(shared_app: Sereno, shared_connection: psycopg.Connection) -> int:
    """Return the id of a dead letter; an attempt, a schedule, an error group and a delivery have the same MESSAGE."""

    @shared_app.task
    def work() -> None: ...

    run = shared_connection.execute
    live = work.using(tenant="acme", trace="t-1").enqueue().id
    values = {"message": MESSAGE, "traceback": TRACEBACK, "live": live, "fingerprint": FINGERPRINT}
    run(
        """insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason,
                                        error_type, error_message, traceback)
           values (%(live)s, 1, 1, now(), now(), 'retry', %(message)s, 'Wrong', %(message)s, %(traceback)s)""",
        values,
    )
    row = run(
        """insert into sereno.schedules (key, task, rule, tenant, next_run_at, last_error, failed_in_row, last_state)
           values ('k', 'work', '{"kind": "daily", "at": "03:00"}', 'acme', now() + '1h', %(message)s, 1, 'dead')
           returning id""",
        values,
    ).fetchone()
    assert row is not None
    dead = live + 1
    run(
        """insert into sereno.history (id, state, task, queue, tenant, priority, attempt, failures, crashes, snoozes,
                                       releases, run_at, created_at, started_at, finished_at, args, reason,
                                       error_type, error_message, traceback, fingerprint, schedule_id, planned_at,
                                       trace, session_id)
           values (%(dead)s, 'dead', 'work', 'default', 'acme', 5, 1, 1, 0, 0, 0, now(), now(), now(), now(), '{}',
                   %(message)s, 'Wrong', %(message)s, %(traceback)s, %(fingerprint)s, %(schedule)s, now(), 't-1', 1)""",
        values | {"dead": dead, "schedule": row[0]},
    )
    run(
        """insert into sereno.error_groups (fingerprint, task, error_type, message, frame, last_job_id, first_at,
                                            last_at, count)
           values (%(fingerprint)s, 'work', 'Wrong', %(message)s, 'x.py:1', %(dead)s, now(), now(), 1)""",
        values | {"dead": dead},
    )
    run(
        "insert into sereno.error_hours (fingerprint, hour, tenant, count) "
        "values (%(fingerprint)s, date_trunc('hour', now(), 'UTC'), 'acme', 1)",
        values,
    )
    run(
        """with who as (insert into sereno.recipients (tenant, key) values ('acme', 'user:7') returning id),
                what as (insert into sereno.events (type, tenant, payload, due_at, channels)
                         values ('t', 'acme', '{}', now(), '{pager}') returning id)
           insert into sereno.deliveries (event_id, recipient_id, channel, tenant, state, due_at, reason, error_message)
           select what.id, who.id, 'pager', 'acme', 'failed', now(), %(message)s, %(message)s from who, what""",
        values,
    )
    return dead


def error_paths(dead: int) -> list[str]:
    """Return the paths that show an error."""
    return [
        "/jobs",
        f"/jobs/{dead}",
        f"/jobs/{dead - 1}",
        f"/jobs/{dead}/why",
        "/deliveries",
        "/schedules",
        "/schedules/k",
        "/schedules/k/fires",
        "/errors",
        f"/errors/{FINGERPRINT}",
        "/traces/t-1",
    ]


@pytest.mark.slow
def test_errors_are_masked_for_viewers(failed: int, shared_ask: Ask, shared_served: Served) -> None:
    """Every response and every page masks them for viewers; operators see them unmasked."""
    for client in (shared_ask("viewer"), shared_ask("viewer", tenant="acme")):
        for path in error_paths(failed):
            answer = client.get(path)
            if answer.status_code == 403:
                continue
            assert answer.status_code == 200, (path, answer.text)
            assert SECRET not in answer.text, path
            assert PERSON not in answer.text, path
        for page in (*PAGES, f"/jobs?job={failed}", f"/jobs?job={failed - 1}"):
            answer = client.get(f"{shared_served.url}{page}", follow_redirects=True)
            assert answer.status_code == 200, (page, answer.status_code)
            assert SECRET not in answer.text, page
            assert PERSON not in answer.text, page
    viewer, operator = shared_ask("viewer"), shared_ask("operator")
    group = viewer.get(f"{shared_served.url}/error?fingerprint={FINGERPRINT}")
    assert (group.status_code, SECRET in group.text, "login failed" in group.text) == (200, False, True)
    shown = viewer.get(f"/jobs/{failed}").json()["job"]
    assert shown["error_message"] == masked(MESSAGE)
    assert "login failed: password=********" in shown["traceback"]
    whole = operator.get(f"/jobs/{failed}").json()["job"]
    assert (whole["error_message"], whole["traceback"], whole["reason"]) == (MESSAGE, TRACEBACK, MESSAGE)
    assert SECRET in operator.get(f"{shared_served.url}/jobs?job={failed}").text


def found(client: httpx.Client, path: str, **params: Any) -> int:
    answer = client.get(path, params=params)
    assert answer.status_code == 200, (path, params, answer.text)
    return len(answer.json()["items"])


def test_the_audit_is_masked_for_viewers(
    shared_ask: Ask, shared_served: Served, shared_connection: psycopg.Connection
) -> None:
    detail = {"sql": f"select * from deliveries where address = '{PERSON}'", "filter": {"password": SECRET}, "count": 7}
    shared_connection.execute(
        "insert into sereno.audit (actor, action, subject, detail) values ('a', 'archive.query', 'archive', %s)",
        [json.dumps(detail)],
    )
    viewer, operator = shared_ask("viewer"), shared_ask("operator")
    for answer in (viewer.get("/audit"), viewer.get(f"{shared_served.url}/system?show=audit")):
        assert answer.status_code == 200
        assert "archive.query" in answer.text
        assert PERSON not in answer.text
        assert SECRET not in answer.text
    (shown,) = viewer.get("/audit", params={"actor": "a"}).json()["items"]
    assert (shown["detail"]["count"], shown["detail"]["filter"]) == (7, {"password": "********"})
    (whole,) = operator.get("/audit", params={"actor": "a"}).json()["items"]
    assert whole["detail"] == detail


@pytest.mark.slow
def test_a_second_pattern_does_not_confirm_a_guess(failed: int, shared_ask: Ask) -> None:
    """A search for a guess or the mask once found the row when the guess was right."""
    viewer, operator = shared_ask("viewer"), shared_ask("operator")
    searches = {
        "/schedules": 'error:*{}*,*"********"*',
        "/schedules/k/fires": 'error:*{}*,*"********"*',
        "/deliveries": 'error:*{}*,*"********"*',
        "/errors": 'message:*{}*,*"********"*',
    }
    for path, search in searches.items():
        for guess in (SECRET, SECRET[:3], "wrong-guess"):
            assert found(viewer, path, q=search.format(guess)) == 0, (path, guess)
            assert found(operator, path, q=search.format(guess)) == (guess in MESSAGE), (path, guess)
    assert found(viewer, "/deliveries", q='reason:*hunter2x*,*"********"*') == 0


@pytest.mark.slow
def test_masked_values_are_not_found(failed: int, shared_ask: Ask, shared_served: Served) -> None:
    """A viewer finds no part of a masked value in any list, but unmasked parts; operators find all."""
    viewer, operator = shared_ask("viewer"), shared_ask("operator")
    parts = (SECRET, SECRET[2:6], PERSON, "carl", "example.org", SECRET.upper())
    for part in parts:
        for client, number in ((viewer, 0), (operator, 1)):
            assert found(client, "/jobs", error=part) == 2 * number, part
            assert found(client, "/jobs", q=f"error:{part}") == 2 * number, part
            assert found(client, "/schedules", q=f"error:*{part}*") == number, part
            assert found(client, "/schedules/k/fires", q=f"error:*{part}*") == number, part
            assert found(client, "/schedules/k/fires", q=part) == number, part
            assert found(client, "/deliveries", q=f"error:*{part}*") == number, part
            assert found(client, "/deliveries", q=f"reason:*{part}*") == number, part
            assert found(client, "/errors", q=f"message:*{part}*") == number, part
            assert found(client, "/errors", q=part) == number, part
        # Nor by excluding it.
        assert found(viewer, "/errors", q=f"-message:*{part}*") == 1, part
        assert (
            f"jobs?job={failed}" not in viewer.get(f"{shared_served.url}/jobs", params={"q": f"error:{part}"}).text
        ), part
    for client in (viewer, operator):
        assert found(client, "/jobs", error="login failed") == 2
        assert found(client, "/schedules", q='error:*"login failed"*') == 1
        assert found(client, "/errors", q="message:*login*") == 1


def test_masked_and_unmasked_results_are_cached_apart(failed: int, shared_ask: Ask, shared_served: Served) -> None:
    """An operator's cached page is not shown to a viewer, nor the reverse."""
    viewer, operator = shared_ask("viewer"), shared_ask("operator")
    for _ in range(2):
        assert SECRET in operator.get(f"{shared_served.url}/jobs").text
        assert SECRET not in viewer.get(f"{shared_served.url}/jobs").text


CASES = [
    MESSAGE,
    "postgresql://app:s3cr3t@db/x refused",
    "postgresql://app:s3/cr3t@more@db/x refused",
    "Authorization: Bearer abcdefghijkl.mnop",
    "basic dXNlcjpwYXNzd29yZA==",
    "srn_" + "A1b2" * 8,
    "sk_live_abcdefgh12345",
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "token = 'two words'",
    '{"api_key": "k-1234567", "password": "p4ssw0rd"}',
    "contraseña: niño7 and senha=força1",
    "card 4111 1111 1111 1111 declined",
    "josé.müller+x@exämple.org bounced",
    "call +49 (170) 123-45 67 back",
    "token=tok_live_ABC; secret:xyz&next",
    "nothing to see: 42 of 7 rows",
]


def test_the_mask_of_searches_covers_the_mask_of_the_server(shared_connection: psycopg.Connection) -> None:
    """Text that the server masks is also masked in the SQL of viewers' searches."""
    for text in CASES:
        (searchable,) = shared_connection.execute("select sereno.masked(%s)", [text]).fetchone() or ("",)
        shown_text = masked(text)
        masked_parts = {part for part in _parts(text) if part not in shown_text}
        assert not [part for part in masked_parts if part in searchable], (text, shown_text, searchable)
    assert shared_connection.execute("select sereno.masked(%s)", [CASES[-1]]).fetchone() == (CASES[-1],)


def _parts(text: str) -> set[str]:
    """Return every substring of five characters."""
    return {text[at : at + 5] for at in range(len(text) - 4)}


def test_masking_does_not_change_cached_rows(failed: int, shared_app: Sereno) -> None:
    """Only a copy is masked."""
    row = shared_app.database.run(jobs.show(failed))
    shown = hidden(row)
    assert (row.job.error_message, shown.job.error_message) == (MESSAGE, masked(MESSAGE))
    plain = {"items": [{"id": 1, "context": {"error": MESSAGE}}], "next": None}
    assert json.dumps(hidden(plain)).count(SECRET) == 0
    assert plain["items"] == [{"id": 1, "context": {"error": MESSAGE}}]

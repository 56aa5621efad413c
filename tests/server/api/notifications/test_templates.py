"""Templates over HTTP: they are listed and previewed, and admins change them."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Content, Recipient, Sereno
from sereno.notifications.templates import templates as compiled_templates
from sereno.notifications.templates.operations import place, write
from sereno.notifications.templates.preview import render
from sereno.notifications.templates.render_process import LONGEST_SECONDS
from tests.facts import one
from tests.notifications.conftest import Tender
from tests.notifications.templates.hostile_templates import LARGE_TO_COMPILE
from tests.server.api.conftest import Ask


@pytest.fixture
def event_templates(app: Sereno, tmp_path: Path) -> None:
    """Files for one event; for two others a function that raises, and one that returns no content."""
    folder = tmp_path / "tender.published"
    folder.mkdir()
    (folder / "email.title.j2").write_text("Tender {{ code }}")
    (folder / "email.body.j2").write_text("For {{ recipient.key }}: {{ amount }}")
    app.override(templates=str(tmp_path))
    app.event("tender.published", Tender, channels=["email", "in_app"]).notify(Tender("T7"))
    broken = app.event("tender.closed", Tender, channels=["in_app"])
    odd = app.event("tender.lost", Tender, channels=["in_app"])

    @broken.template()
    def _(tender: Tender, _: Recipient) -> Content:
        return Content(tender.code[9])

    @odd.template()
    def _(tender: Tender, _: Recipient) -> Content:
        return tender  # type: ignore[return-value]  # a mistake of the application


@pytest.mark.slow
@pytest.mark.usefixtures("event_templates")
def test_rows_take_precedence_over_files(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    path = "/templates/tender.published/email"
    assert {each["origin"] for each in client.get("/templates").json()["items"]} == {
        "tender.published/email.title.j2", "tender.published/email.body.j2",
    }  # fmt: skip
    written = client.put(f"{path}/title", json={"source": "Concurso {{ code }}"}, params={"locale": "pt_BR"})
    assert written.json() == {"name": "tender.published/email.pt-br.title", "created": True}
    again = client.put(f"{path}/title", json={"source": "Concurso: {{ code }}"}, params={"locale": "pt-BR"})
    assert again.json()["created"] is False
    rows = [each for each in client.get("/templates").json()["items"] if each["origin"] == "row"]
    assert [(each["locale"], each["changed_by"].split()[0]) for each in rows] == [("pt-br", "admin")]
    assert len(client.get("/templates", params={"event": "other"}).json()["items"]) == 0
    shown = client.get(path, params={"locale": "pt-BR"}).json()
    assert shown["title"]["source"] == "Concurso: {{ code }}"
    assert shown["body"]["origin"] == "tender.published/email.body.j2"
    trial = {"event": "tender.published", "channel": "email", "locale": "pt-BR", "payload": {"code": "T1", "amount": 3}}
    made = client.post("/templates/preview", json=trial).json()
    assert made == {"title": "Concurso: T1", "body": "For recipient: 3", "html": None, "options": {}}
    assert client.delete(f"{path}/title", params={"locale": "pt-BR"}).status_code == 204
    assert client.delete(f"{path}/title", params={"locale": "pt-BR"}).status_code == 404
    last = {"event": "tender.published", "channel": "email", "last": True, "recipient": "ada"}
    made = client.post("/templates/preview", json=last).json()
    assert (made["title"], made["body"]) == ("Tender T7", "For ada: 100")
    assert one(connection, "select count(*) from sereno.audit where action like 'template.%%'") == 3


@pytest.mark.slow
@pytest.mark.usefixtures("event_templates")
def test_lint_reports_unknown_fields(ask: Ask) -> None:
    client = ask("admin")
    clean = client.post("/templates/lint").json()
    assert (clean["ok"], clean["templates"]) == (True, 2)
    client.put("/templates/tender.published/email/body", json={"source": "{{ colour }}"})
    found = client.post("/templates/lint").json()
    assert found["ok"] is False
    assert any("'colour' is not a field of the payload" in each["message"] for each in found["findings"])


@pytest.mark.slow
@pytest.mark.usefixtures("event_templates")
def test_invalid_template_requests_are_refused(ask: Ask) -> None:
    client = ask("admin")
    path = "/templates/tender.published/email"
    for source in ("{% if %}", "{{ code", "\x00", "x" * 70_000):
        assert client.put(f"{path}/body", json={"source": source}).status_code == 422, source[:20]
    assert client.put(f"{path}/footer", json={"source": "x"}).status_code == 422
    assert client.put(f"{path}/body", json={"source": "x"}, params={"locale": "??"}).status_code == 422
    assert client.put("/templates/a b/email/body", json={"source": "x"}).status_code == 422
    raw = b'{"source": "\\ud800"}'
    json = {"Content-Type": "application/json"}
    assert client.put(f"{path}/body", content=raw, headers=json).status_code == 422
    trial = {"event": "tender.published", "channel": "email", "payload": {"code": "T1", "amount": 3}}
    assert client.post("/templates/preview", json=trial).status_code == 200
    for change in (
        {"payload": None},
        {"last": True},
        {"payload": {"code": 7}},
        {"payload": {"code": "\x00"}},
        {"event": ""},
        {"event": "tender.closed", "channel": "in_app"},
        {"event": "tender.lost", "channel": "in_app"},
    ):
        assert client.post("/templates/preview", json=trial | change).status_code == 422, change
    assert client.post("/templates/preview", json=trial | {"event": "other"}).status_code == 404
    assert client.post("/templates/preview", json={"event": "other", "channel": "x", "last": True}).status_code == 404
    assert client.get("/templates/other/email").status_code == 404
    assert client.get("/templates/%00/email").status_code == 404
    client.put(
        f"{path}/body",
        json={"source": "{% for a in range(90000) %}{% for b in range(90000) %}x{% endfor %}{% endfor %}"},
    )
    assert client.post("/templates/preview", json=trial).status_code == 422


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce these limits")
@pytest.mark.usefixtures("event_templates")
def test_no_template_is_compiled_or_rendered_in_the_server(ask: Ask, app: Sereno) -> None:
    """Compiling LARGE_TO_COMPILE in the server took 270 MB and blocked all other requests for seconds."""
    client, path = ask("admin"), "/templates/tender.published/email/body"
    # On a busy machine the server waits this long for the process; the client must wait longer.
    client.timeout = httpx.Timeout(LONGEST_SECONDS + 30)
    before = compiled_templates._made.cache_info().misses
    assert client.put(path, json={"source": "{{ code }}"}).status_code == 200
    refused = client.put(path, json={"source": LARGE_TO_COMPILE})
    assert refused.status_code == 422
    assert "too much memory" in refused.json()["detail"]
    assert client.get("/templates/tender.published/email").json()["body"]["source"] == "{{ code }}"
    app.database.run(write(place("tender.published", "email", "body"), LARGE_TO_COMPILE))
    found = client.post("/templates/lint").json()
    assert found["ok"] is False
    assert any("too much memory" in each["message"] for each in found["findings"])
    assert compiled_templates._made.cache_info().misses == before


@pytest.mark.slow
@pytest.mark.usefixtures("event_templates")
def test_many_previews_of_one_user_do_not_delay_others(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """One preview of a user is rendered at a time; lists and previews of other users do not wait for it."""
    held, release = threading.Semaphore(0), threading.Event()

    def slow(*args: Any) -> Content | None:
        if args[5].key == "many":
            held.release()
            assert release.wait(60)
        return render(*args)

    monkeypatch.setattr("sereno.server.api.notifications.templates.render", slow)
    many, other = ask("viewer"), ask("viewer")
    trial = {"event": "tender.published", "channel": "email", "payload": {"code": "T1", "amount": 3}}
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(many.post, "/templates/preview", json=trial | {"recipient": "many"}) for _ in range(5)]
        try:
            assert held.acquire(timeout=60)
            assert other.post("/templates/preview", json=trial).status_code == 200
            assert many.get("/templates").status_code == 200
            assert not held.acquire(blocking=False)
        finally:
            release.set()
        assert [each.result().status_code for each in waiting] == [200] * 5


@pytest.mark.slow
@pytest.mark.usefixtures("event_templates")
def test_roles_for_templates(ask: Ask) -> None:
    trial = {"event": "tender.published", "channel": "email", "payload": {"code": "T1", "amount": 3}}
    assert ask(None).get("/templates").status_code == 401
    assert ask(None).post("/templates/preview", json=trial).status_code == 401
    viewer = ask("viewer")
    assert viewer.post("/templates/preview", json=trial).status_code == 200
    assert viewer.post("/templates/lint").status_code == 200
    path = "/templates/tender.published/email/body"
    assert ask("operator").put(path, json={"source": "x"}).status_code == 403
    assert ask("operator").delete(path).status_code == 403
    assert ask("admin", tenant="a").get("/templates").status_code == 403
    assert ask("admin", tenant="a").put(path, json={"source": "x"}, params={"tenant": "a"}).status_code == 403

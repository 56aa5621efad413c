"""Every list over HTTP has one search grammar: errors have a position, and only rows that a user may see are found."""

from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from tests.facts import one
from tests.server.api.conftest import Ask
from tests.server.api.world import FINGERPRINT, Things, fill, fill_over_http

pytestmark = pytest.mark.slow


def _fill(app: Sereno, ask: Ask) -> tuple[Things, Things]:
    made = Things("ann-tenant", "canary-ann"), Things("bob-tenant", "canary-bob")
    fill(app, *made)
    fill_over_http(ask("admin"), *made)
    return made


@pytest.fixture
def own_tenants(app: Sereno, ask: Ask) -> tuple[Things, Things]:
    """For a test that changes rows."""
    return _fill(app, ask)


@pytest.fixture(scope="module")
def tenants(shared_app: Sereno, shared_ask: Ask) -> tuple[Things, Things]:
    """For tests that only read."""
    return _fill(shared_app, shared_ask)


def fires(things: Things) -> str:
    return f"/schedules/{things.named('schedule')}/fires"


# For each list, a search that finds a row of ann, and one that finds none.
LISTS = {
    "/deliveries": ("channel:pager state:failed recipient:*ann* age:<1h", "channel:pager state:sent"),
    "/schedules": ("key:canary-ann* kind:daily task:work", "key:canary-ann* kind:cron"),
    "/schedules/export": ("tenant:ann-* zone:Europe/Riga", "tenant:ann-* zone:UTC"),
    "/recipients": ("channel:pager canary-ann", "canary-ann -channel:pager"),
    "/events": ("type:tender.* subject:canary-ann*", "type:tender.* -subject:canary*"),
    "/errors": ("task:work count:>1 canary", "task:work count:>2 canary"),
    "/tenants": ("tenant:ann* paused:yes", "tenant:ann* paused:no"),
    "/audit": ("actor:canary-ann* at:1h..", "actor:canary-ann* at:..1h"),
}


def items(client: httpx.Client, path: str, q: str) -> list[dict[str, Any]]:
    answer = client.get(path, params={"q": q})
    assert answer.status_code == 200, (path, q, answer.text)
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_every_list_is_searched(shared_ask: Ask, tenants: tuple[Things, Things]) -> None:
    client = shared_ask("viewer")
    for path, (found, nothing) in LISTS.items():
        whole = client.get(path).json()["items"]
        assert 0 < len(items(client, path, found)) <= len(whole), path
        assert items(client, path, nothing) == [], path
        assert items(client, path, "") == whole, path
    ann, bob = tenants
    assert [each["tenant"] for each in items(client, "/deliveries", "channel:pager *ann*")] == [ann.tenant]
    assert [each["key"] for each in items(client, "/recipients", f"tenant:{bob.tenant}")] == [bob.named("recipient")]
    assert [each["id"] for each in items(client, "/events", str(ann.event))] == [ann.event]
    assert [each["fingerprint"] for each in items(client, "/errors", f"fingerprint:{FINGERPRINT}")] == [FINGERPRINT]
    made = items(client, fires(ann), "state:ready planned:1h..")
    assert len(made) == 1
    assert items(client, fires(ann), "state:dead") == []
    answer = client.get("/schedules/heatmap", params={"q": f"key:{ann.named('schedule')}"}).json()
    assert answer["schedules"] == 1


def test_an_invalid_search_is_refused_with_its_position(shared_ask: Ask, tenants: tuple[Things, Things]) -> None:
    client = shared_ask("viewer")
    for path in (*LISTS, fires(tenants[0])):
        for wrong, at in (("stat:dead", 1), ("one two:3", 5), ('"open', 1), ("a*b", 2), ("x\x00", 2)):
            answer = client.get(path, params={"q": wrong})
            assert answer.status_code == 422, (path, wrong)
            assert f"at character {at} of the search: " in answer.json()["detail"], (path, answer.text)
        assert client.get(path, params={"q": "x" * 2001}).status_code == 422
    operator = shared_ask("operator")
    for path, body in (("/deliveries/requeue", {}), ("/schedules/pause", {"all": True})):
        answer = operator.post(path, json={"q": "stat:dead", **body})
        assert (answer.status_code, "did you mean state?" in answer.text) == (422, True)


def test_a_tenant_finds_only_its_own_rows(shared_ask: Ask, tenants: tuple[Things, Things]) -> None:
    ann, bob = tenants
    client = shared_ask("viewer", tenant=ann.tenant)
    of_tenants = ("/deliveries", "/schedules", "/schedules/export", "/recipients", "/events")
    for path in of_tenants:
        mine = client.get(path).json()["items"]
        assert mine, path
        searches = ("canary", "-zzz", f"tenant:{ann.tenant}", "tenant:*", f"tenant:{ann.tenant},{bob.tenant}")
        for q in searches:
            found = client.get(path, params={"q": q})
            assert found.status_code == 200, (path, q)
            assert not bob.is_in(found.text), (path, q)
            assert len(found.json()["items"]) <= len(mine)
        assert client.get(path, params={"q": f"tenant:{bob.tenant}"}).status_code == 404
    by_number = ((f"id:{bob.delivery}", "/deliveries"), (f"{bob.event}", "/events"))
    of_bob = ((f"trace:{bob.named('trace')}", "/events"), (f"subject:{bob.named('subject')}", "/events"))
    for q, path in (*by_number, *of_bob, (f"key:{bob.named('schedule')}", "/schedules")):
        assert items(client, path, q) == [], (path, q)
    for path in ("/errors", "/tenants", "/audit"):
        assert client.get(path, params={"q": "canary"}).status_code == 403
    assert client.get(fires(bob), params={"q": "state:ready"}).status_code == 404


def test_masked_values_cannot_be_found_by_guessing(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    app.recipients.upsert("ana", {}, tenant="a", data={"pin": "1234", "email": "ana@shop.example", "plan": "free"})
    connection.execute(
        """insert into sereno.events (type, tenant, payload, channels)
           values ('x', 'a', '{"token": "hunter2", "to": {"email": "ana@shop.example"}, "code": 7}', '{}')"""
    )
    when = {"kind": "daily", "at": "03:00"}

    @app.task
    def work(password: str, account: int) -> None: ...

    made = {"task": "work", "when": when, "tenant": "a", "args": {"password": "hunter2", "account": 7}}
    assert ask("admin").put("/schedules/one", json=made).is_success
    guesses = {
        "/recipients": ("data.pin:1234", "data.email:ana@shop.example", "-data.pin:1", "data.plan:free"),
        "/events": ("payload.token:hunter2", "payload.to.email:ana@shop.example", "-payload.token:x", "payload.code:7"),
        "/schedules": ("args.password:hunter2", 'args.note:"Bearer 0123456789"', "-args.password:x", "args.account:7"),
    }
    for tenant in (None, "a"):
        viewer, operator = ask("viewer", tenant), ask("operator", tenant)
        for path, (*masked, shown) in guesses.items():
            for guess in masked:
                refused = viewer.get(path, params={"q": guess})
                assert refused.status_code == 403, (path, guess)
                assert "is masked: only an operator can search by it" in refused.json()["detail"]
                assert operator.get(path, params={"q": guess}).status_code == 200
            assert len(items(operator, path, masked[0])) == len(items(viewer, path, shown)) == 1
            assert items(viewer, path, f"-{shown}") == []


def test_deliveries_that_match_are_requeued(ask: Ask, own_tenants: tuple[Things, Things]) -> None:
    ann, bob = own_tenants
    admin, theirs = ask("operator"), ask("operator", tenant=ann.tenant)
    search = "channel:pager error:too_big"
    dry = admin.post("/deliveries/requeue", json={"q": f"{search} tenant:ann*", "dry_run": True}).json()
    assert (dry["total"], dry["by_state"]) == (1, {"failed": 1})
    assert admin.post("/deliveries/requeue", json={"q": "channel:mail", "all": True}).json()["total"] == 0
    assert admin.post("/deliveries/requeue", json={"q": search}).status_code == 409
    assert admin.post("/deliveries/requeue", json={"q": search, "ids": [ann.delivery]}).status_code == 422
    assert admin.post("/deliveries/requeue", json={"q": " "}).status_code == 422
    both = admin.post("/deliveries/requeue", json={"q": search, "tenant": bob.tenant, "dry_run": True}).json()
    assert both["total"] == 1
    began = admin.post("/deliveries/requeue", json={"q": search, "all": True, "in_background": True}).json()
    assert (began["total"], began["wanted"]["q"]) == (2, search)
    assert theirs.post("/deliveries/requeue", json={"q": search, "all": True}).json()["done"] == [ann.delivery]
    assert theirs.post("/deliveries/requeue", json={"q": f"tenant:{bob.tenant}", "all": True}).status_code == 404


def test_schedules_that_match_are_changed(
    ask: Ask, own_tenants: tuple[Things, Things], connection: psycopg.Connection
) -> None:
    ann, bob = own_tenants
    operator, theirs = ask("operator"), ask("operator", tenant=ann.tenant)
    dry = operator.post("/schedules/pause", json={"q": "canary", "dry_run": True}).json()
    assert (dry["total"], dry["by_state"]) == (2, {"enabled": 2})
    assert operator.post("/schedules/pause", json={"q": "canary"}).status_code == 409
    assert theirs.post("/schedules/pause", json={"q": "canary", "all": True}).json()["total"] == 1
    paused = "select string_agg(key, ' ') from sereno.schedules where state = 'paused'"
    assert one(connection, paused) == ann.named("schedule")
    both = {"q": "state:paused", "tenant": bob.tenant, "all": True}
    assert operator.post("/schedules/resume", json=both).json()["total"] == 0
    assert operator.post("/schedules/resume", json={"q": "state:paused", "all": True}).json()["total"] == 1
    assert one(connection, paused) is None
    run = operator.post("/schedules/run", json={"q": f"tenant:{bob.tenant} -kind:cron", "all": True}).json()
    assert run["total"] == 1
    began = operator.post("/schedules/disable", json={"q": "task:wor*", "all": True, "in_background": True}).json()
    assert (began["total"], began["wanted"]["q"]) == (2, "task:wor*")

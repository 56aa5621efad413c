"""Only operators get unmasked addresses, and the audit records who revealed them."""

import psycopg
import pytest

from sereno import Sereno
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask

ADDRESS = "pager-of-ana-7777"
AUDITED = "select count(*) from sereno.audit where action = 'recipient.reveal' and detail::text not like '%%pager-of%%'"


@pytest.fixture
def recipients(app: Sereno) -> None:
    app.event("tender.published", Tender, channels=[Pager()])
    app.recipients.upsert("user/7", {"pager": ADDRESS})
    app.recipients.upsert("user/7", {"pager": "pager-of-r42"}, tenant="r42")


@pytest.mark.slow
@pytest.mark.usefixtures("recipients")
def test_the_audit_records_who_reveals_an_address(ask: Ask, connection: psycopg.Connection) -> None:
    assert ask("viewer").post("/recipients/user%2F7/reveal").status_code == 403
    assert one(connection, AUDITED) == 0
    answer = ask("operator").post("/recipients/user%2F7/reveal")
    assert answer.status_code == 200
    assert [each["address"] for each in answer.json()["addresses"]] == [ADDRESS]
    assert one(connection, AUDITED) == 1
    assert one(connection, "select subject from sereno.audit where action = 'recipient.reveal'") == "recipient user/7"
    # A GET request is not audited, so it returns no unmasked address.
    for role in ("viewer", "operator", "admin"):
        shown = ask(role).get("/recipients/user%2F7", params={"reveal": True})
        assert (shown.status_code, ADDRESS in shown.text) == (200, False), role
    assert one(connection, AUDITED) == 1
    assert ask("operator").post("/recipients/unknown/reveal").status_code == 404


@pytest.mark.usefixtures("recipients")
def test_a_tenant_reveals_only_its_own_addresses(ask: Ask, connection: psycopg.Connection) -> None:
    own = ask("operator", tenant="r42").post("/recipients/user%2F7/reveal")
    assert [each["address"] for each in own.json()["addresses"]] == ["pager-of-r42"]
    assert ask("admin", tenant="b").post("/recipients/user%2F7/reveal").status_code == 404
    foreign = ask("admin", tenant="b").post("/recipients/user%2F7/reveal", params={"tenant": "r42"})
    assert foreign.status_code == 404
    assert one(connection, AUDITED) == 1


async def test_the_address_of_a_delivery_is_revealed(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    published = app.event("tender.published", Tender, channels=[Pager()])
    await app.recipients.aupsert("ana", {"pager": ADDRESS}, tenant="r42")
    event = await published.anotify(Tender("T1"), to="ana", tenant="r42")
    await app.notifications.fanout.fan_out(event)
    number = one(connection, "select id from sereno.deliveries")
    assert ask("viewer").post(f"/deliveries/{number}/reveal").status_code == 403
    assert ask("admin", tenant="b").post(f"/deliveries/{number}/reveal").status_code == 404
    answer = ask("operator", tenant="r42").post(f"/deliveries/{number}/reveal")
    assert answer.json()["delivery"]["address"] == ADDRESS
    shown = ask("operator").get(f"/deliveries/{number}", params={"reveal": True})
    assert (shown.status_code, ADDRESS in shown.text) == (200, False)
    assert one(connection, "select count(*) from sereno.audit where action = 'delivery.reveal'") == 1
    assert ask("operator").post("/deliveries/999999/reveal").status_code == 404


@pytest.mark.usefixtures("recipients")
def test_a_read_only_server_reveals_nothing(app: Sereno, ask: Ask) -> None:
    app.override(read_only=True)
    answer = ask("operator").post("/recipients/user%2F7/reveal")
    assert answer.status_code == 403
    assert ADDRESS not in answer.text

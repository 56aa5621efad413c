"""Inboxes over HTTP: owners read theirs with a token of the application, admins read any."""

import asyncio

import httpx
import psycopg
import pytest

from sereno import Content, Recipient, Sereno
from sereno.access.signed_token import LONGEST_TOKEN
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.notifications.recipients.inbox_token import PREFIX, InboxReader, make_token, read_token
from sereno.notifications.recipients.unsubscribe import Unsubscribe
from sereno.notifications.recipients.unsubscribe import make_token as make_link
from tests.facts import one
from tests.notifications.conftest import Tender
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served

SECRET = "s" * 32


@pytest.fixture
def inboxes(app: Sereno) -> None:
    """Three messages for ada of tenant a, one for ada of tenant b, one for ada without a tenant."""
    app.override(secret=SECRET)
    news = app.event("tender.published", Tender, channels=["in_app"])

    @news.template()
    def _(tender: Tender, _: Recipient) -> Content:
        return Content(tender.code)

    async def send_messages() -> None:
        for tenant, count in (("a", 3), ("b", 1), (None, 1)):
            await app.recipients.aupsert("ada", tenant=tenant)
            for number in range(count):
                event = await news.anotify(Tender(f"{tenant}{number}"), to="ada", tenant=tenant)
                await app.notifications.fanout.fan_out(event)
        for job in range(1, 6):
            await app.notifications.sender.deliver(job, "in_app", "", -2)
        await app.database.aclose()

    asyncio.run(send_messages())


def inbox_client(served: Served, token: str) -> httpx.Client:
    headers = {b"Authorization": f"Bearer {token}".encode()}
    return httpx.Client(base_url=f"{served.url}/api/v1", headers=headers, timeout=30, verify=NO_CERTIFICATES)


def titles(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["title"] for each in answer.json()["items"]]


@pytest.mark.slow
@pytest.mark.usefixtures("inboxes")
def test_the_owner_reads_and_marks_the_inbox(app: Sereno, served: Served, connection: psycopg.Connection) -> None:
    with inbox_client(served, app.inbox.token("ada", tenant="a")) as client:
        first = client.get("/inbox", params={"limit": 2})
        assert titles(first) == ["a2", "a1"]
        assert titles(client.get("/inbox", params={"before": first.json()["next"]})) == ["a0"]
        assert client.get("/inbox/unread").json() == {"count": 3}
        newest = first.json()["items"][0]
        assert (newest["event"], newest["read_at"]) == ("tender.published", None)
        assert client.post("/inbox/mark", json={"what": "read", "ids": [newest["id"]]}).json() == {"count": 1}
        assert client.get("/inbox/unread").json() == {"count": 2}
        assert client.post("/inbox/mark", json={"what": "archived"}).json() == {"count": 3}
        assert titles(client.get("/inbox")) == []
        assert titles(client.get("/inbox", params={"archived": True})) == ["a2", "a1", "a0"]
        # The token names the inbox; the parameters do not change it.
        assert titles(client.get("/inbox", params={"tenant": "b", "recipient": "ada"})) == []
        # The token gives access to nothing else.
        assert client.get("/jobs").status_code == 401
        assert client.get("/recipients/ada").status_code == 401
    assert one(connection, "select count(*) from sereno.inbox where archived_at is null") == 2
    assert one(connection, "select count(*) from sereno.audit where action = 'inbox.mark'") == 0


@pytest.mark.slow
@pytest.mark.usefixtures("inboxes")
def test_messages_of_another_inbox_are_not_marked(app: Sereno, served: Served, connection: psycopg.Connection) -> None:
    """Of another tenant or without one: an owner can guess the ids."""
    ids = [row[0] for row in connection.execute("select id from sereno.inbox")]
    with inbox_client(served, app.inbox.token("ada", tenant="a")) as client:
        assert client.post("/inbox/mark", json={"what": "archived", "ids": ids}).json() == {"count": 3}
    assert one(connection, "select array_agg(title order by title) from sereno.inbox where seen_at is null") == [
        "None0",
        "b0",
    ]


@pytest.mark.usefixtures("inboxes")
def test_an_invalid_inbox_token_is_refused(app: Sereno, served: Served) -> None:
    good = app.inbox.token("ada", tenant="a")
    changed = f"{good[:-6]}{'B' if good[-6] == 'A' else 'A'}{good[-5:]}"
    ended = make_token(SECRET, InboxReader("a", "ada", 1_000_000))
    foreign = make_token("t" * 32, InboxReader("a", "ada", 2**40))
    link = make_link(SECRET, Unsubscribe("a", "ada", "email", 1))
    bad = (changed, ended, foreign, good[:-1], good + "A", PREFIX, f"{PREFIX}{link}", PREFIX + "A" * 5000, PREFIX + "é")
    for token in bad:
        with inbox_client(served, token) as client:
            for answer in (client.get("/inbox"), client.get("/inbox/unread"), client.post("/inbox/mark", json={})):
                assert answer.status_code == 401, token
    with inbox_client(served, good) as client:
        assert client.post("/inbox/mark", json={"what": "burnt"}).status_code == 422
        assert client.post("/inbox/mark", json={"what": "read", "ids": [-1]}).status_code == 422


@pytest.mark.slow
@pytest.mark.usefixtures("inboxes")
def test_admins_read_any_inbox(ask: Ask, connection: psycopg.Connection) -> None:
    admin = ask("admin")
    assert titles(admin.get("/inbox", params={"recipient": "ada", "tenant": "b"})) == ["b0"]
    assert titles(admin.get("/inbox", params={"recipient": "ada"})) == ["None0"]
    assert admin.get("/inbox").status_code == 422
    assert admin.get("/inbox", params={"recipient": "\x00"}).status_code == 422
    marked = admin.post("/inbox/mark", json={"what": "seen"}, params={"recipient": "ada", "tenant": "a"})
    assert marked.json() == {"count": 3}
    assert one(connection, "select actor from sereno.audit where action = 'inbox.mark'").startswith("admin")
    of_a = ask("admin", tenant="a")
    assert of_a.post("/inbox/mark", params={"recipient": "ada"}, json={"what": "seen"}).status_code == 200
    actor = one(connection, "select actor from sereno.audit where action = 'inbox.mark' order by id desc limit 1")
    assert actor.endswith(" of a"), "a name that a tenant has chosen cannot be mistaken for an operator's"
    assert of_a.get("/inbox/unread", params={"recipient": "ada"}).json() == {"count": 3}
    assert of_a.get("/inbox/unread", params={"recipient": "ada", "tenant": "b"}).status_code == 404
    for path in ("/inbox", "/inbox/unread"):
        assert ask("operator").get(path, params={"recipient": "ada"}).status_code == 403
        assert ask(None).get(path, params={"recipient": "ada"}).status_code == 401
    assert ask("operator").post("/inbox/mark", json={"what": "seen"}, params={"recipient": "ada"}).status_code == 403


@pytest.mark.usefixtures("inboxes")
def test_a_read_only_server_marks_nothing(app: Sereno, served: Served) -> None:
    app.override(read_only=True)
    with inbox_client(served, app.inbox.token("ada", tenant="a")) as client:
        assert client.get("/inbox/unread").json() == {"count": 3}
        assert client.post("/inbox/mark", json={"what": "read"}).status_code == 403


def test_a_token_is_valid_for_one_recipient_until_it_expires(app: Sereno) -> None:
    with pytest.raises(ConfigurationError, match="SERENO_SECRET"):
        app.inbox.token("ada")
    app.override(secret=SECRET)
    token = app.inbox.token("ada", tenant="a", expires_in="1h")
    reader = read_token(SECRET, token, 0)
    assert reader is not None
    assert (reader.tenant, reader.recipient) == ("a", "ada")
    assert read_token(SECRET, token, reader.until - 1) == reader
    assert read_token(SECRET, token, reader.until) is None
    assert read_token("t" * 32, token, 0) is None
    longest = app.inbox.token("é" * 500, tenant="é" * 500)
    assert len(longest) < LONGEST_TOKEN
    assert read_token(SECRET, longest, 0) is not None
    for wrong in (0, "0s", "400d"):
        with pytest.raises(InvalidArguments):
            app.inbox.token("ada", expires_in=wrong)
    with pytest.raises(InvalidArguments):
        app.inbox.token("")

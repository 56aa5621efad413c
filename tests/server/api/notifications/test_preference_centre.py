"""The preference centre over HTTP: recipients see and change theirs with a token, admins those of any recipient."""

import time
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Channel, Digest, QuietHours, Sereno
from sereno.access.operations import create
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.notifications.recipients.inbox_token import InboxReader
from sereno.notifications.recipients.inbox_token import make_token as make_inbox_token
from sereno.notifications.recipients.preference_links import LIFE_IN_MESSAGES, PreferenceLinks
from sereno.notifications.recipients.preference_token import PREFIX, PreferenceOwner, make_token, read_token
from sereno.notifications.recipients.unsubscribe import Unsubscribe
from sereno.notifications.recipients.unsubscribe import make_token as make_link
from sereno.server.shared.preference_access import MOST_REQUESTS
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import PLAIN, Ask, Served

SECRET = "s" * 32
PATH = "/api/v1/preference-centre"
FAR = 2**40


@pytest.fixture
def centre(app: Sereno) -> None:
    """Two recipients of the same key in tenants a and b, each with a pager; four event types, one of them critical."""
    app.override(secret=SECRET, public_url="https://post.example.com")
    channels: list[Channel | str] = [Pager(), "in_app"]
    app.event("tender.published", Tender, channels=channels, category="tenders", digest=Digest("15m"))
    app.event("alarm", Tender, channels=channels, critical=True)
    app.event("newsletter", Tender, channels=["pager"], opt_in=True)
    app.event("worker.lost", Tender, channels=channels, listed=False)
    for tenant in ("a", "b"):
        app.recipients.upsert("ada", {"pager": "pager-0001-of-ada"}, tenant=tenant)
    app.recipients.prefer(None, tenant="a", quiet=QuietHours("23:00", "06:00"))


def send(served: Served, token: str, json: Any = None, **more: Any) -> httpx.Response:
    headers = {b"Authorization": f"Bearer {token}".encode(), **more.pop("headers", {})}
    method = "GET" if json is None else "PUT"
    return httpx.request(method, f"{served.url}{PATH}", json=json, headers=headers, **PLAIN, **more)


def cells(found: dict[str, Any]) -> dict[str, dict[str, bool]]:
    return {
        line["event"] or line["category"] or "*": {cell["channel"]: cell["wanted"] for cell in line["channels"]}
        for line in found["lines"]
    }


@pytest.mark.usefixtures("centre")
def test_a_recipient_sees_and_changes_their_preferences(
    app: Sereno, served: Served, connection: psycopg.Connection
) -> None:
    token = app.recipients.preferences_token("ada", tenant="a")
    found = send(served, token)
    assert found.status_code == 200, found.text
    seen = found.json()
    assert cells(seen) == {
        "*": {"pager": True, "in_app": True},
        "tenders": {"pager": True, "in_app": True},
        "tender.published": {"pager": True, "in_app": True},
        "alarm": {"pager": True, "in_app": True},
        "newsletter": {"pager": False},
    }
    by_event = {line["event"]: line for line in seen["lines"]}
    assert by_event["tender.published"]["digest"] == 900
    (tenders,) = [line for line in seen["lines"] if (line["category"], line["event"]) == ("tenders", None)]
    assert tenders["digest_choice"] == {"chosen": None, "is_mixed": False, "usual": [900]}
    assert [line["event"] or line["category"] for line in seen["lines"] if line["digest_choice"]] == ["tenders"]
    assert [cell["is_fixed"] for cell in by_event["alarm"]["channels"]] == [True, True]
    assert seen["quiet"] == {"own": None, "default": [{"start": "23:00", "end": "06:00", "days": None}], "others": []}
    (address,) = seen["addresses"]
    assert (address["address"], address["state"], seen["zone"]) == ("page…-ada", "active", None)
    changes = {
        "choices": [
            {"category": "tenders", "channel": "pager", "wanted": False},
            {"event": "newsletter", "channel": "pager", "wanted": True},
        ],
        "quiet": [{"start": "22:00", "end": "8:00", "days": ["sat"]}],
        "zone": "Europe/Riga",
        "digests": [{"category": "tenders", "digest": 3600}],
    }
    changed = send(served, token, changes).json()
    assert changed == send(served, token).json()
    assert cells(changed)["tender.published"] == {"pager": False, "in_app": True}
    assert cells(changed)["newsletter"] == {"pager": True}
    assert changed["quiet"]["own"] == [{"start": "22:00", "end": "08:00", "days": ["saturday"]}]
    assert changed["zone"] == "Europe/Riga"
    assert [line["digest"] for line in changed["lines"] if line["event"] == "tender.published"] == [3600]
    assert one(connection, "select category from sereno.preferences where digest_seconds = 3600") == "tenders"
    usual = send(served, token, {"digests": [{"category": "tenders", "digest": None}]}).json()
    assert [line["digest"] for line in usual["lines"] if line["event"] == "tender.published"] == [900]
    assert one(connection, "select count(*) from sereno.preferences where digest_seconds is not null") == 0
    stored = connection.execute(
        "select p.tenant, category, event, channel, wanted from sereno.preferences p join sereno.recipients r "
        "on r.id = recipient_id where wanted is not null order by category"
    ).fetchall()
    assert stored == [("a", "tenders", None, "pager", False), ("a", None, "newsletter", "pager", True)]
    assert send(served, token, {"quiet": None, "stop": [address["id"]]}).json()["quiet"]["own"] is None
    assert one(connection, "select array_agg(state order by recipient_id) from sereno.addresses") == [
        "unsubscribed",
        "active",
    ]
    assert list(cells(send(served, token).json())["alarm"]) == ["in_app"], "no address is left for the pager"
    assert one(connection, "select count(*) from sereno.audit where action = 'recipient.prefer'") == 0


@pytest.mark.usefixtures("centre")
def test_an_invalid_preference_token_is_refused(
    app: Sereno, served: Served, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    good = app.recipients.preferences_token("ada", tenant="a")
    inbox = make_inbox_token(SECRET, InboxReader("a", "ada", FAR))
    tokens = {
        "tampered": f"{good[:-6]}{'B' if good[-6] == 'A' else 'A'}{good[-5:]}",
        "another tenant": PREFIX + make_token("t" * 32, PreferenceOwner("b", "ada", FAR)).removeprefix(PREFIX),
        "expired": make_token(SECRET, PreferenceOwner("a", "ada", int(time.time()) - 1)),
        "truncated": good[:-1],
        "extended": good + "A",
        "the purpose of an inbox": PREFIX + inbox.removeprefix("sri_"),
        "an inbox token": inbox,
        "an unsubscribe link": PREFIX + str(make_link(SECRET, Unsubscribe("a", "ada", "email", 1))),
        "empty": PREFIX,
        "too long": PREFIX + "A" * 5000,
        "not ASCII": PREFIX + "é",
        "an API token of another tenant without a recipient": "srn_" + "x" * 32,
    }
    for name, token in tokens.items():
        with subtests.test(name):
            for answer in (send(served, token), send(served, token, {"zone": "Europe/Riga"})):
                assert answer.status_code == 401, answer.text
                assert "ada" not in answer.text
    assert httpx.get(f"{served.url}{PATH}", **PLAIN).status_code == 401
    # The token gives access to nothing else, and its parameters do not lead to another recipient.
    for path in ("jobs", "inbox", "recipients/ada", "preferences"):
        headers = {"Authorization": f"Bearer {good}"}
        assert httpx.get(f"{served.url}/api/v1/{path}", headers=headers, **PLAIN).status_code == 401
    send(served, good, {"zone": "Asia/Tokyo"}, params={"tenant": "b", "recipient": "ada"})
    assert one(connection, "select array_agg(zone order by tenant) from sereno.recipients") == ["Asia/Tokyo", None]


@pytest.mark.usefixtures("centre")
def test_a_change_that_is_not_offered_is_refused(
    app: Sereno, served: Served, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    token = app.recipients.preferences_token("ada", tenant="a")
    other = one(connection, "select a.id from sereno.addresses a join sereno.recipients r on r.id = recipient_id "
                "where tenant = 'b'")  # fmt: skip
    good = {"category": "tenders", "channel": "pager", "wanted": False}
    refused: tuple[Any, ...] = (
        {"choices": [good, {"event": "alarm", "channel": "pager", "wanted": False}]},
        {"choices": [good, {"event": "worker.lost", "channel": "pager", "wanted": False}]},
        {"choices": [good], "digests": [{"event": "alarm", "digest": 0}]},
        {"choices": [good], "digests": [{"category": "tenders", "digest": 604801}]},
        {"choices": [good], "digests": [{"category": "tenders"}]},
        {"choices": [good, {"category": "x" * 400, "channel": "pager", "wanted": False}]},
        {"choices": [good, {"event": "a\x00b", "channel": "pager", "wanted": False}]},
        {"choices": [good], "quiet": [{"start": "22:00", "end": "22:00"}]},
        {"choices": [good], "quiet": [{"start": "00:00", "end": "12:00"}, {"start": "12:00", "end": "00:00"}]},
        {"choices": [good], "zone": "../../etc/passwd"},
        {"choices": [good], "stop": [other]},
        {"choices": [good | {"condition": {"region": "RM"}}]},
        {"choices": [good] * 3000},
        {"stop": [-1]},
        {"wanted": True},
        [],
    )
    for changes in refused:
        with subtests.test(changes=str(changes)[:80]):
            answer = send(served, token, changes)
            assert answer.status_code == 422, answer.text
    assert one(connection, "select count(*) from sereno.preferences where recipient_id is not null") == 0
    assert one(connection, "select array_agg(distinct state) from sereno.addresses") == ["active"]


@pytest.mark.usefixtures("centre")
def test_admins_use_it_for_a_recipient_and_are_audited(
    app: Sereno, served: Served, ask: Ask, connection: psycopg.Connection
) -> None:
    path, params = "/preference-centre", {"recipient": "ada", "tenant": "b"}
    assert ask("admin").get(path, params=params).status_code == 200
    assert ask("admin").get(path).status_code == 422
    assert ask("admin").get(path, params={"recipient": "\x00"}).status_code == 422
    assert ask("admin").get(path, params={"recipient": "zoe"}).status_code == 404
    assert ask("admin", tenant="a").get(path, params=params).status_code == 404
    for role, status in (("operator", 403), ("viewer", 403), (None, 401)):
        assert ask(role).get(path, params=params).status_code == status
        assert ask(role).put(path, params=params, json={"zone": "Asia/Tokyo"}).status_code == status
    changed = ask("admin").put(path, params=params, json={"choices": [{"channel": "pager", "wanted": False}]})
    assert changed.status_code == 200, changed.text
    actor, detail = connection.execute(
        "select actor, detail from sereno.audit where action = 'recipient.prefer'"
    ).fetchone() or (None, None)
    assert str(actor).startswith("admin")
    assert detail["choices"] == [{"channel": "pager", "wanted": False, "category": None, "event": None}]
    secret = app.database.run(create("late", "admin", actor="test")).secret
    app.override(read_only=True)
    token = app.recipients.preferences_token("ada", tenant="b")
    for each in (token, secret):
        assert send(served, each, params=params).status_code == 200
        assert send(served, each, {"zone": "Asia/Tokyo"}, params=params).status_code == 403


@pytest.mark.usefixtures("centre")
def test_requests_of_one_recipient_are_bounded(app: Sereno, served: Served) -> None:
    tokens = [app.recipients.preferences_token("zoe", tenant="a", expires_in=life) for life in ("1h", "2h")]
    statuses = [send(served, tokens[number % 2]).status_code for number in range(MOST_REQUESTS)]
    assert set(statuses) == {404}, "a token of the application may name a recipient who does not exist yet"
    answer = send(served, tokens[0])
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 61
    assert send(served, app.recipients.preferences_token("ada", tenant="a")).status_code == 200


def test_pages_of_listed_origins_use_it_with_a_preference_token(app: Sereno, served: Served, ask: Ask) -> None:
    shop = "https://shop.example.com"
    app.override(secret=SECRET, inbox_origins=[shop])
    app.recipients.upsert("ada")
    token, inbox = app.recipients.preferences_token("ada"), app.inbox.token("ada")
    preflight = {"Origin": shop, "Access-Control-Request-Method": "PUT"}
    allowed = httpx.options(f"{served.url}{PATH}", headers=preflight, **PLAIN)
    assert (allowed.status_code, allowed.headers["access-control-allow-methods"]) == (204, "GET, PUT")
    name = "access-control-allow-origin"
    assert send(served, token, headers={"Origin": shop}).headers[name] == shop
    assert name not in send(served, token, headers={"Origin": "https://evil.example.com"}).headers
    assert name not in send(served, inbox, headers={"Origin": shop}).headers
    api_token = ask("admin").headers["authorization"].removeprefix("Bearer ")
    assert name not in send(served, api_token, headers={"Origin": shop}, params={"recipient": "ada"}).headers


def test_without_a_secret_no_token_is_valid(bare_served: Served) -> None:
    token = make_token(SECRET, PreferenceOwner(None, "ada", FAR))
    assert send(bare_served, token).status_code == 401
    page = f"{bare_served.url}/preference-centre/{token}"
    assert httpx.get(page, **PLAIN).status_code == 400
    assert httpx.post(page, **PLAIN).status_code == 400


def test_links_and_tokens_need_settings_and_an_end(app: Sereno) -> None:
    with pytest.raises(ConfigurationError, match="SERENO_PUBLIC_URL"):
        app.recipients.preferences_url("ada")
    with pytest.raises(ConfigurationError, match="SERENO_SECRET"):
        app.recipients.preferences_token("ada")
    assert PreferenceLinks(app.database).of_message(None, "ada") is None
    app.override(secret=SECRET, public_url="https://post.example.com")
    for life in ("0s", "400d"):
        with pytest.raises(InvalidArguments):
            app.recipients.preferences_token("ada", expires_in=life)
    with pytest.raises(InvalidArguments, match="too long"):
        app.recipients.preferences_token("\U0001f512" * 500, tenant="\U0001f512" * 500)
    assert PreferenceLinks(app.database).of_message("\U0001f512" * 500, "\U0001f512" * 500) is None
    url = app.recipients.preferences_url("ada", tenant="a", expires_in="30d")
    assert url.startswith(f"https://post.example.com/preference-centre/{PREFIX}")
    owner = read_token(SECRET, url.rpartition("/")[2])
    assert owner is not None
    assert (owner.tenant, owner.recipient) == ("a", "ada")
    link = PreferenceLinks(app.database).of_message("a", "ada")
    assert link is not None
    in_message = read_token(SECRET, link.rpartition("/")[2])
    assert in_message is not None
    # The same for all messages of a day, so that every attempt of one has the same text.
    assert in_message.until % 86400 == 0
    assert in_message.until > owner.until - 30 * 86400 + LIFE_IN_MESSAGES - 1

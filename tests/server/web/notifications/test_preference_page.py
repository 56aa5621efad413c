"""The page of the preference centre without scripts: what it shows, what its form changes, and what it refuses."""

import time
from collections.abc import Callable

import httpx
import psycopg
import pytest

from sereno import QuietHours, Sereno
from sereno.notifications.recipients.inbox_token import InboxReader
from sereno.notifications.recipients.inbox_token import make_token as make_inbox_token
from sereno.notifications.recipients.preference_token import PREFIX, PreferenceOwner, make_token
from sereno.server.shared.preference_access import MOST_REQUESTS
from tests.facts import one
from tests.server.api.conftest import PLAIN, Served
from tests.server.web.notifications.preference_pages import HOSTILE, SECRET, Box, Form, fill, post, preferences

BASE = "https://post.example.com"


@pytest.fixture
def url(app: Sereno, served: Served) -> str:
    fill(app)
    return app.recipients.preferences_url("ada", tenant="a").replace(BASE, served.url)


@pytest.fixture
def form(url: str) -> Callable[[], Form]:
    return lambda: Form(httpx.get(url, **PLAIN).text)


def box(form: Form, category: str | None, event: str | None, channel: str) -> Box:
    """Return the checkbox of a choice, by its hidden field."""
    names = ",".join("null" if each is None else f'"{each}"' for each in (category, event, channel))
    cells = [value for name, value in form.fields if name == "cell"]
    (number,) = [place for place, value in enumerate(cells) if value.startswith(f"[{names},")]
    return next(each for each in form.boxes if (each.name, each.value) == ("on", str(number)))


@pytest.mark.quick
def test_the_page_shows_all_and_changes_nothing(url: str, connection: psycopg.Connection) -> None:
    answer = httpx.get(url, **PLAIN)
    assert answer.status_code == 200
    shown = answer.text
    hours = ("The usual ones: 23:00\N{EN DASH}06:00", "Pager: 12:00\N{EN DASH}13:00")
    for text in ("Tender published", "Other messages", "Collected for 15 m", *hours, "ada.….org", "always sent"):
        assert text in shown, text
    for secret in ("ada.lovelace", "<script", SECRET, url.rpartition("/")[2], "http://", "https://"):
        assert secret not in shown, secret
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-robots-tag"] == "noindex"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy
    assert "set-cookie" not in answer.headers
    fixed = [each for each in Form(shown).boxes if each.is_disabled]
    assert [each.label for each in fixed] == ["E-mail", "In the application"] * 2
    assert httpx.head(url, **PLAIN).status_code == 200
    assert preferences(connection) == []


@pytest.mark.quick
def test_the_form_writes_what_has_changed_and_nothing_else(
    app: Sereno, url: str, form: Callable[[], Form], connection: psycopg.Connection
) -> None:
    unchanged = post(url, form().sent())
    assert (unchanged.status_code, unchanged.headers["location"]) == (303, "?saved=1")
    assert preferences(connection) == []
    first = form()
    # Another window changes another choice meanwhile.
    app.recipients.prefer("ada", tenant="a", event="tender.closed", channel="in_app", wanted=False)
    box(first, "tenders", None, "email").is_checked = False
    box(first, None, "newsletter", "email").is_checked = True
    # Beside the usual hours, which are still chosen.
    first.set("start", "22:00")
    first.set("end", "07:30")
    next(each for each in first.boxes if (each.name, each.value) == ("days0", "friday")).is_checked = True
    first.set("zone", "Europe/Riga")
    first.set("digest", "3600")
    saved = post(f"{url}?lang=es", first.sent())
    assert (saved.status_code, saved.headers["location"]) == (303, "?lang=es&saved=1"), saved.text
    assert preferences(connection) == [
        ("tenders", None, "email", False),
        (None, "newsletter", "email", True),
        (None, "tender.closed", "in_app", False),
    ]
    assert one(connection, "select zone from sereno.recipients") == "Europe/Riga"
    own = (
        "select quiet from sereno.preferences where recipient_id is not null and channel is null and quiet is not null"
    )
    assert one(connection, own) == [{"start": "22:00", "end": "07:30", "days": [5]}]
    assert one(connection, "select digest_seconds from sereno.preferences where category = 'tenders' and "
               "channel is null") == 3600  # fmt: skip
    page = httpx.get(f"{url}?lang=en&saved=1", **PLAIN).text
    assert "Collected for 1 h" in page
    assert 'role="status"' in page
    again = Form(page)
    assert not box(again, "tenders", "tender.closed", "email").is_checked
    assert box(again, "tenders", "tender.closed", "pager").is_checked
    # The usual hours again, and no more messages to one address.
    next(each for each in again.boxes if each.value == "own").is_checked = False
    next(each for each in again.boxes if each.value == "default").is_checked = True
    stop = [each for each in again.boxes if each.name == "stop"]
    assert len(stop) == 2
    stop[1].is_checked = True
    assert post(url, again.sent()).status_code == 303
    assert connection.execute(own).fetchall() == []
    assert one(connection, "select array_agg(state order by channel) from sereno.addresses") == [
        "active",
        "unsubscribed",
    ]
    assert "Pager" not in [each.label for each in form().boxes], "no address is left for it"


@pytest.mark.slow
def test_a_digest_that_was_not_changed_stays(
    app: Sereno, url: str, form: Callable[[], Form], connection: psycopg.Connection
) -> None:
    own = (
        "select array_agg(digest_seconds order by channel nulls last) from sereno.preferences "
        "where digest_seconds is not null"
    )
    app.recipients.prefer("ada", tenant="a", category="tenders", digest="2h")
    app.recipients.prefer("ada", tenant="a", category="tenders", channel="email", digest=0)
    mixed = form()
    assert ("digest", "mixed") in mixed.fields
    assert post(url, mixed.sent()).status_code == 303
    assert one(connection, own) == [0, 7200]
    app.recipients.prefer("ada", tenant="a", category="tenders", channel="email", digest=None)
    assert "every 2 h" in httpx.get(url, **PLAIN).text
    assert post(url, form().sent()).status_code == 303
    assert one(connection, own) == [7200]
    wrong = form()
    wrong.set("digest", "often")
    assert post(url, wrong.sent()).status_code == 422
    usual = form()
    usual.set("digest", "usual")
    assert post(url, usual.sent()).status_code == 303
    assert one(connection, own) is None


@pytest.mark.slow
def test_quiet_hours_without_a_default(app: Sereno, url: str, form: Callable[[], Form]) -> None:
    app.recipients.prefer(None, tenant="a", quiet=None)
    app.recipients.prefer("ada", tenant="a", quiet=[QuietHours("22:00", "06:00"), QuietHours("13:00", "14:00")])
    first = form()
    assert "default" not in [each.value for each in first.boxes]
    assert post(url, first.sent()).status_code == 303
    first.set("start", "21:00", "", "")
    first.set("end", "06:00", "", "")
    assert post(url, first.sent()).status_code == 303
    assert [value for name, value in form().fields if name == "start"] == ["21:00", ""]
    wrong = form()
    wrong.set("start", "21:00", "09:00")
    refused = post(url, wrong.sent())
    assert refused.status_code == 422
    assert 'role="alert"' in refused.text
    assert [value for name, value in Form(refused.text).fields if name == "start"] == ["21:00", "09:00", ""]
    last = form()
    last.set("start", "", "")
    last.set("end", "", "")
    assert post(url, last.sent()).status_code == 303
    assert [value for name, value in form().fields if name == "start"] == [""]


@pytest.mark.slow
def test_the_page_speaks_the_language_of_its_reader(url: str, subtests: pytest.Subtests) -> None:
    for accepted, chosen, title in (
        ("es-MX,es;q=0.9", "", "Sus avisos"),
        ("pt-BR", "", "As suas notificações"),
        ("fi", "", "Your notifications"),
        ("es", "?lang=pt", "As suas notificações"),
        ("es", "?lang=%22%3E%3Cscript%3E", "Sus avisos"),
    ):
        with subtests.test(accepted=accepted, chosen=chosen):
            answer = httpx.get(url + chosen, headers={"Accept-Language": accepted}, **PLAIN)
            assert f"<h1>{title}</h1>" in answer.text
            assert "<script" not in answer.text
            assert f'<html lang="{answer.headers["content-language"]}">' in answer.text


@pytest.mark.quick
def test_a_link_that_does_not_work_is_explained_and_changes_nothing(
    app: Sereno, served: Served, url: str, form: Callable[[], Form], connection: psycopg.Connection
) -> None:
    sent = form()
    box(sent, None, None, "email").is_checked = False
    start, good = f"{served.url}/preference-centre/", url.rpartition("/")[2]
    inbox = make_inbox_token(SECRET, InboxReader("a", "ada", 2**40))
    cases = [
        (make_token(SECRET, PreferenceOwner("a", "ada", int(time.time()) - 1)), 410, "has expired"),
        (good[:-1], 400, "incomplete"),
        (f"{good[:-4]}{'B' if good[-4] == 'A' else 'A'}{good[-3:]}", 400, "incomplete"),
        (make_token("t" * 32, PreferenceOwner("b", "ada", 2**40)), 400, "incomplete"),
        (PREFIX + inbox.removeprefix("sri_"), 400, "incomplete"),
        (inbox, 400, "incomplete"),
        ("<b>", 400, "incomplete"),
        ("A" * 5000, 400, "incomplete"),
        (make_token(SECRET, PreferenceOwner("b", "ada", 2**40)), 404, "no preferences for this link"),
    ]
    for token, status, words in cases:
        for answer in (httpx.get(start + token, **PLAIN), post(start + token, sent.sent())):
            assert answer.status_code == status, token
            assert words in answer.text
            for hidden in ("<b>", "ada", "Tender"):
                assert hidden not in answer.text
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    for site in ("cross-site", "same-site"):
        assert post(url, sent.sent(), **{"Sec-Fetch-Site": site}).status_code == 403
    assert httpx.put(url, **PLAIN).status_code == 405
    app.override(read_only=True)
    assert post(url, sent.sent()).status_code == 403
    assert httpx.get(url, **PLAIN).status_code == 200
    assert preferences(connection) == []


@pytest.mark.quick
def test_a_hostile_form_writes_nothing(
    url: str, form: Callable[[], Form], connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    good = form().sent()
    for status, fields in (
        (422, [("cell", '["tenders",null,"sms",true]')]),
        (422, [("cell", '["security","password_changed","email",true]')]),
        (422, [("cell", "[1]")]),
        (422, [("cell", HOSTILE)]),
        (422, [("zone", "../../etc/passwd")]),
        (422, [("zone", "Europe/" + "x" * 400_000)]),
        (422, [("stop", "999999")]),
        (422, [("cell", '["a\\u0000b",null,"email",true]')]),
        (422, [("x", "1")] * 20_000),
        (413, [("x", "1" * 600_000)]),
        (
            303,
            [
                ("stop", "-1"),
                ("stop", "²"),
                ("stop", "9" * 5000),
                ("days0", "\x00"),
                ("on", "99999"),
                ("start", "22:00"),
            ],
        ),
        (303, []),
    ):
        with subtests.test(fields=str(fields)[:60]):
            answer = post(url, fields)
            assert answer.status_code == status, answer.text[:500]
            assert "onerror" not in answer.text
            assert (answer.headers.get("connection") == "close") == (status == 413)
    assert post(url, good).status_code == 303
    assert preferences(connection) == []
    assert one(connection, "select count(*) from sereno.preferences where recipient_id is not null") == 1
    assert one(connection, "select array_agg(distinct state) from sereno.addresses") == ["active"]


@pytest.mark.slow
def test_requests_are_bounded(url: str) -> None:
    with httpx.Client(**PLAIN) as client:
        statuses = [client.get(url).status_code for _ in range(MOST_REQUESTS)]
        answer = client.get(url)
    assert set(statuses) == {200}
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert "Too many requests" in answer.text

"""Recipients: partial changes of preferences, unsubscribed addresses, and unsubscribe links."""

from typing import Any

import psycopg
import pytest

from sereno import QuietHours, Sereno
from sereno.channels.email import Email
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.notifications.recipients.unsubscribe import LONGEST_TOKEN, Unsubscribe, make_token
from sereno.notifications.recipients.unsubscribe_links import PATH, UnsubscribeLinks
from sereno.settings import LONGEST_PUBLIC_URL
from tests.facts import one

SECRET = "s" * 32
HOME = "https://notify.example.com"
NIGHT = QuietHours("22:00", "08:00")

Rows = list[tuple[Any, ...]]


def rows(connection: psycopg.Connection) -> Rows:
    return connection.execute(
        "select category, event, channel, wanted, filter, condition::text, quiet is not null "
        "from sereno.preferences order by weight, id"
    ).fetchall()


# Preferences


def test_given_aspects_change_and_omitted_ones_stay(app: Sereno, connection: psycopg.Connection) -> None:
    app.recipients.upsert("ada")
    app.recipients.prefer("ada", event="e", wanted=False)
    app.recipients.prefer("ada", event="e", quiet=NIGHT)
    assert rows(connection) == [(None, "e", None, False, None, None, True)]
    app.recipients.prefer("ada", event="e", condition={"region": "RM"})
    app.recipients.prefer("ada", event="e", wanted=True)
    ((*_, wanted, condition, compiled, has_quiet),) = rows(connection)
    assert (wanted, condition, has_quiet) == (True, {"region": "RM"}, True)
    assert compiled is not None
    app.recipients.prefer("ada", event="e", condition=None)
    assert rows(connection) == [(None, "e", None, True, None, None, True)]
    app.recipients.prefer("ada", event="e", channel="email", wanted=False)
    assert rows(connection)[0] == (None, "e", None, True, None, None, True)


async def test_a_preference_without_aspects_is_deleted(app: Sereno, connection: psycopg.Connection) -> None:
    await app.recipients.aupsert("ada", tenant="acme")
    for key in ("ada", None):
        await app.recipients.aprefer(key, tenant="acme", category="c", wanted=False, quiet=[], condition={})
        await app.recipients.aprefer(key, tenant="acme", category="c", wanted=None, quiet=None)
        assert rows(connection) == [("c", None, None, None, {}, "true", False)]
        await app.recipients.aprefer(key, tenant="acme", category="c", condition=None)
        assert rows(connection) == []


def test_a_preference_without_aspects_is_not_stored(app: Sereno, connection: psycopg.Connection) -> None:
    app.recipients.upsert("ada")
    app.recipients.prefer("ada", event="e")
    app.recipients.prefer("ada", event="e", wanted=None)
    assert rows(connection) == []
    app.recipients.prefer("ada", event="e", wanted=True)
    app.recipients.prefer("ada", event="e")
    assert len(rows(connection)) == 1
    with pytest.raises(InvalidArguments, match="no recipient"):
        app.recipients.prefer("missing", wanted=None)


def test_a_digest_is_set_and_cleared_by_itself(app: Sereno, connection: psycopg.Connection) -> None:
    app.recipients.upsert("ada")
    app.recipients.prefer("ada", event="e", digest="1h")
    app.recipients.prefer("ada", event="e", wanted=True)
    assert one(connection, "select digest_seconds from sereno.preferences") == 3600
    app.recipients.prefer("ada", event="e", wanted=None, digest=0)
    assert one(connection, "select digest_seconds from sereno.preferences where wanted is null") == 0
    app.recipients.prefer("ada", event="e", digest=None)
    assert rows(connection) == []
    # However a row is written, it cannot stop a fan-out.
    for wrong in (-1, 604801, "NaN"):
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("insert into sereno.preferences (digest_seconds) values (%s)", [wrong])


def test_invalid_preferences_are_refused(app: Sereno, connection: psycopg.Connection) -> None:
    app.recipients.upsert("ada")
    wrong: list[dict[str, Any]] = [
        {"wanted": "no"},
        {"event": ""},
        {"quiet": "night"},
        {"condition": []},
        {"digest": "8d"},
    ]
    for wish in wrong:
        with pytest.raises(InvalidArguments):
            app.recipients.prefer("ada", **wish)
    with pytest.raises(TypeError):
        app.recipients.prefer("ada", wnated=False)  # type: ignore[call-arg]
    assert rows(connection) == []


# Addresses


def test_an_address_is_unsubscribed_in_any_spelling(app: Sereno, connection: psycopg.Connection) -> None:
    app.recipients.upsert("ada", {"email": ["Old@EXAMPLE.org", "b@example.org"], "fax": "1" * 1500})
    app.channels.add(Email())
    app.recipients.upsert("ada", {"email": "New@EXAMPLE.org"})
    assert app.recipients.unsubscribe("ada", "email", "New@Example.ORG")
    assert app.recipients.unsubscribe("ada", "email", "Old@EXAMPLE.org")
    assert app.recipients.unsubscribe("ada", "fax", "1" * 1500)
    assert not app.recipients.unsubscribe("ada", "email", "missing@example.org")
    assert one(connection, "select array_agg(address) from sereno.addresses where state = 'active'") == [
        "b@example.org"
    ]


def test_an_address_that_is_no_longer_valid_can_be_unsubscribed(app: Sereno, connection: psycopg.Connection) -> None:
    app.recipients.upsert("ada", {"email": "no mail at all"})
    app.channels.add(Email())
    assert app.recipients.unsubscribe("ada", "email", "no mail at all", reason="a letter")
    assert one(connection, "select state || ': ' || reason from sereno.addresses") == "unsubscribed: a letter"
    for wrong in ("", "\0", "\ud800", "a" * 2001, 7):
        with pytest.raises(InvalidArguments):
            app.recipients.unsubscribe("ada", "email", wrong)  # type: ignore[arg-type]


def test_an_unsubscribed_address_that_is_given_again_stays_unsubscribed(
    app: Sereno, connection: psycopg.Connection
) -> None:
    app.recipients.upsert("ada", {"fax": ["1", "2"]})
    app.recipients.unsubscribe("ada", "fax", "1")
    connection.execute("update sereno.addresses set state = 'invalid' where address = '2'")
    app.recipients.upsert("ada", {"fax": ["1", "2"]})
    rows = connection.execute("select address, state, reason from sereno.addresses order by address").fetchall()
    assert rows == [("1", "unsubscribed", "by the recipient"), ("2", "active", None)]


# Links


@pytest.fixture
def linked(app: Sereno, connection: psycopg.Connection) -> Sereno:
    app.override(public_url=HOME, secret=SECRET)
    app.recipients.upsert("ada", {"email": ["ada@example.org", "other@example.org"]}, tenant="acme")
    return app


def link(app: Sereno, connection: psycopg.Connection, category: str | None = None) -> str:
    number = one(connection, "select id from sereno.addresses where address = 'ada@example.org'")
    made = UnsubscribeLinks(app.database).link("acme", "ada", "email", number, category, event="letter")
    assert made is not None
    assert made.startswith(f"{HOME}{PATH}")
    return made.removeprefix(f"{HOME}{PATH}")


def choice(connection: psycopg.Connection, category: str, event: str, channel: str) -> bool | None:
    """Return the decision as it is made before sending."""
    found = connection.execute(
        "select wanted from sereno.recipients r, sereno.choice(r.id, r.tenant, %s, %s, %s) where r.key = 'ada'",
        [category, event, channel],
    ).fetchone()
    assert found is not None
    return bool(found[0]) if found[0] is not None else None


def test_a_link_needs_both_settings_and_an_address_and_is_not_critical(app: Sereno) -> None:
    links = UnsubscribeLinks(app.database)
    assert links.link(None, "ada", "email", 1, "news") is None
    app.override(public_url=HOME)
    assert links.link(None, "ada", "email", 1, "news") is None
    app.override(secret=SECRET)
    assert links.link(None, "ada", "email", 1, "news") is not None
    assert links.link(None, "ada", "in_app", None, "news") is None
    assert links.link(None, "ada", "email", 1, "news", critical=True) is None
    assert links.link(None, "a" * 500, "email", 1, "news") is None


def test_the_longest_link_fits_into_an_email_header(app: Sereno) -> None:
    from sereno.channels.email_content import _URL  # noqa: PLC0415 - what the channel takes

    url = "https://example.com/" + "a" * (LONGEST_PUBLIC_URL - 20)
    assert _URL.fullmatch(url + PATH + "a" * LONGEST_TOKEN)


def test_a_link_without_a_category_unsubscribes_the_address(linked: Sereno, connection: psycopg.Connection) -> None:
    token = link(linked, connection)
    assert linked.recipients.unsubscribe_with(token)
    states = "select address, state, reason, changed_at from sereno.addresses order by address"
    first = connection.execute(states).fetchall()
    assert [row[:3] for row in first] == [
        ("ada@example.org", "unsubscribed", "by the link in a message"),
        ("other@example.org", "active", None),
    ]
    assert linked.recipients.unsubscribe_with(token)
    assert connection.execute(states).fetchall() == first
    assert rows(connection) == []


async def test_a_link_with_a_category_turns_it_off_on_its_channel(
    linked: Sereno, connection: psycopg.Connection
) -> None:
    token = link(linked, connection, "news")
    await linked.recipients.aprefer("ada", tenant="acme", category="news", channel="email", wanted=True, quiet=NIGHT)
    for _ in range(2):
        assert await linked.recipients.aunsubscribe_with(token)
        assert rows(connection) == [("news", None, "email", False, None, None, True)]
    assert choice(connection, "news", "letter", "email") is False
    assert choice(connection, "news", "letter", "sms") is None
    assert choice(connection, "other", "thing", "email") is None
    assert one(connection, "select count(*) from sereno.addresses where state <> 'active'") == 0


@pytest.mark.parametrize("category", [None, "news"])
@pytest.mark.parametrize("channel", [None, "email"])
def test_a_link_also_turns_off_a_preference_for_the_event(
    linked: Sereno, connection: psycopg.Connection, category: str | None, channel: str | None
) -> None:
    people = linked.recipients
    people.prefer("ada", tenant="acme", event="letter", category=category, channel=channel, wanted=True)
    people.prefer("ada", tenant="acme", event="alarm", wanted=True)
    assert people.unsubscribe_with(link(linked, connection, "news"))
    assert choice(connection, "news", "letter", "email") is False
    assert choice(connection, "news", "letter", "sms") is (True if channel is None else None)
    assert choice(connection, "news", "alarm", "email") is True


def test_a_link_is_applied_in_the_callers_transaction(
    linked: Sereno, connection: psycopg.Connection, database_url: str
) -> None:
    with psycopg.connect(database_url) as own:
        assert linked.recipients.unsubscribe_with(link(linked, connection), conn=own)
        own.rollback()
    assert one(connection, "select count(*) from sereno.addresses where state <> 'active'") == 0


def test_a_link_of_a_deleted_recipient_changes_nothing(linked: Sereno, connection: psycopg.Connection) -> None:
    tokens = [link(linked, connection), link(linked, connection, "news")]
    linked.recipients.upsert("ada", {"email": "ada@example.org"}, tenant="other")
    linked.recipients.delete("ada", tenant="acme")
    assert [linked.recipients.unsubscribe_with(token) for token in tokens] == [False, False]
    assert one(connection, "select count(*) from sereno.addresses where state <> 'active'") == 0
    assert rows(connection) == []


def test_the_id_of_another_recipients_address_changes_nothing(linked: Sereno, connection: psycopg.Connection) -> None:
    linked.recipients.upsert("bob", {"email": "bob@example.org"}, tenant="acme")
    number = one(connection, "select id from sereno.addresses where address = 'bob@example.org'")
    token = make_token(SECRET, Unsubscribe("acme", "ada", "email", number))
    assert token is not None
    assert not linked.recipients.unsubscribe_with(token)
    assert one(connection, "select count(*) from sereno.addresses where state <> 'active'") == 0


def test_an_invalid_link_is_refused_with_a_helpful_message(linked: Sereno, connection: psycopg.Connection) -> None:
    token = link(linked, connection)
    for wrong in ("", "x", token[:-1], token + "A", "é", token.swapcase()):
        with pytest.raises(InvalidArguments, match="not valid"):
            linked.recipients.unsubscribe_with(wrong)
    linked.override(secret="t" * 32)
    with pytest.raises(InvalidArguments, match="not valid"):
        linked.recipients.unsubscribe_with(token)
    assert one(connection, "select count(*) from sereno.addresses where state <> 'active'") == 0


def test_without_a_secret_there_are_no_links(app: Sereno) -> None:
    with pytest.raises(ConfigurationError, match="SERENO_SECRET"):
        app.recipients.unsubscribe_with("x")

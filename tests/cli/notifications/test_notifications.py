"""`sereno event|delivery|recipient|channel …` and `sereno why RECIPIENT EVENT`: output and effect."""

import asyncio
import json
from pathlib import Path
from typing import Any, get_args

import psycopg
import pytest
from click.testing import Result

from sereno import Sereno
from sereno.channels.outcome import Failed, Invalid, Retryable
from sereno.cli.notifications.delivery import STATES
from sereno.notifications import operations
from sereno.notifications.deliveries import lists
from sereno.notifications.deliveries.delivery import State
from tests.cli.conftest import Command
from tests.facts import one
from tests.notifications.conftest import Pager, Tender

SHOP = """
from dataclasses import dataclass
from sereno import Channel, Sereno, in_app
from sereno.errors import InvalidAddress

class Pager(Channel):
    name = "pager"

    def check_address(self, address):
        if " " in address:
            raise InvalidAddress("a pager has no spaces")
        return address.lower()

@dataclass
class Tender:
    code: str
    region: str = "RM"
    amount: int = 100

app = Sereno()
app.event("tender.published", Tender, channels=[Pager(), in_app], category="tenders")
app.event("tender.closed", Tender, channels=["pager"], opt_in=True)
"""
SECRET = "whsec_do_not_show"  # noqa: S105 - not a real secret
ADDRESS = "pager-number-7777"


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """The path of an application, for the option -a."""
    file = tmp_path / "notifying_shop.py"
    file.write_text(SHOP)
    return str(file)


class NotifiedRecipients:
    """Recipients of one event whose pagers have different results."""

    def __init__(self, url: str) -> None:
        self.url = url
        asyncio.run(self._notify())

    async def _notify(self) -> None:
        app, pager = Sereno(self.url), Pager()
        pager.outcomes = {
            "fails": Failed("too_big", "4 MB"),
            "bad": Invalid("NotRegistered"),
            "late": Retryable("busy"),
        }
        published = app.event("tender.published", Tender, channels=[pager], category="tenders")
        address = {"address": ADDRESS, "secrets": [SECRET]}
        await app.recipients.aupsert("user:7", {"pager": address}, zone="Europe/Riga", locale="lv")
        for key in ("fails", "bad", "late"):
            await app.recipients.aupsert(key, {"pager": key})
        await app.recipients.aupsert("off", {"pager": "off"})
        await app.recipients.aprefer("off", category="tenders", wanted=False)
        recipients = ["user:7", "fails", "bad", "late", "off"]
        self.event = await published.anotify(Tender("T1"), subject="T1", to=recipients)
        await app.notifications.fanout.fan_out(self.event)
        await app.notifications.sender.deliver(1, "pager", "", -2)
        await app.aclose()


@pytest.fixture
def notified(database_url: str) -> NotifiedRecipients:
    return NotifiedRecipients(database_url)


def items(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)["items"]
    return found


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def test_the_states_of_the_option_are_those_of_deliveries() -> None:
    assert get_args(State) == STATES


# Events


def test_events_are_listed_and_shown(sereno: Command, notified: NotifiedRecipients) -> None:
    (line,) = items(sereno("event", "list", "--type", "tender.published", "--since", "1h", "-o", "json"))
    assert (line["id"], line["subject"], line["named"]) == (notified.event, "T1", 5)
    assert items(sereno("event", "list", "--type", "other", "-o", "json")) == []
    assert items(sereno("event", "list", "--tenant", "r42", "-o", "json")) == []
    assert items(sereno("event", "list", "--before", notified.event, "-o", "json")) == []
    assert sereno("event", "list", "--type", "other", "--fail-empty").exit_code == 7
    page = ok(sereno("event", "show", notified.event))
    assert '"code": "T1"' in page
    assert "5 named: bad, fails, late, off, user:7" in page
    assert "pager\tskipped\t1\tpreference off" in page
    whole = json.loads(ok(sereno("event", "show", notified.event, "-o", "json")))
    assert whole["event"]["payload"]["code"] == "T1"
    assert whole["total"] == {"value": 5, "exact": True}
    assert {line["state"] for line in whole["deliveries"]} == {"sent", "failed", "invalid", "pending", "skipped"}


def test_a_missing_record_exits_with_7_and_a_hint(sereno: Command, subtests: pytest.Subtests) -> None:
    for number in ["99", "0", str(2**70)]:
        with subtests.test(number=number):
            for noun in ("event", "delivery"):
                result = sereno(noun, "show", number)
                assert result.exit_code == 7
                assert f"sereno {noun} list" in result.stderr


def test_notify_writes_an_event_once(sereno: Command, shop: str, connection: psycopg.Connection) -> None:
    words = ("event", "notify", "tender.published", '{"code": "T9"}', "--subject", "T9", "--to", "user:7", "-a", shop)
    first, again = sereno(*words), sereno(*words)
    assert ok(first) == ok(again)
    assert "Created: to 1 named, by pager, in_app" in first.stderr
    assert "already" in again.stderr
    assert one(connection, "select count(*) from sereno.events where audience = '{user:7}'") == 1
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.fan_out'") == 1
    assert one(connection, "select count(*) from sereno.audit where action = 'event.notify'") == 2


def test_notify_refuses_invalid_arguments(sereno: Command, shop: str, connection: psycopg.Connection) -> None:
    unknown = sereno("event", "notify", "tender.publishd", "{}", "-a", shop)
    assert unknown.exit_code == 3
    assert "did you mean tender.published" in unknown.stderr
    assert "tender.closed" in unknown.stderr
    for payload in ("{}", "nonsense", "[1]", '{"code": 7}'):
        result = sereno("event", "notify", "tender.published", payload, "-a", shop)
        assert result.exit_code == 2, result.stderr
    bare = sereno("event", "notify", "tender.published", "{}")
    assert bare.exit_code == 3
    assert "-a module:attr" in bare.stderr
    assert one(connection, "select count(*) from sereno.events") == 0


# Deliveries


def test_deliveries_are_filtered(sereno: Command, notified: NotifiedRecipients) -> None:
    every = items(sereno("delivery", "list", "-o", "json"))
    assert [line["id"] for line in every] == sorted((line["id"] for line in every), reverse=True)
    assert len(every) == 5
    (failed,) = items(sereno("delivery", "list", "--state", "failed", "--channel", "pager", "-o", "json"))
    assert (failed["recipient"], failed["event"], failed["error_code"]) == ("fails", "tender.published", "too_big")
    (mine,) = items(sereno("delivery", "list", "--recipient", "user:7", "-o", "json"))
    assert mine["state"] == "sent"
    both = items(
        sereno("delivery", "list", "--event", notified.event, "--state", "sent", "--state", "skipped", "-o", "json")
    )
    assert {line["recipient"] for line in both} == {"user:7", "off"}
    (last,) = items(sereno("delivery", "list", "-n", "1", "--before", every[3]["id"], "-o", "json"))
    assert last["id"] == every[4]["id"]
    assert items(
        sereno("delivery", "list", "--event", notified.event, "--recipient", "off", "--since", "1h", "-o", "json")
    )
    assert items(sereno("delivery", "list", "--tenant", "r42", "-o", "json")) == []
    assert "refused; too_big: 4 MB" in ok(sereno("delivery", "list"))


def test_an_unknown_recipient_is_reported(sereno: Command) -> None:
    result = sereno("delivery", "list", "--recipient", "unknown")
    assert result.exit_code == 7
    assert "sereno recipient set" in result.stderr


def test_a_delivery_hides_its_address_and_never_shows_keys(sereno: Command, notified: NotifiedRecipients) -> None:
    (mine,) = items(sereno("delivery", "list", "--recipient", "user:7", "-o", "json"))
    for form in ("auto", "table", "json"):
        hidden = ok(sereno("delivery", "show", mine["id"], "-o", form))
        assert ADDRESS not in hidden
        assert "page…7777" in hidden
        shown = ok(sereno("delivery", "show", mine["id"], "--reveal", "-o", form))
        assert ADDRESS in shown
        assert SECRET not in hidden + shown
    assert "provider id" in ok(sereno("delivery", "show", mine["id"]))
    assert "this address is invalid: NotRegistered" in ok(sereno("delivery", "show", _id(sereno, "bad")))


def test_receipts_are_shown(sereno: Command, notified: NotifiedRecipients, connection: psycopg.Connection) -> None:
    number = _id(sereno, "user:7")
    connection.execute(
        "insert into sereno.receipts (channel, receipt_id, delivery_id, outcome) values ('pager', 'r1', %s, 'read')",
        [number],
    )
    assert "r1\tread" in ok(sereno("delivery", "show", number))


def test_deliveries_are_requeued_by_id(
    sereno: Command, notified: NotifiedRecipients, shop: str, connection: psycopg.Connection
) -> None:
    failed, sent = _id(sereno, "fails"), _id(sereno, "user:7")
    result = sereno("delivery", "requeue", failed, sent, "-a", shop)
    assert "Requeued: 1 delivery." in ok(result)
    assert f"or already delivered: {sent}" in result.stderr
    assert one(connection, "select state from sereno.deliveries where id = %s", failed) == "pending"
    assert one(connection, "select subject from sereno.audit where action = 'delivery.requeue'") == f"delivery {failed}"
    assert sereno("delivery", "requeue", failed, 2**70, "-a", shop).exit_code == 7


def test_requeue_by_filter_needs_yes(
    sereno: Command, notified: NotifiedRecipients, shop: str, connection: psycopg.Connection
) -> None:
    words = ("delivery", "requeue", "--channel", "pager", "-a", shop)
    assert "Would requeue 3 deliveries." in ok(sereno(*words, "--dry-run"))
    assert json.loads(ok(sereno(*words, "--dry-run", "-o", "json")))["by_state"] == {
        "skipped": 1,
        "invalid": 1,
        "failed": 1,
    }
    refused = sereno(*words)
    assert refused.exit_code == 8
    assert "3 deliveries" in refused.stderr
    assert one(connection, "select count(*) from sereno.deliveries where reason = 'requeued'") == 0
    assert "Requeued: 1 delivery." in ok(sereno(*words, "--state", "failed", "--yes"))
    assert "Requeued: 2 deliveries." in ok(sereno(*words, "--yes"))
    assert "No delivery matched" in ok(sereno(*words, "--state", "sent", "--yes"))
    assert sereno(*words, "--yes", "--fail-empty").exit_code == 7
    assert sereno("delivery", "requeue", "-a", shop).exit_code == 2
    assert sereno("delivery", "requeue", "1", "--state", "failed", "-a", shop).exit_code == 2


def test_old_failed_deliveries_are_listed_and_requeued(
    sereno: Command,
    notified: NotifiedRecipients,
    shop: str,
    connection: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = _id(sereno, "fails")
    for module, name in ((lists, "WINDOW"), (operations, "REQUEUE_WINDOW")):
        monkeypatch.setattr(module, name, 1)
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, due_at, state, sent_at) "
        "select event_id, recipient_id, 'newer', due_at, 'delivered', sereno.now() from sereno.deliveries"
    )
    words = ("--state", "failed", "--channel", "pager")
    (listed,) = items(sereno("delivery", "list", *words, "-o", "json"))
    assert listed["id"] == failed
    assert "Would requeue 1 delivery." in ok(sereno("delivery", "requeue", *words, "--dry-run", "-a", shop))
    assert "Requeued: 1 delivery." in ok(sereno("delivery", "requeue", *words, "--yes", "-a", shop))


def _id(sereno: Command, recipient: str) -> int:
    (line,) = items(sereno("delivery", "list", "--recipient", recipient, "-o", "json"))
    return int(line["id"])


# Recipients


def test_a_recipient_is_created_changed_and_deleted(sereno: Command, connection: psycopg.Connection) -> None:
    words = ("--channel", "email=ana@example.lv", "--channel", "pager=a b", "--zone", "Europe/Riga", "--tenant", "r42")
    made = sereno("recipient", "set", "user:7", *words)
    assert "user:7 is reached by email, pager." in made.stderr, made.stderr
    ok(
        sereno(
            "recipient", "prefer", "user:7", "--event", "a", "--on", "--quiet", "22:00-10:00 fri,sat", "--tenant", "r42"
        )
    )
    ok(
        sereno(
            *("recipient", "prefer", "user:7", "--channel", "email", "--condition", '{"region": "RM"}'),
            *("--digest", "1h", "--tenant", "r42"),
        )
    )
    ok(sereno("recipient", "prefer", "--default", "--category", "news", "--off", "--tenant", "r42"))
    (line,) = items(sereno("recipient", "list", "user:*", "--tenant", "r42", "-o", "json"))
    assert line["channels"] == ["email", "pager"]
    assert items(sereno("recipient", "list", "--tenant", "other", "-o", "json")) == []
    page = ok(sereno("recipient", "show", "user:7", "--tenant", "r42"))
    assert "ana@example.lv" not in page
    assert "own\tevent a\ton\t\t22:00-10:00 friday,saturday" in page
    assert 'own\tchannel email\t\t{"region": "RM"}\t\t1 h' in page
    assert "default\tcategory news\toff" in page
    assert "ana@example.lv" in ok(sereno("recipient", "show", "user:7", "--tenant", "r42", "--reveal", "-o", "json"))
    gone = sereno("recipient", "unsubscribe", "user:7", "email", "ana@example.lv", "--tenant", "r42")
    assert "ana@example.lv" not in ok(gone) + gone.stderr
    assert one(connection, "select state from sereno.addresses where channel = 'email'") == "unsubscribed"
    again = sereno("recipient", "set", "user:7", *words)
    assert "stays unsubscribed" in again.stderr
    refused = sereno("recipient", "delete", "user:7", "--tenant", "r42")
    assert refused.exit_code == 8
    assert "addresses (2), preferences (2)" in refused.stderr
    ok(sereno("recipient", "delete", "user:7", "--tenant", "r42", "--yes"))
    assert sereno("recipient", "show", "user:7", "--tenant", "r42").exit_code == 7
    assert "ana@example.lv" not in str(connection.execute("select detail from sereno.audit").fetchall())


def test_invalid_recipients_and_preferences_are_refused(
    sereno: Command, shop: str, connection: psycopg.Connection
) -> None:
    assert sereno("recipient", "set", "user:7", "--channel", "email").exit_code == 2
    assert sereno("recipient", "set", "user:7", "--zone", "Europe/Nowhere").exit_code == 2
    spaced = sereno("recipient", "set", "user:7", "--channel", "pager=a b", "-a", shop)
    assert spaced.exit_code == 2
    assert "no spaces" in spaced.stderr
    assert one(connection, "select count(*) from sereno.recipients") == 0
    undeclared = sereno("recipient", "set", "user:7", "--channel", "fax=1", "-a", shop)
    assert "Not declared by this application: fax" in undeclared.stderr
    for words in (
        ["user:7"],
        ["user:7", "--default", "--on"],
        ["--on"],
        ["user:7", "--condition", "{"],
        ["user:7", "--condition", "[]"],
        ["user:7", "--quiet", "22:00"],
        ["user:7", "--quiet", "25:00-08:00"],
        ["user:7", "--digest", "8d"],
        ["user:7", "--digest", "1h", "--clear", "digest"],
        ["user:7", "--quiet", "22:00-08:00 someday"],
    ):
        assert sereno("recipient", "prefer", *words).exit_code == 2, words
    assert one(connection, "select count(*) from sereno.preferences") == 0
    for words in (["prefer", "unknown", "--on"], ["delete", "unknown"], ["unsubscribe", "unknown", "email", "a"]):
        assert sereno("recipient", *words).exit_code == 7, words
    wrong = sereno("recipient", "unsubscribe", "user:7", "fax", "2")
    assert wrong.exit_code == 2
    assert "known addresses: fax …" in wrong.stderr


def test_prefer_changes_only_given_options_and_clear_removes_them(
    sereno: Command, connection: psycopg.Connection
) -> None:
    ok(sereno("recipient", "set", "user:7"))
    prefer = ("recipient", "prefer", "user:7", "--event", "a")
    stored = "select array[wanted::text, filter::text, quiet::text] from sereno.preferences"
    ok(sereno(*prefer, "--off", "--condition", '{"region": "RM"}'))
    ok(sereno(*prefer, "--quiet", "22:00-08:00"))
    span = '[{"end": "08:00", "days": null, "start": "22:00"}]'
    assert one(connection, stored) == ["false", '{"region": "RM"}', span]
    ok(sereno(*prefer, "--on", "--clear", "condition"))
    assert one(connection, stored) == ["true", None, span]
    assert sereno(*prefer, "--on", "--clear", "wanted").exit_code == 2
    assert sereno(*prefer, "--clear", "event").exit_code == 2
    ok(sereno(*prefer, "--clear", "wanted", "--clear", "quiet"))
    assert one(connection, "select count(*) from sereno.preferences") == 0


def test_an_old_address_can_be_unsubscribed(sereno: Command, shop: str, connection: psycopg.Connection) -> None:
    ok(sereno("recipient", "set", "user:7", "--channel", "pager=a b"))
    ok(sereno("recipient", "unsubscribe", "user:7", "pager", "a b", "-a", shop))
    assert one(connection, "select state from sereno.addresses") == "unsubscribed"


# Channels


def test_channels_are_listed_paused_and_resumed(
    sereno: Command, notified: NotifiedRecipients, shop: str, connection: psycopg.Connection
) -> None:
    (pager,) = items(sereno("channel", "list", "-o", "json"))
    assert (pager["pending"]["value"], pager["sent"], pager["failed"]) == (1, 1, 2)
    known = items(sereno("channel", "list", "-a", shop, "-o", "json"))
    assert [line["channel"] for line in known] == ["in_app", "pager"]
    assert sereno("channel", "pause", "pager").exit_code == 2
    assert "is paused" in sereno("channel", "pause", "pager", "--reason", "they are down").stderr
    assert "already" in sereno("channel", "pause", "pager", "--reason", "again").stderr
    assert ": they are down" in ok(sereno("channel", "list"))
    assert one(connection, "select reason from sereno.channel_pauses") == "they are down"
    assert sereno("channel", "resume", "pager").exit_code == 3
    jobs = "select count(*) from sereno.jobs where task = 'sereno.deliver'"
    before = one(connection, jobs)
    assert "was not paused" in sereno("channel", "resume", "pager", "--account", "r42", "-a", shop).stderr
    resumed = sereno("channel", "resume", "pager", "-a", shop)
    assert "is resumed" in resumed.stderr, resumed.stderr
    assert one(connection, jobs) > before
    assert "was not paused" in sereno("channel", "resume", "pager", "-a", shop).stderr
    actions = [row[0] for row in connection.execute("select action from sereno.audit order by id")]
    assert actions == ["channel.pause", "channel.resume"]


# Why


def test_why_with_two_arguments_is_about_a_recipient(sereno: Command, notified: NotifiedRecipients, shop: str) -> None:
    explanation = ok(sereno("why", "user:7", "tender.published"))
    assert f"Event {notified.event} (T1)" in explanation
    assert "by pager to page…7777: the provider accepted it" in explanation
    found = json.loads(ok(sereno("why", "off", "tender.published", "-o", "json")))
    assert found["event"] == "tender.published"
    assert "preference off, by the preference of off for category tenders" in found["why"][0]
    for words, sentence in (
        (["user:7", "tender.publishd"], "did you mean tender.published"),
        (["user:77", "tender.published"], "There is no recipient user:77"),
    ):
        unknown = sereno("why", *words, "-a", shop)
        assert (unknown.exit_code, sentence in unknown.stdout) == (7, True), unknown.stdout
    assert "which is opt-in" in ok(sereno("why", "user:7", "tender.closed", "-a", shop))
    wrong = sereno("why", "user:7")
    assert wrong.exit_code == 2
    assert "sereno why user:7 tender.published" in wrong.stderr


def test_control_characters_of_recipients_are_not_printed(sereno: Command, connection: psycopg.Connection) -> None:
    evil = "a\x1b[2Jb"
    ok(sereno("recipient", "set", evil, "--channel", f"pager={evil}"))
    connection.execute("update sereno.addresses set reason = %s, state = 'invalid'", [evil])
    for words in (["recipient", "list"], ["recipient", "show", evil, "--reveal"], ["channel", "list"]):
        for form in ("auto", "table"):
            assert "\x1b" not in ok(sereno(*words, "-o", form)), words


# Cancel


def test_an_event_is_cancelled(sereno: Command, notified: NotifiedRecipients, connection: psycopg.Connection) -> None:
    cancelled = sereno("event", "cancel", str(notified.event), "-o", "table")
    assert "Cancelled: 3 of 5 deliveries were sent; 1 are skipped." in ok(cancelled) + cancelled.stderr
    again = json.loads(ok(sereno("event", "cancel", str(notified.event), "-o", "json")))
    assert (again["changed"], again["sent"], again["unsent"]) == (False, 3, 1)
    (line,) = items(sereno("event", "list", "--type", "tender.published", "-o", "json"))
    assert line["cancelled_at"] is not None
    assert "cancelled" in ok(sereno("event", "show", str(notified.event), "-o", "table"))
    assert sereno("event", "cancel", "999").exit_code == 7
    assert one(connection, "select count(*) from sereno.audit where action = 'event.cancel'") == 1

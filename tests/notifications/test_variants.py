"""Variants of a message: who gets which one, and the outcomes of each."""

from typing import Any

import msgspec
import psycopg
import pytest

from sereno import Content, Digest, Recipient, Sereno, in_app
from sereno.channels.outcome import Failed
from sereno.database.statement import run
from sereno.errors import ConfigurationError
from sereno.notifications import event_types
from sereno.notifications.deliveries.send_jobs import ONCE
from sereno.notifications.templates import operations as templates
from sereno.notifications.variants import variant_of, variants
from tests.facts import one
from tests.notifications.conftest import Pager, Tender

Connection = psycopg.Connection[Any]


def test_variants_are_dealt_by_weight_and_alike_in_python_and_sql(connection: Connection) -> None:
    of = variants("newsletter", {"long": 3, "short": 1})
    assert of == variants("newsletter", {"short": 0.25, "long": 0.75})
    ids = [*range(1, 4001), 2**63 - 1]
    found = [variant_of(of, number) for number in ids]
    dealt = one(
        connection,
        "select array_agg(sereno.variant_of(%s::jsonb, id) order by place) "
        "from unnest(%s::bigint[]) with ordinality as n(id, place)",
        msgspec.json.encode(of).decode(),
        ids,
    )
    assert dealt == found
    assert 0.2 < found.count("short") / len(found) < 0.3
    # New names are dealt anew: the recipients of one variant do not stay together.
    later = variants("newsletter", {"long": 1, "tiny": 1})
    both = [variant_of(later, number) for number in ids if variant_of(of, number) == "short"]
    assert 0.4 < both.count("tiny") / len(both) < 0.6


def test_variants_are_checked_when_they_are_declared(app: Sereno, pager: Pager) -> None:
    options: list[dict[str, Any]] = [
        {"variants": {}},
        {"variants": {"a": 1}},
        {"variants": {"a": 1, "": 1}},
        {"variants": {"a": 1, "b c": 1}},
        {"variants": {"a": 1, "b": 0}},
        {"variants": {"a": 1, "b": float("nan")}},
        {"variants": {"a": 1, "b": True}},
        {"variants": {"a": 1, "b": 1}, "digest": Digest("15m")},
        {"variants": {f"v{number}": 1 for number in range(21)}},
    ]
    for place, each in enumerate(options):
        with pytest.raises(ConfigurationError):
            app.event(f"event{place}", Tender, channels=[pager], **each)
    plain = app.event("plain", Tender, channels=[pager])
    with pytest.raises(ConfigurationError, match="has no variant 'a'"):
        plain.template(variant="a")


async def test_each_recipient_gets_its_variant_and_outcomes_are_counted(
    app: Sereno, connection: Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager, in_app], variants={"long": 1, "short": 1})

    @published.template()
    def usual(tender: Tender, to: Recipient) -> Content:
        return Content(f"usual {to.variant}")

    @published.template(pager, variant="short")
    def short(tender: Tender, to: Recipient) -> Content:
        return Content("short")

    run(connection, event_types.declare(app.notifications.definitions.values(), app.channels.resolve))
    where = templates.place("tender.published", "in_app", "title")
    await app.database.arun(templates.change(where, "row {{ recipient.variant }}"))
    of = app.notifications.definitions["tender.published"].variants
    assert of is not None
    expected = {}
    for place in range(8):
        number = await app.recipients.aupsert(f"user:{place}", {"pager": f"a{place}"})
        expected[f"a{place}"] = "short" if variant_of(of, number) == "short" else "usual long"
    assert set(expected.values()) == {"short", "usual long"}
    pager.outcomes = {"a0": Failed("too_big")}
    event = await published.anotify(Tender("T1"))
    await app.notifications.fanout.fan_out(event)
    await app.notifications.sender.deliver(1, "pager", "", ONCE)
    await app.notifications.sender.deliver(2, "in_app", "", ONCE)
    assert {message.address: message.title for message in pager.sent} == expected
    first = [name for name in expected if expected[name] == expected["a0"]]
    (message,) = await app.inbox.alist("user:0")
    assert message.title == ("row short" if expected["a0"] == "short" else "row long")
    await app.inbox.amark("user:0", "read")
    tallies = {tally.variant: tally for tally in (await app.events.ashow(event)).variants}
    assert set(tallies) == {"long", "short"}
    mine = tallies["short" if expected["a0"] == "short" else "long"]
    counted = (mine.deliveries, mine.sent, mine.delivered, mine.read, mine.failed)
    assert counted == (2 * len(first), 2 * len(first) - 1, len(first), 1, 1)
    # An event from SQL has the variants of its declaration.
    other = one(connection, "select sereno.notify('tender.published', '{\"code\": \"T2\"}')")
    assert one(connection, "select count(distinct variants) from sereno.events where id = any(%s)", [event, other]) == 1

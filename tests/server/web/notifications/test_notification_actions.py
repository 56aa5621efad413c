"""The pages of notifications offer actions, and summarize figures."""

import asyncio
import re
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import expect

from sereno import QuietHours, Sereno
from sereno.notifications.deliveries import stats_queries
from sereno.notifications.deliveries.stats import DeliveryChange, DeliveryTally
from sereno.notifications.event import Content
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask, Served
from tests.server.web.html_reader import Read
from tests.server.web.notifications.notified_events import ADDRESS, HOSTILE, NotifiedEvents, notify
from tests.server.web.visit import DARK_DESKTOP, LIGHT_DESKTOP, LIGHT_PHONE, InspectPage, Visits


@pytest.fixture
def notified(app: Sereno, connection: psycopg.Connection) -> NotifiedEvents:
    return notify(app, connection)


@pytest.fixture
def figures(app: Sereno) -> None:
    """Delivery figures of one day."""
    tally = DeliveryTally()
    created = [("pending", None, 49_870), ("skipped", "preference off", 1900), ("skipped", "no active address", 334)]
    tally.count_created(
        DeliveryChange("pager", "tender.published", "r42", state, reason, count) for state, reason, count in created
    )
    ended = {"tried": 49_612, "sent": 49_400, "delivered": 48_990, "read": 31_204, "dead": 12, "bounced": 200}
    tally.count(
        DeliveryChange("pager", "tender.published", "r42", state, None, count) for state, count in ended.items()
    )
    pager = tally.channel("pager", "")
    pager.sent, pager.accepted, pager.throttled, pager.failed = 6000, 5800, 180, 20
    pager.trouble("DeviceNotRegistered", 17)
    pager.trouble(HOSTILE, 3)
    pager.receipt(12.0, 4000)
    app.database.run(stats_queries.add(tally))


@pytest.mark.slow
@pytest.mark.usefixtures("figures")
def test_the_headline_summarizes_the_figures(read: Read, notified: NotifiedEvents, ask: Ask) -> None:
    page = read("notifications").text
    assert (
        "49,612 of 52,104 deliveries were sent in the last 24 hours; 2,234 were skipped, "
        "mostly because people do not want it." in page
    )
    assert "deliveries?state=skipped" in page
    assert "DeviceNotRegistered" in page
    assert "<img" not in page
    assert "DeviceNotRegistered" not in read("notifications", whose="r42").text, (
        "figures of a provider are for operators only"
    )
    assert "2,234 were skipped." in read("notifications", whose="r42").text
    assert "No deliveries" in read("notifications", whose="b").text
    assert "No deliveries" in read("notifications", type="alarm").text
    ask("operator").post("/channels/pager/pause", json={"reason": "a provider outage"})
    paused = read("notifications", "operator").text
    assert "a provider outage" in paused
    assert "POST channels/pager/resume" in paused


@pytest.mark.slow
def test_an_event_is_cancelled_on_its_page(app: Sereno, read: Read, ask: Ask) -> None:
    app.event("letter", Tender, channels=["in_app"], variants={"long": 1, "short": 1})
    app.recipients.upsert("ada", tenant="r42")
    app.topics.subscribe(HOSTILE, "ada", tenant="r42")
    event = app.notifications.event("letter").notify(Tender("T1"), to=f"topic:{HOSTILE}", tenant="r42", rate=0.5)
    asyncio.run(_fan_out(app, event))
    page = read("event", "operator", id=event)
    assert f"POST events/{event}/cancel" in page.text
    assert "0.5 a second" in page.text
    assert "By variant" in page.text
    assert "<img" not in page.text
    listed = read("notifications", "operator").text
    assert "<img" not in listed
    assert "&lt;span" not in listed
    assert f"POST events/{event}/cancel" not in read("event", id=event).text
    assert ask("operator").post(f"/events/{event}/cancel").json()["changed"] is True
    cancelled = read("event", "operator", id=event).text
    assert f"POST events/{event}/cancel" not in cancelled
    assert "cancelled" in cancelled


async def _fan_out(app: Sereno, event: int) -> None:
    await app.notifications.fanout.fan_out(event)
    await app.aclose()


@pytest.mark.slow
@pytest.mark.usefixtures("figures")
def test_the_overview_is_accessible(browse: Visits, inspect_page: InspectPage, notified: NotifiedEvents) -> None:
    page = browse("notifications")
    expect(page.locator("#active-channels .channel")).to_have_count(1)
    inspect_page(page, "notifications-figures", LIGHT_DESKTOP, DARK_DESKTOP, LIGHT_PHONE)


@pytest.mark.slow
def test_a_template_is_previewed_saved_and_restored(
    browse: Visits, inspect_page: InspectPage, app: Sereno, connection: psycopg.Connection
) -> None:
    browse.forgive("Failed to execute 'postMessage' on 'DOMWindow'")
    event = app.event("news", Tender, channels=[Pager()])
    event.notify(Tender("T7"), to="unknown")
    page = browse("template?event=news&channel=pager")
    page.locator("#source").fill("First {{ code }}")
    expect(page.frame_locator("iframe").locator("pre")).to_have_text("First T7")
    assert one(connection, "select count(*) from sereno.templates") == 0
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#template-versions .pill")).to_have_text("current")
    # The page was reloaded: it does not react to clicks before its scripts are loaded.
    expect(page.locator("html[data-ready]")).to_have_count(1)
    page.locator("#source").fill("Second")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#template-versions li")).to_have_count(2)
    page.locator("#template-versions summary").click()
    inspect_page(page, "template-versions")
    page.get_by_role("button", name="Restore this version").click()
    page.locator("#ask [value=yes]").click()
    expect(page.locator("#source")).to_have_value("First {{ code }}")
    assert one(connection, "select source from sereno.templates") == "First {{ code }}"


@pytest.mark.slow
def test_a_channel_is_paused_and_resumed(
    browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    page = browse("channels", "operator")
    card = page.get_by_label("pager", exact=True)
    card.locator("summary").click()
    card.get_by_label("reason").fill("the provider is down")
    card.get_by_role("button", name="Pause").click()
    page.locator("#ask [value=yes]").click()
    expect(page.locator("h1")).to_contain_text("pager is paused")
    assert one(connection, "select reason from sereno.channel_pauses") == "the provider is down"
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("h1")).to_contain_text("all of them work")


def test_channels_show_their_callback_url(read: Read, ask: Ask, served: Served, notified: NotifiedEvents) -> None:
    page = read("channels", "operator").text
    assert f"{served.url}/api/v1/callbacks/pager" in page
    ask("operator").post("/channels/pager/pause", json={"reason": HOSTILE})
    page = read("channels", "operator").text
    assert "pager is paused" in page
    assert "<img" not in page
    assert "POST channels/pager/resume" in page


@pytest.mark.slow
def test_previews_are_sandboxed(read: Read, ask: Ask, served: Served, notified: NotifiedEvents) -> None:
    admin = ask("admin")
    for part, source in (
        ("title", "About {{ code }}"),
        ("body", "one\ntwo"),
        ("html", "<b>{{ code }}</b><script>x</script>"),
    ):
        assert admin.put(f"/templates/tender.published/pager/{part}", json={"source": source}).is_success
    assert admin.put("/templates/tender.published/pager/body", json={"source": "one\nthree"}).is_success
    assert "One message has a template; changed here: 1." in read("templates").text
    where = {"event": "tender.published", "channel": "pager"}
    page = read("template", "admin", **where)
    assert "one\nthree</textarea>" in page.text
    assert '<span class="minus">-two</span>' in page.text
    assert "&#34;source&#34;: &#34;one\\ntwo&#34;" in page.text, "the previous version can be restored"
    preview = read("template-preview", **where)
    assert preview.headers["content-security-policy"].startswith(
        "sandbox; default-src 'none'; style-src 'unsafe-inline'"
    )
    assert "<h1>About T" in preview.text
    assert "ana@shop.example" not in preview.text
    assert "<b>T2</b><script>" in preview.text, "the email is unchanged; the policy prevents its scripts from running"
    assert read("template", event="x y", channel="pager").status_code == 422
    draft = httpx.post(
        f"{served.url}/template-preview",
        params=where,
        data={"source": "draft {{ code }}"},
        headers=dict(admin.headers),
        timeout=30,
    )
    assert "<pre>draft T2</pre>" in draft.text
    broken = httpx.post(
        f"{served.url}/template-preview",
        params=where,
        data={"source": "{{ nope("},
        headers=dict(admin.headers),
        timeout=30,
    )
    assert 'class="wrong"' in broken.text
    viewer = dict(ask("operator").headers)
    assert httpx.post(f"{served.url}/template-preview", params=where, headers=viewer, timeout=30).status_code == 403


@pytest.mark.slow
def test_the_size_is_shown_relative_to_the_providers_limit(app: Sereno, read: Read) -> None:
    class Small(Pager):
        name = "small"
        largest = 10

    event = app.event("news", Tender, channels=[Small()])

    @event.template()
    def content(tender: Tender, _: Any) -> Content:
        return Content(tender.code)

    event.notify(Tender("twelve bytes"), to="unknown")
    page = read("template-preview", event="news", channel="small").text
    assert '<meter min="0" max="10" high="9" value="12"' in page
    assert "12 of 10 bytes" in page


@pytest.mark.slow
@pytest.mark.quick
def test_a_delivery_is_requeued(browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection) -> None:
    number = notified.deliveries["fails pager"]
    page = browse(f"deliveries?state=failed,dead&delivery={number}", "operator")
    page.locator(".drawer").get_by_role("button", name="Send again").click()
    page.locator("#ask [value=yes]").click()
    expect(page.locator("#delivery-state .pill").first).to_have_text("pending")
    assert one(connection, "select state from sereno.deliveries where id = %s", number) == "pending"
    assert one(connection, "select count(*) from sereno.audit where action = 'delivery.requeue'") == 1


@pytest.mark.slow
def test_a_recipient_is_deleted(browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection) -> None:
    page = browse("recipient?key=off", "admin")
    page.get_by_role("button", name="Delete").click()
    page.locator("#ask [value=yes]").click()
    expect(page).to_have_url(re.compile("/recipients$"))
    assert one(connection, "select count(*) from sereno.recipients where key = 'off'") == 0


@pytest.mark.slow
def test_an_address_is_revealed_and_audited(
    browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    page = browse("recipient?key=ana", "operator")
    page.get_by_role("button", name="Reveal").click()
    expect(page.locator("[data-address]")).to_have_text(ADDRESS)
    assert one(connection, "select count(*) from sereno.audit where action = 'recipient.reveal'") == 1


@pytest.mark.slow
def test_quiet_hours_of_one_channel_are_shown(read: Read, app: Sereno) -> None:
    app.recipients.upsert("ada", tenant="r42")
    app.recipients.prefer("ada", tenant="r42", channel="pager", quiet=QuietHours("23:00", "07:00"))
    text = read("recipient", key="ada", tenant="r42").text
    assert "pager 23:00\N{EN DASH}07:00" in text
    assert "at any time" not in text


@pytest.mark.slow
@pytest.mark.quick
def test_preferences_and_quiet_hours_are_changed(
    browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    page = browse("recipient?key=off", "admin")
    page.get_by_label("tender.published by pager is off; toggle it").click()
    expect(page.get_by_label("tender.published by pager is on; toggle it")).to_be_visible()
    wanted = "select wanted from sereno.preferences where channel = 'pager'"
    assert one(connection, wanted) is True
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#quiet-now")).to_contain_text("22:00\N{EN DASH}08:00")

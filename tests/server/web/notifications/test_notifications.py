"""The pages of notifications show outcomes, reasons and recipients, and offer actions."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import unescape
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import Page, expect

from sereno import Sereno
from sereno.channels.contract import IN_APP
from sereno.channels.outcome import Failed
from sereno.notifications.deliveries import stats_queries
from sereno.notifications.deliveries.stats import DeliveryChange, DeliveryTally
from sereno.notifications.event import Content
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served
from tests.server.web.visit import Visits

InspectPage = Callable[[Page, str], None]
Get = Callable[..., httpx.Response]
HOSTILE = '<img src=x onerror="alert(1)">\'{{ 7*7 }}'
ADDRESS = "pager-of-ana-7777"


@dataclass
class NotifiedEvents:
    """An event for recipients without a tenant, and one for the tenant "r42" only."""

    event: int = 0
    theirs: int = 0
    deliveries: dict[str, int] = field(default_factory=dict)


@pytest.fixture
def notified(app: Sereno, connection: psycopg.Connection) -> NotifiedEvents:
    pager = Pager()
    pager.outcomes = {"pager-that-fails": Failed("too_big", f"ana@shop.example {HOSTILE}")}
    published = app.event("tender.published", Tender, channels=[pager, IN_APP], category="tenders")
    app.event("alarm", Tender, channels=[pager], critical=True)
    app.event("digest", Tender, channels=[pager], opt_in=True, category="tenders")
    app.recipients.upsert("ana", {"pager": ADDRESS}, zone="Europe/Riga", data={"email": "ana@shop.example"})
    app.recipients.upsert("fails", {"pager": "pager-that-fails"})
    app.recipients.upsert("off", {"pager": "pager-of-off"})
    app.recipients.prefer("off", event="tender.published", wanted=False)
    app.recipients.upsert(HOSTILE, {"pager": "pager-of-r42"}, tenant="r42")
    made = NotifiedEvents()
    tender = Tender("T1 ana@shop.example")
    made.event = published.notify(tender, to=["ana", "fails", "off"], subject=HOSTILE)
    made.theirs = published.notify(Tender("T2"), to=HOSTILE, subject="s2", tenant="r42")
    asyncio.run(_send(app, made))
    rows = connection.execute(
        "select r.key || ' ' || d.channel, d.id "
        "from sereno.deliveries d join sereno.recipients r on r.id = recipient_id"
    )
    made.deliveries = dict(rows.fetchall())
    return made


async def _send(app: Sereno, made: NotifiedEvents) -> None:
    """Send due deliveries directly, because no worker runs."""
    for number in (made.event, made.theirs):
        await app.notifications.fanout.fan_out(number)
    await app.notifications.sender.deliver(1, "pager", "", -2)
    await app.database.aclose()


@pytest.fixture
def get(ask: Ask, served: Served) -> Get:
    """Get a page without a browser."""

    def page(path: str, role: str = "viewer", of: str | None = None, **params: Any) -> httpx.Response:
        headers = {"Authorization": ask(role, of).headers["Authorization"]}
        options: dict[str, Any] = {"verify": NO_CERTIFICATES, "trust_env": False, "timeout": 30}
        return httpx.get(f"{served.url}/{path}", params=params, headers=headers, **options)

    return page


def _ids(page: str) -> set[int]:
    return {int(found) for found in re.findall(r'data-focus="delivery (\d+)"', page)}


PATHS = ("notifications", "deliveries", "recipients", "preferences", "templates", "channels")


def test_empty_pages_say_how_to_begin(get: Get) -> None:
    for path in PATHS:
        answer = get(path)
        assert answer.status_code == 200, path
        # The inbox always exists.
        assert ('class="nothing"' in answer.text) == (path != "channels"), path
    assert "No deliveries in the last 24 hours." in get("notifications").text


def test_the_overview_shows_outcomes(get: Get, notified: NotifiedEvents) -> None:
    page = get("notifications").text
    assert f"event?id={notified.event}" in page
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert get("notifications", type="alarm").text.count('data-focus="event ') == 0
    assert f"event?id={notified.event}" not in get("notifications", tenant="r42").text
    assert get("notifications", range="7d", before="x").status_code == 200


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


@pytest.mark.usefixtures("figures")
def test_the_headline_summarizes_the_figures(get: Get, notified: NotifiedEvents, ask: Ask) -> None:
    thin = "\N{NARROW NO-BREAK SPACE}"
    page = get("notifications").text
    assert (
        f"49{thin}612 of 52{thin}104 deliveries were sent in the last 24 hours; 2{thin}234 were skipped, "
        "mostly because people do not want it." in page
    )
    assert "deliveries?state=skipped" in page
    assert "DeviceNotRegistered" in page
    assert "<img" not in page
    assert "DeviceNotRegistered" not in get("notifications", of="r42").text, (
        "figures of a provider are for operators only"
    )
    assert f"2{thin}234 were skipped." in get("notifications", of="r42").text
    assert "No deliveries" in get("notifications", of="b").text
    assert "No deliveries" in get("notifications", type="alarm").text
    ask("operator").post("/channels/pager/pause", json={"reason": "a provider outage"})
    paused = get("notifications", "operator").text
    assert "a provider outage" in paused
    assert "POST channels/pager/resume" in paused


@pytest.mark.usefixtures("figures")
def test_the_overview_is_accessible(browse: Visits, inspect_page: InspectPage, notified: NotifiedEvents) -> None:
    for dark, width in ((False, 1380), (True, 1380), (False, 375)):
        page = browse("notifications", dark=dark, width=width)
        expect(page.locator("#active-channels .channel")).to_have_count(1)
        inspect_page(page, "notifications-figures")


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
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("#source")).to_have_value("First {{ code }}")
    assert one(connection, "select source from sereno.templates") == "First {{ code }}"


def test_a_channel_is_paused_and_resumed(
    browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    page = browse("channels", "operator")
    card = page.get_by_label("pager", exact=True)
    card.locator("summary").click()
    card.get_by_label("reason").fill("the provider is down")
    card.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("h1")).to_contain_text("pager is paused")
    assert one(connection, "select reason from sereno.channel_pauses") == "the provider is down"
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("h1")).to_contain_text("all of them work")


def test_the_filter_of_deliveries_is_in_the_query(get: Get, notified: NotifiedEvents) -> None:
    mine = notified.deliveries
    assert _ids(get("deliveries").text) == set(mine.values())
    assert _ids(get("deliveries", state="failed,dead").text) == {mine["fails pager"]}
    assert _ids(get("deliveries", recipient="ana", channel="pager").text) == {mine["ana pager"]}
    assert _ids(get("deliveries", subject=HOSTILE, state="skipped").text) == {mine["off pager"], mine["off in_app"]}
    assert _ids(get("deliveries", event=notified.theirs).text) == {mine[f"{HOSTILE} pager"], mine[f"{HOSTILE} in_app"]}
    assert "There is no such recipient." in get("deliveries", recipient="unknown").text
    assert "No delivery matches." in get("deliveries", type="alarm").text


@pytest.mark.parametrize(
    "params", [{"delivery": "x"}, {"delivery": "9" * 30}, {"before": "-1"}, {"state": "lost"}, {"event": "²"}]
)
def test_invalid_filters_of_deliveries_are_ignored(get: Get, notified: NotifiedEvents, params: dict[str, str]) -> None:
    assert get("deliveries", **params).status_code == 200


def test_a_delivery_is_shown_with_an_explanation(get: Get, notified: NotifiedEvents) -> None:
    page = get("deliveries", delivery=notified.deliveries["fails pager"]).text
    assert "it failed permanently" in page
    assert "too_big" in page
    assert "<img" not in page
    assert "ana@shop.example" not in page
    skipped = get("deliveries", delivery=notified.deliveries["off pager"]).text
    assert "nothing was sent: preference off, by the preference of off for event tender.published" in skipped
    assert "data-do" not in page, "a viewer changes nothing"
    assert "POST deliveries/requeue" in get("deliveries", "operator", delivery=notified.deliveries["fails pager"]).text


def test_addresses_are_masked(get: Get, notified: NotifiedEvents) -> None:
    for path, params in (
        ("deliveries", {"delivery": str(notified.deliveries["ana pager"])}),
        ("recipient", {"key": "ana"}),
        ("event", {"id": str(notified.event)}),
        ("recipient", {"key": "ana", "why": "tender.published"}),
    ):
        page = get(path, "admin", **params)
        assert page.status_code == 200
        assert ADDRESS not in page.text
        assert "ana@shop.example" not in page.text


def test_an_event_shows_its_funnel(get: Get, notified: NotifiedEvents) -> None:
    page = get("event", id=notified.event)
    assert "tender.published:" in page.text
    assert f"deliveries?event={notified.event}&amp;state=failed&amp;channel=pager" in page.text
    assert f"trace?id=event%3A{notified.event}" in page.text
    assert get("event", id=999_999).status_code == 404
    assert get("event", id="x").status_code == 404


def test_a_recipients_page_explains_why_they_were_notified_or_not(get: Get, notified: NotifiedEvents) -> None:
    by_kind = get("recipient", key="off", why="tender.published").text
    assert "nothing was sent: preference off" in by_kind
    by_number = get("recipient", key="off", why=notified.event).text
    assert "nothing was sent: preference off" in by_number
    assert "There is no event 999999 for them." in get("recipient", key="off", why=999_999).text
    outlook = get("recipient", key="ana", why="alarm").text
    assert "If it happened now, by pager: it would be sent immediately, it is critical." in outlook
    assert get("recipient", key="unknown").status_code == 404


def test_a_tenant_sees_no_notifications_of_another(get: Get, notified: NotifiedEvents) -> None:
    for path in ("notifications", "deliveries", "recipients", "preferences"):
        page = get(path, "admin", of="b")
        assert page.status_code == 200, path
        assert "T1" not in page.text
        assert "&lt;img" not in page.text
        assert get(path, "admin", of="b", tenant="r42").status_code == 404
    for path in ("templates", "template", "template-preview", "channels"):
        assert get(path, "admin", of="b").status_code == 403
    assert get("event", "admin", of="b", id=notified.theirs).status_code == 404
    assert get("recipient", "admin", of="b", key=HOSTILE).status_code == 404
    foreign = get("deliveries", "admin", of="b", delivery=notified.deliveries["ana pager"])
    assert "or you have no access to it" in foreign.text
    assert "tender.published ·" not in foreign.text
    own = get("recipient", "viewer", of="r42", key=HOSTILE, why=notified.event).text
    assert f"There is no event {notified.event} for them." in own
    assert get("event", "viewer", of="r42", id=notified.theirs).status_code == 200


def test_preferences_are_shown_as_a_matrix(get: Get, notified: NotifiedEvents) -> None:
    page = get("recipient", "admin", key="off").text
    assert "their own preference for tender.published" in page
    assert "always sent: it is critical" in page
    assert "opt-in only" in page
    assert "data-do" not in get("recipient", "viewer", key="off").text
    defaults = get("preferences", "admin").text
    assert "Event types: 3; always sent: 1; opt-in: 1." in defaults


def test_channels_show_their_callback_url(get: Get, ask: Ask, served: Served, notified: NotifiedEvents) -> None:
    page = get("channels", "operator").text
    assert f"{served.url}/api/v1/callbacks/pager" in page
    ask("operator").post("/channels/pager/pause", json={"reason": HOSTILE})
    page = get("channels", "operator").text
    assert "pager is paused" in page
    assert "<img" not in page
    assert "POST channels/pager/resume" in page


def test_previews_are_sandboxed(get: Get, ask: Ask, served: Served, notified: NotifiedEvents) -> None:
    admin = ask("admin")
    for part, source in (
        ("title", "About {{ code }}"),
        ("body", "one\ntwo"),
        ("html", "<b>{{ code }}</b><script>x</script>"),
    ):
        assert admin.put(f"/templates/tender.published/pager/{part}", json={"source": source}).is_success
    assert admin.put("/templates/tender.published/pager/body", json={"source": "one\nthree"}).is_success
    assert "1 messages have templates; 1 of them were changed here." in get("templates").text
    where = {"event": "tender.published", "channel": "pager"}
    page = get("template", "admin", **where)
    assert "one\nthree</textarea>" in page.text
    assert '<span class="minus">-two</span>' in page.text
    assert "&#34;source&#34;: &#34;one\\ntwo&#34;" in page.text, "the previous version can be restored"
    preview = get("template-preview", **where)
    assert preview.headers["content-security-policy"].startswith(
        "sandbox; default-src 'none'; style-src 'unsafe-inline'"
    )
    assert "<h1>About T" in preview.text
    assert "ana@shop.example" not in preview.text
    assert "<b>T2</b><script>" in preview.text, "the email is unchanged; the policy prevents its scripts from running"
    assert get("template", event="x y", channel="pager").status_code == 422
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


def test_the_size_is_shown_relative_to_the_providers_limit(app: Sereno, get: Get) -> None:
    class Small(Pager):
        name = "small"
        largest = 10

    event = app.event("news", Tender, channels=[Small()])

    @event.template()
    def content(tender: Tender, _: Any) -> Content:
        return Content(tender.code)

    event.notify(Tender("twelve bytes"), to="unknown")
    page = get("template-preview", event="news", channel="small").text
    assert '<meter min="0" max="10" high="9" value="12"' in page
    assert "12 of 10 bytes" in page


def test_a_delivery_is_requeued(browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection) -> None:
    number = notified.deliveries["fails pager"]
    page = browse(f"deliveries?state=failed,dead&delivery={number}", "operator")
    page.locator(".drawer").get_by_role("button", name="Send again").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("#delivery-state .pill").first).to_have_text("pending")
    assert one(connection, "select state from sereno.deliveries where id = %s", number) == "pending"
    assert one(connection, "select count(*) from sereno.audit where action = 'delivery.requeue'") == 1


def test_all_that_match_are_requeued_by_the_filter_of_the_list(get: Get, ask: Ask, notified: NotifiedEvents) -> None:
    page = get("deliveries", "operator", channel="pager", type="tender.published").text
    found = re.search(r'data-wanted="([^"]*)"', page)
    assert found is not None
    wanted = json.loads(unescape(found[1]))
    dry = ask("operator").post("/deliveries/requeue", json={**wanted, "dry_run": True}).json()
    assert (dry["total"], dry["by_state"]) == (1, {"failed": 1})
    skipped = get("deliveries", "operator", state="skipped").text
    assert 'name="all"' not in skipped


def test_a_recipient_is_deleted(browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection) -> None:
    page = browse("recipient?key=off", "admin")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page).to_have_url(re.compile("/recipients$"))
    assert one(connection, "select count(*) from sereno.recipients where key = 'off'") == 0


def test_an_address_is_revealed_and_audited(
    browse: Visits, notified: NotifiedEvents, connection: psycopg.Connection
) -> None:
    page = browse("recipient?key=ana", "operator")
    page.get_by_role("button", name="Reveal").click()
    expect(page.locator("[data-address]")).to_have_text(ADDRESS)
    assert one(connection, "select count(*) from sereno.audit where action = 'recipient.reveal'") == 1


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


@pytest.mark.parametrize(("dark", "width"), [(False, 1380), (True, 375)])
def test_the_notification_pages_are_accessible(
    browse: Visits, inspect_page: InspectPage, notified: NotifiedEvents, dark: bool, width: int
) -> None:
    page = browse("notifications", dark=dark, width=width)
    # axe cannot inspect a sandboxed document.
    browse.forgive("Failed to execute 'postMessage' on 'DOMWindow'")
    for path in (
        "notifications",
        f"deliveries?delivery={notified.deliveries['fails pager']}",
        f"event?id={notified.event}",
        "recipients",
        "recipient?key=off&why=tender.published",
        "templates",
        "template?event=tender.published&channel=pager",
        "channels",
        "preferences",
    ):
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
        inspect_page(page, path.partition("?")[0])

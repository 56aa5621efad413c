"""`<sereno-inbox>` in a page of another origin with a strict Content-Security-Policy."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from playwright.sync_api import ConsoleMessage, Dialog, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from sereno import Sereno
from sereno.notifications.recipients.inbox_token import InboxReader, make_token
from sereno.server import asgi
from sereno.server.web.static_files import all_files
from tests.facts import one, until
from tests.server.api.conftest import Served
from tests.server.web.chromium import EMPTY, Chromium
from tests.server.web.running_server import running
from tests.server.web.visit import DARK_PHONE, LIGHT_PHONE, InspectPage

SECRET = "s" * 32
LOCALE: dict[str, Any] = {"locale": "en", "timezone_id": "UTC"}
HOSTILE = "<img src=x onerror=alert(1)>'\"&amp;\u202e"
STYLE = (
    ":root{color-scheme:light}@media (prefers-color-scheme:dark){:root{color-scheme:dark}}"
    "body{margin:0;font-family:sans-serif}header{display:flex;justify-content:end}"
)
HTML = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A shop</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/shop.css">
<script type="module" src="/received.js"></script>
<script type="module" src="{server}/inbox.js"></script><script type="module" src="/shop.js"></script></head>
<body><header><sereno-inbox server="{server}/" {attributes}></sereno-inbox></header><main><h1>A shop</h1>
<button id="other">Another</button></main></body></html>"""
# Loaded before the element, which may dispatch an event at once.
LISTENERS = """
window.received = [];
for (const name of ["sereno-open", "sereno-read", "sereno-unread", "sereno-signed-out"])
  document.addEventListener(name, (event) => {
    received.push([name, event.detail]);
    if (window.stay && name === "sereno-open") event.preventDefault();
  });
"""
SCRIPT = """
const inbox = document.querySelector("sereno-inbox");
if (!inbox.hasAttribute("token")) inbox.getToken = async () => (await fetch("/token")).text();
"""
# A mark takes effect at once; the test decides when the responses of the mark and of the list arrive.
LATE = """() => {
  const answered = new Promise((done) => (window.answer = done));
  const fetched = fetch;
  window.fetch = async (url, options) => {
    const answer = await fetched(url, options);
    if (/"read"|[?]limit=/.test(url + options?.body)) await answered;
    return answer;
  };
}"""


@dataclass
class Shop:
    """A server of another origin whose pages embed the inbox."""

    app: Sereno
    server: str
    database: psycopg.Connection
    chromium: Chromium
    url: str = ""
    attributes: str = ""
    tokens: list[str] = field(default_factory=list)
    given: int = 0
    opened: ExitStack = field(default_factory=ExitStack)
    problems: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def routes(self) -> Starlette:
        def page(_: Request) -> Response:
            policy = (
                f"default-src 'none'; script-src 'self' {self.server}/; connect-src 'self' {self.server}/; "
                "style-src 'self'; img-src 'self'; base-uri 'none'; require-trusted-types-for 'script'"
            )
            drawn = HTML.format(server=self.server, attributes=self.attributes)
            return Response(drawn, media_type="text/html", headers={"Content-Security-Policy": policy})

        def token(_: Request) -> Response:
            self.given += 1
            return PlainTextResponse(self.tokens.pop(0) if self.tokens else self.app.inbox.token("ada", tenant="a"))

        def text(content: str, kind: str) -> Callable[[Request], Response]:
            return lambda _: Response(content, media_type=kind)

        return Starlette(
            routes=[
                Route("/", page),
                Route("/token", token),
                Route("/received.js", text(LISTENERS, "text/javascript")),
                Route("/shop.js", text(SCRIPT, "text/javascript")),
                Route("/shop.css", text(STYLE, "text/css")),
                Route("/orders/7", text("<!doctype html><title>Order 7</title>", "text/html")),
                Route("/favicon.ico", text("", "image/x-icon")),
            ]
        )

    def put(self, title: str = "Paid", body: str = "", data: str = "{}", key: str = "ada") -> int:
        return int(
            one(
                self.database,
                "insert into sereno.inbox (recipient_id, delivery_id, event, title, body, data) "
                "select id, %s, 'order.paid', %s, %s, %s::jsonb from sereno.recipients "
                "where tenant = 'a' and key = %s returning inbox.id",
                next(self._numbers),
                title,
                body,
                data,
                key,
            )
        )

    def open(self) -> Page:
        page = self.chromium.open_page(dark=False, width=1000, height=800, **LOCALE)
        self.opened.callback(self.chromium.return_page, page, **LOCALE)
        listeners: dict[Any, Callable[[Any], None]] = {
            "console": self._logged,
            "pageerror": lambda error: self.problems.append(str(error)),
            "dialog": self._dismiss,
        }
        for event, listener in listeners.items():
            page.on(event, listener)
            self.opened.callback(page.remove_listener, event, listener)
        page.goto(f"{self.url}/")
        return page

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _dismiss(self, dialog: Dialog) -> None:
        self.problems.append(dialog.message)
        dialog.dismiss()


@pytest.fixture
def shop(app: Sereno, served: Served, connection: psycopg.Connection, running_chromium: Chromium) -> Iterator[Shop]:
    connection.autocommit = True
    made = Shop(app, served.url, connection, running_chromium)
    with running(made.routes()) as url, running_chromium.in_use(), made.opened:
        made.url = url
        app.override(secret=SECRET, inbox_origins=[url])
        for key in ("ada", "bob"):
            app.recipients.upsert(key, tenant="a")
        yield made
    assert made.problems == []


def reads(page: Page) -> list[Any]:
    return [detail for name, detail in page.evaluate("received") if name == "sereno-read"]


def bell(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


@pytest.mark.quick
def test_new_messages_appear_and_can_be_marked(shop: Shop) -> None:
    first = shop.put("Order 1", "It is paid.")
    page = shop.open()
    expect(bell(page, "Notifications, 1 unread")).to_be_visible()
    shop.put("Order 2")
    expect(bell(page, "Notifications, 2 unread")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("New notification, 2 unread")
    bell(page, "Notifications, 2 unread").click()
    rows = page.get_by_role("dialog", name="Notifications").get_by_role("listitem")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("It is paid.")
    expect(rows.nth(1).get_by_role("time")).to_have_text("now")
    shop.put("Order 3")
    expect(rows.first).to_contain_text("Order 3")
    page.get_by_role("button", name="Mark as read: Order 1").click()
    expect(bell(page, "Notifications, 2 unread")).to_be_visible()
    assert one(shop.database, "select read_at is not null from sereno.inbox where id = %s", first)
    page.get_by_role("button", name="Archive: Order 2").click()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Mark all as read").click()
    expect(bell(page, "Notifications")).to_be_visible()
    expect(page.get_by_role("button", name="Mark all as read")).to_be_hidden()
    assert one(shop.database, "select count(*) from sereno.inbox where read_at is null") == 0
    assert one(shop.database, "select count(*) from sereno.inbox where seen_at is null") == 0
    until(lambda: len(reads(page)) == 3)
    assert reads(page) == [{"ids": [first]}, {"ids": [first + 1]}, {"ids": None}]


@pytest.mark.slow
@pytest.mark.parametrize("button", ["Mark as read: Order 1", "Mark all as read"])
def test_an_event_of_the_stream_wins_over_an_older_response(shop: Shop, button: str) -> None:
    shop.put("Order 1")
    page = shop.open()
    bell(page, "Notifications, 1 unread").click()
    page.evaluate(LATE)
    page.get_by_role("button", name=button).click()
    expect(bell(page, "Notifications")).to_be_visible()
    shop.put("Order 2")
    expect(bell(page, "Notifications, 1 unread")).to_be_visible()
    assert reads(page) == []
    page.evaluate("answer()")
    until(lambda: len(reads(page)) == 1)
    expect(bell(page, "Notifications, 1 unread")).to_be_visible()


@pytest.mark.quick
def test_message_texts_are_never_executed(shop: Shop) -> None:
    shop.put(HOSTILE, HOSTILE, '{"url": "javascript:alert(2)"}')
    shop.put("data", "", '{"url": "data:text/html,<script>alert(3)</script>"}')
    shop.put("spaces", "", '{"url": " java\\nscript:alert(4)"}')
    shop.put("", "no title", '{"url": {"toString": 1}}')
    shop.put("elsewhere", "", '{"url": "https://example.com/x"}')
    shop.put("here", "", '{"url": "orders/7"}')
    page = shop.open()
    bell(page, "Notifications, 6 unread").click()
    rows = page.get_by_role("listitem")
    expect(rows).to_have_count(6)
    expect(rows.last.locator("p")).to_have_text(HOSTILE)
    assert page.locator("sereno-inbox img").count() == 0
    links = rows.get_by_role("link")
    assert [link.get_attribute("href") for link in links.all()] == [f"{shop.url}/orders/7", "https://example.com/x"]
    page.get_by_role("button", name="order.paid", exact=True).click()
    expect(bell(page, "Notifications, 5 unread")).to_be_visible()
    rows.last.locator(".title").click()
    expect(bell(page, "Notifications, 4 unread")).to_be_visible()


@pytest.mark.slow
def test_a_link_is_followed_and_marked_as_read_unless_prevented(shop: Shop) -> None:
    number = shop.put("Order 7", "", '{"url": "/orders/7"}')
    page = shop.open()
    page.evaluate("window.stay = true")
    bell(page, "Notifications, 1 unread").click()
    page.get_by_role("link", name="Order 7").click()
    expect(bell(page, "Notifications")).to_be_visible()
    opened = [detail for name, detail in page.evaluate("received") if name == "sereno-open"]
    expected = {"id": number, "event": "order.paid", "title": "Order 7", "data": {"url": "/orders/7"}}
    assert opened == [{**expected, "url": f"{shop.url}/orders/7"}]
    shop.put("Order 8", "", '{"url": "/orders/7"}')
    page.evaluate("window.stay = false")
    page.get_by_role("link", name="Order 8").click()
    expect(page).to_have_title("Order 7")
    until(lambda: one(shop.database, "select count(*) from sereno.inbox where read_at is null") == 0)


@pytest.mark.quick
def test_an_expired_token_is_renewed(shop: Shop) -> None:
    shop.put()
    ended = make_token(SECRET, InboxReader("a", "ada", 1_000_000))
    shop.tokens = [ended]
    page = shop.open()
    expect(bell(page, "Notifications, 1 unread")).to_be_visible()
    assert shop.given == 2
    shop.problems[:] = [problem for problem in shop.problems if "401" not in problem]
    assert page.evaluate("document.documentElement.outerHTML").count("sri_") == 0


@pytest.mark.slow
def test_the_page_gets_an_event_when_its_token_has_expired(shop: Shop) -> None:
    shop.put()
    ended, good = make_token(SECRET, InboxReader("a", "ada", 1_000_000)), shop.app.inbox.token("ada", tenant="a")
    shop.attributes = f'token="{ended}"'
    page = shop.open()
    until(lambda: "sereno-signed-out" in [name for name, _ in page.evaluate("received")])
    shop.problems[:] = [problem for problem in shop.problems if "401" not in problem]
    page.evaluate("(token) => document.querySelector('sereno-inbox').setAttribute('token', token)", good)
    expect(bell(page, "Notifications, 1 unread")).to_be_visible()


@pytest.mark.slow
def test_another_token_removes_the_messages_of_the_previous_user(shop: Shop) -> None:
    shop.put("For ada")
    shop.put("For bob", key="bob")
    shop.put("Again for bob", key="bob")
    ada, bob = (shop.app.inbox.token(key, tenant="a") for key in ("ada", "bob"))
    shop.attributes = f'token="{ada}"'
    page = shop.open()
    bell(page, "Notifications, 1 unread").click()
    expect(page.get_by_text("For ada")).to_be_visible()
    page.evaluate("(token) => document.querySelector('sereno-inbox').setAttribute('token', token)", bob)
    expect(bell(page, "Notifications, 2 unread")).to_be_visible()
    expect(page.get_by_text("Again for bob")).to_be_visible()
    expect(page.get_by_text("For ada")).to_have_count(0)


@pytest.mark.slow
def test_the_element_can_be_used_with_the_keyboard(shop: Shop) -> None:
    shop.put("Order 1")
    page = shop.open()
    ring = bell(page, "Notifications, 1 unread")
    expect(ring).to_have_attribute("aria-expanded", "false")
    ring.focus()
    page.keyboard.press("Enter")
    expect(ring).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_role("dialog")).to_be_focused()
    expect(page.get_by_role("listitem")).to_have_count(1)
    focused = []
    for _ in range(6):
        page.keyboard.press("Tab")
        focused.append(
            page.evaluate(
                "() => { const at = document.activeElement.shadowRoot.activeElement;"
                " return at.getAttribute('aria-label') ?? at.textContent }"
            )
        )
    assert focused == [
        "Mark all as read",
        "Close",
        "Order 1",
        "Mark as read: Order 1",
        "Archive: Order 1",
        "Mark all as read",
    ]
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Archive: Order 1")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(ring).to_be_focused()
    expect(ring).to_have_attribute("aria-expanded", "false")
    ring.click()
    page.locator("#other").click()
    expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.mark.slow
def test_a_long_inbox_comes_in_pages(shop: Shop) -> None:
    for number in range(1, 46):
        shop.put(f"Order {number}")
    page = shop.open()
    bell(page, "Notifications, 45 unread").click()
    rows = page.get_by_role("listitem")
    expect(rows).to_have_count(20)
    older = page.get_by_role("button", name="Show older")
    older.click()
    expect(rows).to_have_count(40)
    expect(page.get_by_role("button", name="Order 25", exact=True)).to_be_focused()
    shop.put("Order 46")
    expect(rows.first).to_contain_text("Order 46")
    expect(rows).to_have_count(41)
    older.click()
    expect(rows).to_have_count(46)
    expect(older).to_be_hidden()


@pytest.mark.slow
def test_the_element_uses_the_language_of_its_page(shop: Shop, subtests: pytest.Subtests) -> None:
    page = shop.open()
    for language, name, none in (
        ("es", "Notificaciones", "Todavía no hay nada."),
        ("pt-BR", "Notificações", "Ainda não há nada."),
        ("de", "Notifications", "Nothing here yet."),
    ):
        with subtests.test(language=language):
            shop.attributes = f'lang="{language}"'
            page.reload()
            bell(page, name).click()
            expect(page.get_by_text(none)).to_be_visible()


@pytest.mark.slow
def test_the_element_is_accessible(shop: Shop, inspect_page: InspectPage) -> None:
    shop.put("Your order 1042 is on its way", "It arrives between ten and noon.", '{"url": "/orders/7"}')
    shop.put("x" * 300, "y" * 300)
    page = shop.open()
    bell(page, "Notifications, 2 unread").click()
    expect(page.get_by_role("listitem")).to_have_count(2)
    inspect_page(page, "inbox-element", (False, 1000), (True, 1000), LIGHT_PHONE, DARK_PHONE)


@pytest.mark.slow
def test_the_element_works_where_the_server_is_mounted(shop: Shop) -> None:
    """The page has the same origin then, so no setting has to name it."""
    shop.app.override(inbox_origins=[])
    shop.put("Order 1")
    with running(Starlette(routes=[Mount("/tools/sereno", asgi(shop.app)), *shop.routes().routes])) as url:
        shop.url, shop.server = url, f"{url}/tools/sereno"
        page = shop.open()
        bell(page, "Notifications, 1 unread").click()
        page.get_by_role("button", name="Mark as read: Order 1").click()
        expect(bell(page, "Notifications")).to_be_visible()
        page.goto(EMPTY)


def test_the_script_is_small() -> None:
    assert len(all_files()["inbox.js"].packed) < 8_000

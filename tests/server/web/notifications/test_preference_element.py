"""`<sereno-preferences>` in a page of another origin with a strict Content-Security-Policy."""

import importlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pkgutil import iter_modules
from typing import Any

import psycopg
import pytest
from playwright.sync_api import ConsoleMessage, Dialog, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from sereno import Sereno, channels
from sereno.channels.contract import Channel
from sereno.notifications.recipients.preference_token import PreferenceOwner, make_token
from sereno.server import asgi
from sereno.server.web.messages import LANGUAGES, dictionary
from sereno.server.web.notifications.preference_view import CHANNELS
from sereno.server.web.static_files import all_files
from tests.facts import one, until
from tests.notifications.conftest import Tender
from tests.server.api.conftest import Served
from tests.server.web.chromium import EMPTY, Chromium
from tests.server.web.notifications.preference_pages import HOSTILE, SECRET, fill, preferences
from tests.server.web.running_server import running
from tests.server.web.visit import InspectPage

LOCALE: dict[str, Any] = {"locale": "en", "timezone_id": "UTC"}
STYLE = (
    ":root{color-scheme:light;background:#fff}body{margin:0;padding:16px;font-family:sans-serif}"
    "@media (prefers-color-scheme:dark){:root{color-scheme:dark;background:#14181f;color:#fff}}"
)
HTML = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A shop</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/shop.css">
<script type="module" src="/received.js"></script>
<script type="module" src="{server}/preferences.js"></script><script type="module" src="/shop.js"></script></head>
<body><main><h1>A shop</h1>
<sereno-preferences server="{server}/" {attributes}></sereno-preferences></main></body></html>"""
LISTENERS = """
window.received = [];
for (const name of ["sereno-preferences-saved", "sereno-signed-out"])
  document.addEventListener(name, (event) => received.push([name, event.detail]));
"""
SCRIPT = """
const element = document.querySelector("sereno-preferences");
if (!element.hasAttribute("token")) element.getToken = async () => (await fetch("/token")).text();
"""


@dataclass
class Shop:
    """A server of another origin whose pages embed the preferences."""

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
            return PlainTextResponse(self.tokens.pop(0) if self.tokens else self.token())

        def text(content: str, kind: str) -> Callable[[Request], Response]:
            return lambda _: Response(content, media_type=kind)

        return Starlette(
            routes=[
                Route("/", page),
                Route("/token", token),
                Route("/received.js", text(LISTENERS, "text/javascript")),
                Route("/shop.js", text(SCRIPT, "text/javascript")),
                Route("/shop.css", text(STYLE, "text/css")),
                Route("/favicon.ico", text("", "image/x-icon")),
            ]
        )

    def token(self, key: str = "ada") -> str:
        return self.app.recipients.preferences_token(key, tenant="a")

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

    def forgive(self, status: int) -> None:
        """Expect requests with this status."""
        self.problems[:] = [problem for problem in self.problems if f"status of {status}" not in problem]

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _dismiss(self, dialog: Dialog) -> None:
        self.problems.append(dialog.message)
        dialog.dismiss()


@pytest.fixture
def shop(app: Sereno, served: Served, connection: psycopg.Connection, running_chromium: Chromium) -> Iterator[Shop]:
    connection.autocommit = True
    fill(app)
    made = Shop(app, served.url, connection, running_chromium)
    with running(made.routes()) as url, running_chromium.in_use(), made.opened:
        made.url = url
        app.override(secret=SECRET, inbox_origins=[url])
        yield made
    assert made.problems == []


def box(page: Page, line: str, channel: str) -> Any:
    return page.get_by_role("group", name=line, exact=True).get_by_role("checkbox", name=channel)


@pytest.mark.quick
def test_a_recipient_changes_preferences_with_the_keyboard(shop: Shop) -> None:
    page = shop.open()
    mail = box(page, "Tenders", "E-mail")
    expect(mail).to_be_checked()
    mail.focus()
    page.keyboard.press("Space")
    # Beside the usual hours, which are still chosen.
    page.get_by_label("From").fill("22:00")
    page.get_by_label("To", exact=True).fill("07:00")
    page.get_by_role("checkbox", name="Sat").check()
    page.get_by_label("Time zone").select_option("Europe/Riga")
    page.get_by_label("How often Tenders").select_option("at once")
    page.get_by_role("checkbox", name="Never write to it again Pager").check()
    page.get_by_role("button", name="Save").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Saved")
    expect(page.get_by_role("button", name="Save")).to_be_focused()
    expect(mail).not_to_be_checked()
    assert preferences(shop.database) == [("tenders", None, "email", False)]
    assert one(shop.database, "select zone from sereno.recipients") == "Europe/Riga"
    assert one(shop.database, "select state from sereno.addresses where channel = 'pager'") == "unsubscribed"
    (number,) = shop.database.execute("select id from sereno.addresses where channel = 'pager'").fetchone() or (0,)
    saved = {
        "choices": [{"category": "tenders", "event": None, "channel": "email", "wanted": False}],
        "digests": [{"category": "tenders", "event": None, "digest": 0}],
        "quiet": [{"start": "22:00", "end": "07:00", "days": ["saturday"]}],
        "zone": "Europe/Riga",
        "stop": [number],
    }
    until(lambda: page.evaluate("received") == [["sereno-preferences-saved", saved]])
    expect(box(page, "Security", "E-mail always sent")).to_be_disabled()
    page.evaluate("document.querySelector('sereno-preferences').labels = {tenders: 'Public tenders', email: 'Mail'}")
    expect(box(page, "Public tenders", "Mail")).not_to_be_checked()
    expect(page.get_by_label("How often Public tenders")).to_have_value("0")
    # The usual hours again.
    page.get_by_role("radio", name="The usual ones").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    assert one(shop.database, "select count(*) from sereno.preferences where recipient_id is not null "
               "and channel is null and quiet is not null") == 0  # fmt: skip


@pytest.mark.slow
def test_another_time_and_different_times_of_channels_are_shown(shop: Shop) -> None:
    page = shop.open()
    often = page.get_by_label("How often Tenders")
    expect(often.locator("option:checked")).to_have_text("as usual: every 15 minutes")
    for channel, seconds, text in ((None, 7200, "every 2 h"), ("email", 0, "different times")):
        shop.app.recipients.prefer("ada", tenant="a", category="tenders", channel=channel, digest=seconds)
        page.reload()
        expect(often.locator("option:checked")).to_have_text(text)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    times = "select array_agg(digest_seconds order by id) from sereno.preferences where digest_seconds is not null"
    assert one(shop.database, times) == [7200, 0]
    often.select_option("as usual: every 15 minutes")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    expect(often).to_have_value("usual")
    assert one(shop.database, times) is None


@pytest.mark.quick
def test_names_are_never_executed(shop: Shop) -> None:
    shop.app.event("hostile", Tender, channels=["email"], category=HOSTILE)
    shop.attributes = f'token="{shop.token()}"'
    page = shop.open()
    expect(box(page, HOSTILE, "E-mail")).to_be_checked()
    assert page.locator("sereno-preferences img").count() == 0
    box(page, HOSTILE, "E-mail").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("Saved")
    assert preferences(shop.database) == [(HOSTILE, None, "email", False)]


@pytest.mark.slow
def test_an_expired_token_is_renewed_and_another_one_drops_what_was_shown(shop: Shop) -> None:
    shop.app.recipients.upsert("bob", tenant="a", zone="America/Lima")
    shop.tokens = [make_token(SECRET, PreferenceOwner("a", "ada", 1_000_000))]
    page = shop.open()
    expect(box(page, "Tenders", "E-mail")).to_be_checked()
    assert shop.given == 2
    shop.forgive(401)
    assert page.evaluate("document.documentElement.outerHTML").count("srp_") == 0
    put = "(token) => document.querySelector('sereno-preferences').setAttribute('token', token)"
    page.evaluate(put, shop.token("bob"))
    expect(page.get_by_label("Time zone")).to_have_value("America/Lima")
    expect(page.get_by_text("ada.")).to_have_count(0)
    page.evaluate(put, shop.token("zoe"))
    expect(page.get_by_role("alert")).to_contain_text("no preferences")
    expect(page.get_by_label("Time zone")).to_have_count(0)
    shop.forgive(404)


@pytest.mark.slow
def test_the_page_gets_an_event_when_no_token_is_valid(shop: Shop) -> None:
    shop.attributes = f'token="{make_token(SECRET, PreferenceOwner("a", "ada", 1_000_000))}"'
    page = shop.open()
    until(lambda: "sereno-signed-out" in [name for name, _ in page.evaluate("received")])
    expect(page.get_by_role("alert")).to_contain_text("does not work")
    shop.forgive(401)


@pytest.mark.slow
def test_what_cannot_be_saved_is_explained(shop: Shop) -> None:
    page = shop.open()
    page.get_by_role("radio", name="Your own").check()
    page.get_by_label("From").fill("22:00")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("a start and a different end")
    page.get_by_label("To", exact=True).fill("07:00")
    shop.app.override(read_only=True)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing can be changed here")
    # What was written is still there, to be saved later.
    expect(page.get_by_label("From")).to_have_value("22:00")
    shop.forgive(403)


@pytest.mark.slow
def test_the_element_uses_the_language_of_its_page(shop: Shop, subtests: pytest.Subtests) -> None:
    page = shop.open()
    for language, title in (("es", "Qué recibe"), ("pt-BR", "O que recebe"), ("de", "What you get")):
        with subtests.test(language=language):
            shop.attributes = f'lang="{language}"'
            page.reload()
            expect(page.get_by_role("heading", name=title)).to_be_visible()


@pytest.mark.slow
def test_the_element_is_accessible_and_fits(shop: Shop, inspect_page: InspectPage) -> None:
    page = shop.open()
    page.locator("summary").last.click()
    inspect_page(page, "preference-element", (False, 1440), (True, 1440), (False, 390), (True, 390))


@pytest.mark.slow
def test_the_element_works_where_the_server_is_mounted(shop: Shop) -> None:
    """The page has the same origin then, so no setting has to name it."""
    shop.app.override(inbox_origins=[])
    with running(Starlette(routes=[Mount("/tools/sereno", asgi(shop.app)), *shop.routes().routes])) as url:
        shop.url, shop.server = url, f"{url}/tools/sereno"
        page = shop.open()
        box(page, "Tenders", "E-mail").uncheck()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text("Saved")
        link = shop.app.recipients.preferences_url("ada", tenant="a").replace("https://post.example.com", shop.server)
        page.goto(link)
        expect(box(page, "Tenders", "E-mail")).not_to_be_checked()
        box(page, "Tenders", "E-mail").check()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text("Saved")
        page.goto(EMPTY)
    assert preferences(shop.database) == [("tenders", None, "email", True)]


@pytest.mark.quick
def test_an_address_is_added(shop: Shop) -> None:
    shop.app.confirm_addresses(shop.app.channels["email"])
    shop.app.database.run(shop.app.notifications.declare())
    page = shop.open()
    box(page, "Tenders", "E-mail").uncheck()
    field = page.get_by_role("region", name="Add an e-mail address").get_by_label("E-mail")
    field.fill("ada@new.example.org")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Open its link within 24 hours")).to_be_visible()
    # What is not saved yet stays.
    expect(box(page, "Tenders", "E-mail")).not_to_be_checked()
    assert one(shop.database, "select state from sereno.addresses where address like '%%new%%'") == "unverified"
    field.fill("ada@localhost")
    page.keyboard.press("Enter")
    expect(page.get_by_text("This is not an e-mail address")).to_be_visible()
    shop.forgive(422)


def test_the_element_and_the_page_have_the_same_words() -> None:
    script = all_files()["preferences.js"].content.decode()
    found = re.search(r"const WORDS = (\{.*?\n  \});", script, re.DOTALL)
    assert found is not None
    words = json.loads(found[1])
    assert {"en", *words} == set(LANGUAGES)
    for language, translations in words.items():
        known = dictionary(language)
        assert translations == {sentence: known[sentence] for sentence in translations}
        said = set(re.findall(r'#say\("([^"]+)"', script)) | set(re.findall(r'#(?:section|hint)\("([^"]+)"', script))
        assert said - translations.keys() == set()


def test_every_channel_has_a_name_that_recipients_know() -> None:
    found = re.search(r"const CHANNELS = \{(.*?)\};", all_files()["preferences.js"].content.decode(), re.DOTALL)
    assert found is not None
    assert dict(re.findall(r'(\w+): "([^"]+)"', found[1])) == CHANNELS
    modules = [importlib.import_module(f"sereno.channels.{each.name}") for each in iter_modules(channels.__path__)]
    kinds = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    names = {each.name for each in kinds if issubclass(each, Channel) and isinstance(getattr(each, "name", None), str)}
    assert {"fcm", "email"} <= names
    assert names - CHANNELS.keys() == set()


def test_the_script_is_small() -> None:
    assert len(all_files()["preferences.js"].packed) < 10_500

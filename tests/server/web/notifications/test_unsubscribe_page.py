"""The page of an unsubscribe link has one button; a GET request changes nothing."""

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.notifications.recipients.unsubscribe import Unsubscribe, make_token
from tests.facts import one
from tests.server.api.conftest import PLAIN, Served

SECRET = "s" * 32


@pytest.fixture
def link(app: Sereno, served: Served, connection: psycopg.Connection) -> str:
    app.override(secret=SECRET)
    app.recipients.upsert("ada", {"email": "ada@example.lv"}, tenant="a")
    address = one(connection, "select id from sereno.addresses")
    token = make_token(SECRET, Unsubscribe("a", "ada", "email", address, "<b>tenders</b>"))
    return f"{served.url}/unsubscribe/{token}"


def test_the_link_shows_one_button_and_changes_nothing(link: str, connection: psycopg.Connection) -> None:
    page = httpx.get(link, **PLAIN)
    assert page.status_code == 200
    assert page.text.count("<button>") == 1
    assert "&lt;b&gt;tenders&lt;/b&gt;" in page.text
    for hidden in ("<b>", "<script", "ada", "http://", "https://"):
        assert hidden not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"
    assert httpx.head(link, timeout=30).status_code == 200
    assert one(connection, "select count(*) from sereno.preferences") == 0


def test_the_button_unsubscribes(link: str, connection: psycopg.Connection) -> None:
    for _ in range(2):
        done = httpx.post(link, data={"List-Unsubscribe": "One-Click"}, **PLAIN)
        assert done.status_code == 200
        assert "You get no more" in done.text
        assert one(connection, "select wanted from sereno.preferences where category = '<b>tenders</b>'") is False
    assert httpx.put(link, **PLAIN).status_code == 405


def test_a_link_without_a_category_unsubscribes_the_address(
    app: Sereno, served: Served, link: str, connection: psycopg.Connection
) -> None:
    address = one(connection, "select id from sereno.addresses")
    whole = make_token(SECRET, Unsubscribe("a", "ada", "email", address))
    assert httpx.post(f"{served.url}/unsubscribe/{whole}", content=b"", **PLAIN).status_code == 200
    assert one(connection, "select state from sereno.addresses") == "unsubscribed"
    app.recipients.delete("ada", tenant="a")
    assert httpx.post(link, **PLAIN).status_code == 200


@pytest.mark.slow
def test_a_broken_link_gets_an_explanation(
    app: Sereno, served: Served, link: str, connection: psycopg.Connection
) -> None:
    foreign = make_token("t" * 32, Unsubscribe("a", "ada", "email", 1))
    for url in (link[:-1], f"{served.url}/unsubscribe/<b>", f"{served.url}/unsubscribe/{foreign}", link + "A" * 3000):
        for answer in (httpx.get(url, **PLAIN), httpx.post(url, **PLAIN)):
            assert answer.status_code == 400
            assert "Open it again from the message" in answer.text
            assert "<b>" not in answer.text
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    app.override(read_only=True)
    assert httpx.post(link, **PLAIN).status_code == 403
    assert one(connection, "select count(*) from sereno.preferences") == 0


def test_the_page_speaks_the_language_of_its_reader(link: str, connection: psycopg.Connection) -> None:
    for accepted, chosen, asks, done in (
        ("es-MX,es;q=0.9", "", "¿Quiere dejar de recibir mensajes sobre", "Ya no recibirá mensajes sobre"),
        ("pt-BR", "", "Quer deixar de receber mensagens sobre", "Já não recebe mensagens sobre"),
        ("fi", "", "Do you want no more messages about", "You get no more messages about"),
        ("es", "?lang=pt", "Quer deixar de receber mensagens sobre", "Já não recebe mensagens sobre"),
    ):
        headers = {"Accept-Language": accepted}
        page, answer = (
            httpx.get(link + chosen, headers=headers, **PLAIN),
            httpx.post(link + chosen, headers=headers, **PLAIN),
        )
        assert asks in page.text
        assert done in answer.text
        assert f'<html lang="{page.headers["content-language"]}">' in page.text
        # The button keeps the language.
        assert f'action="?lang={page.headers["content-language"]}"' in page.text
    broken = httpx.get(link[:-1], headers={"Accept-Language": "es"}, **PLAIN)
    assert "Este enlace está incompleto" in broken.text


def test_without_a_secret_no_link_is_valid(served: Served) -> None:
    assert httpx.get(f"{served.url}/unsubscribe/x", **PLAIN).status_code == 400
    assert httpx.post(f"{served.url}/unsubscribe/x", **PLAIN).status_code == 400

"""The footer of emails, as a local SMTP server and the checks of a provider's channel see it."""

from email.message import EmailMessage, MIMEPart
from typing import Any

import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.email import Email
from sereno.channels.email_footer import WORDS, with_footer
from sereno.channels.outcome import Outcome, Sent
from sereno.channels.resend import Resend
from sereno.server.web.messages import LANGUAGES, say
from sereno.testing.resend import ResendProvider
from sereno.testing.smtp import MailServer

LEAVE, CHOOSE = "https://post.example.org/unsubscribe/t1", "https://post.example.org/preference-centre/srp_1"
LINKS = {"unsubscribe_url": LEAVE, "preferences_url": CHOOSE}


def mail(**fields: Any) -> Message:
    given = {"address": "ada@example.org", "title": "Sent", "body": "Your order was sent.\n", **LINKS, **fields}
    return Message(delivery=1, key="key-1", **given)


async def sent(message: Message, channel: Email | None = None, **account: Any) -> EmailMessage:
    async with MailServer() as server:
        settings = {"host": server.host, "port": server.port, "sender": "Shop <shop@example.org>", **account}
        async with Exchange(settings) as exchange:
            (outcome,) = await (channel or Email()).send([message], exchange)
        assert isinstance(outcome, Sent)
        return server.mails[0].parsed()


def content(part: MIMEPart) -> str:
    found: str = part.get_content()
    return found.replace("\r\n", "\n")


async def test_both_parts_end_with_the_links_in_the_language_of_the_recipient() -> None:
    html = "<html><body><p>Enviado</p></BODY ></html>\n"
    parsed = await sent(mail(html=html, locale="pt-BR"))
    text, shown = (content(part) for part in parsed.iter_parts())
    assert text == f"Your order was sent.\n\n-- \nCancelar a inscrição: {LEAVE}\nAs suas notificações: {CHOOSE}\n"
    anchors = f'<a href="{LEAVE}">Cancelar a inscrição</a> · <a href="{CHOOSE}">As suas notificações</a>'
    footer = f'<p style="margin-top:2em;font-size:smaller">{anchors}</p>\n'
    assert shown == html.replace("</BODY >", f"{footer}</BODY >")


async def test_a_setting_turns_the_footer_off_and_leaves_the_header() -> None:
    plain = "Your order was sent.\n"
    for parsed in (await sent(mail(), Email(footer=False)), await sent(mail(), footer=False)):
        assert (content(parsed), parsed["List-Unsubscribe"]) == (plain, f"<{LEAVE}>")
    # The account of a tenant decides over the constructor.
    assert LEAVE in content(await sent(mail(), Email(footer=False), footer=True))


async def test_the_setting_turns_it_off_for_providers() -> None:
    async def text(channel: Resend, **account: Any) -> tuple[Outcome, str]:
        async with ResendProvider() as provider, Exchange({**provider.account, **account}) as exchange:
            (outcome,) = await channel.send([mail()], exchange)
            (email,) = provider.sent.values()
            return outcome, email["text"]

    for channel, account, has_footer in [
        (Resend(), {}, True),
        (Resend(footer=False), {}, False),
        (Resend(), {"footer": False}, False),
    ]:
        outcome, found = await text(channel, **account)
        assert isinstance(outcome, Sent)
        assert (LEAVE in found) is has_footer, (channel, account)


async def test_what_a_message_contains_is_not_repeated(subtests: pytest.Subtests) -> None:
    odd = "https://post.example.org/unsubscribe/t1?a=1&b=2"
    cases: list[tuple[dict[str, Any], str, str]] = [
        # A critical event has no link to unsubscribe.
        ({"unsubscribe_url": None}, f"Hi\n\n-- \nYour notifications: {CHOOSE}\n", "Your notifications"),
        ({"unsubscribe_url": None, "preferences_url": None}, "Hi", "<p>Hi</p>"),
        ({"body": f"Hi {LEAVE} {CHOOSE}"}, f"Hi {LEAVE} {CHOOSE}", "Unsubscribe"),
        ({"body": f"Hi {LEAVE}"}, f"Hi {LEAVE}\n\n-- \nYour notifications: {CHOOSE}\n", "Unsubscribe"),
        ({"html": f"<a href='{LEAVE}'>x</a><a href='{CHOOSE}'>y</a>"}, "Unsubscribe", f"<a href='{LEAVE}'>"),
        # Escaped, as a template prints it, and plain.
        ({"html": f"{odd.replace('&', '&amp;')}{CHOOSE}", "unsubscribe_url": odd}, odd, "&amp;"),
        ({"html": "", "body": ""}, "", ""),
    ]
    for fields, text, html in cases:
        with subtests.test(fields=fields):
            message = mail(**{"body": "Hi", "html": "<p>Hi</p>", **fields})
            found = with_footer(message, message.body, message.html or "")
            assert text in found[0]
            assert html in found[1]
            for part in found:
                assert max(part.count(url) for url in (LEAVE, CHOOSE)) <= 1


async def test_an_address_in_html_cannot_end_its_attribute() -> None:
    _, html = with_footer(mail(unsubscribe_url='https://a.example/"><script>', preferences_url=None), "", "<p>Hi</p>")
    assert "<script>" not in html
    assert 'href="https://a.example/&quot;&gt;&lt;script&gt;"' in html


async def test_an_email_with_a_title_only_has_it_as_its_text() -> None:
    assert content(await sent(mail(body=""))).startswith("Sent\n\n-- \nUnsubscribe: ")


def test_the_footer_has_the_words_of_the_pages_in_every_language() -> None:
    for language in LANGUAGES:
        assert WORDS[language] == (say(language, "Unsubscribe"), say(language, "Your notifications"))
    for locale, language in {"es_MX": "es", "PT": "pt", "lv": "en", None: "en", "": "en"}.items():
        assert WORDS[language][0] in with_footer(mail(locale=locale), "Hi", "")[0], locale

"""Messages carry an unsubscribe link, and one to the preferences of their recipient."""

import psycopg

from sereno import Content, Recipient, Sereno
from sereno.notifications.recipients.preference_token import read_token
from tests.facts import auntil, one
from tests.notifications.conftest import Pager, States, Tender

HOME = "https://notify.example.com"


async def test_the_link_of_a_message_turns_off_its_category(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    app.override(public_url=HOME, secret="s" * 32)
    news = app.event("tender.published", Tender, channels=[pager, "in_app"], category="tenders", opt_in=True)
    alarm = app.event("alarm", Tender, channels=[pager], category="tenders", critical=True)

    @news.template()
    @alarm.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return Content(tender.code, to.unsubscribe_url or "no link", options={"preferences": to.preferences_url})

    await app.recipients.aupsert("ada", {"pager": "a1"}, tenant="acme")
    await app.recipients.aprefer("ada", event="tender.published", wanted=True, tenant="acme")
    async with app.working():
        await news.anotify(Tender("T1"), to="ada", tenant="acme")
        await alarm.anotify(Tender("A1"), to="ada", tenant="acme")
        await auntil(lambda: len(pager.sent) == 2 and one(connection, "select count(*) from sereno.inbox") == 1)
        by_title = {message.title: message for message in pager.sent}
        assert (by_title["A1"].unsubscribe_url, by_title["A1"].body) == (None, "no link")
        link = by_title["T1"].unsubscribe_url
        assert link is not None
        assert link.startswith(f"{HOME}/unsubscribe/")
        assert by_title["T1"].body == link
        # A critical message has one too: its recipient may have preferences about others.
        for message in by_title.values():
            assert message.preferences_url is not None
            assert message.options == {"preferences": message.preferences_url}
            owner = read_token("s" * 32, message.preferences_url.removeprefix(f"{HOME}/preference-centre/"))
            assert owner is not None
            assert (owner.tenant, owner.recipient) == ("acme", "ada")
        assert one(connection, "select body from sereno.inbox") == "no link"
        assert await app.recipients.aunsubscribe_with(link.rpartition("/")[2])
        await news.anotify(Tender("T2"), to="ada", tenant="acme")
        await alarm.anotify(Tender("A2"), to="ada", tenant="acme")
        await auntil(lambda: ("ada", "pager", "skipped", "preference off") in states() and len(pager.sent) == 3)
    assert pager.sent[-1].title == "A2"

import asyncio
import os

import production
import psycopg
from psycopg.types.json import Jsonb
from tenders import app, email

from sereno.channels.contract import Exchange, Message
from sereno.testing.kit import Kit
from sereno.testing.smtp import MailServer

# the block of the page
assert published.status("T-2").state == "pending"


async def main() -> None:
    async with MailServer({"tenders": os.environ["SMTP_PASSWORD"], "acme": "…"}) as server:
        here = {"host": server.host, "port": server.port}
        mail = Message(delivery=1, key="one", address="ada@example.org", title="Hello")
        async with Exchange(here) as exchange:
            await production.email.send([mail], exchange)
        assert [line for line in server.commands if line.startswith("AUTH")] == []
        async with Exchange({**here, "tls": "none"}) as exchange:
            await production.email.send([mail], exchange)
        assert [mail.username for mail in server.mails] == ["tenders"]

        app.channels.add(email, **here, tls="none", username="tenders", password=os.environ["SMTP_PASSWORD"])
        async with await psycopg.AsyncConnection.connect(app.url) as connection:
            at_home = Jsonb({**here, "tls": "none"})
            await connection.execute("update sereno.accounts set settings = settings || %s", [at_home])
        await app.recipients.aupsert("user:9", {"email": "eve@acme.example"}, tenant="acme")
        await published.anotify(Tender("T-4", "a park", "V", 9), tenant="acme", to="user:9")
        await Kit(app).adrain()
        assert {(mail.username, mail.sender, mail.parsed()["subject"]) for mail in server.mails[1:]} == {
            ("tenders", "tenders@example.org", "New tender in RM: a school"),
            ("acme", "no-reply@acme.example", "New tender in V: a park"),
        }
    await app.aclose()


asyncio.run(main())

import asyncio
import re

from shop import app

from sereno import AddressConfirmation, Content, Recipient
from sereno.notifications.recipients.address_requests import confirm_address, request_address
from sereno.notifications.recipients.address_token import read_token
from sereno.testing.smtp import MailServer

app.override(public_url="https://post.example.com", secret="s" * 32)
# the block of the page


async def main() -> None:
    await app.recipients.aupsert("user:8", {"email": "bob@example.org"})
    async with MailServer() as server, app.working():
        app.channels.add(email, host=server.host, port=server.port, tls="none")
        while "sereno.confirm_address" not in [each.name for each in await declared()]:
            await asyncio.sleep(0.05)
        await app.database.arun(request_address("user:8", "bob@new.example.org", tenant=None, language="en"))
        while not server.mails:
            await asyncio.sleep(0.05)
    mail = server.mails[0].parsed()
    assert (mail["subject"], mail["to"]) == ("Confirm your address", "bob@new.example.org")
    link = re.search(r"https://post\.example\.com/confirm-address/(\S+)", mail.get_content())
    assert link is not None
    claim = read_token("s" * 32, link[1])
    assert claim is not None
    assert await app.database.arun(confirm_address(claim))
    await app.aclose()


async def declared():
    from sereno.notifications.event_types import message_kinds

    return await app.database.arun(message_kinds())


asyncio.run(main())

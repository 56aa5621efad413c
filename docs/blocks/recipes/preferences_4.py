import asyncio

from events import Comment, app, email
from leaving import leave

from sereno import InvalidArguments
from sereno.testing.smtp import MailServer

closed = app.event("thread.closed", Comment, channels=[email], category="threads")
app.override(public_url="https://post.example.com", secret="s" * 32)


async def unsubscribe(token: str) -> None:
    # the block of the page


async def notify(number: str) -> dict[str, int]:
    """Return the deliveries of ada and eve."""
    await closed.anotify(Comment(number, "closed"), subject=number, to=["ada", "eve"])
    waiting = {"pending", "sending"}
    while (status := await closed.astatus(number)).matched_at is None or waiting & status.deliveries.keys():
        await asyncio.sleep(0.05)
    return status.deliveries


async def main() -> None:
    for name in ("ada", "eve"):
        await app.recipients.aupsert(name, {"email": f"{name}@example.org"})
    await app.recipients.aprefer("ada", quiet=[])
    async with MailServer() as server, app.working():
        app.channels.add(email, host=server.host, port=server.port, tls="none")
        assert await notify("1") == {"sent": 2}
        links = {mail.recipients[0]: mail.parsed()["list-unsubscribe"].strip("<>") for mail in server.mails}
        await leave()
        await app.recipients.aupsert("ada", {"email": "ada@example.org"})
        assert await notify("2") == {"sent": 1, "skipped": 1}
        for _ in range(2):
            await unsubscribe(links["eve@example.org"].removeprefix("https://post.example.com/unsubscribe/"))
        assert await notify("3") == {"skipped": 2}
        try:
            await unsubscribe("changed")
        except InvalidArguments:
            await app.aclose()
        else:
            raise AssertionError("a token without a valid signature")


asyncio.run(main())

import re
import asyncio
from collections.abc import Sequence

import pytest
from events import Comment, app, comment_added, email

from sereno import Content, Recipient
from sereno.testing.smtp import MailServer


# the block of the page


@pytest.fixture
def kit(sereno_kit):
    return sereno_kit(app)


def test_comments_of_a_thread_are_sent_in_one_message(kit):
    async def main() -> list[str]:
        await app.recipients.aupsert("eve", {"email": "eve@example.org"})
        async with MailServer() as server:
            app.channels.add(email, host=server.host, port=server.port, tls="none")
            for thread, text in [("a", "first"), ("b", "alone"), ("a", "second")]:
                await comment_added.anotify(Comment(thread, text), to="eve")
            await kit.adrain()
            assert server.mails == []
            kit.travel("16m")
            await kit.adrain()
        await app.aclose()
        return sorted(mail.parsed()["subject"] for mail in server.mails)

    assert asyncio.run(main()) == ["2 new comments", "comment.added"]
    (skipped,) = (row for row in kit.deliveries(comment_added) if row.state == "skipped")
    assert re.search(r"\bdelivery \d+$", skipped.reason)

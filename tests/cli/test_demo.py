"""The demo where the extra `channels` is not installed; the whole of it runs in test_commands.py."""

import random
import sys

import psycopg
import pytest

from sereno import Sereno
from sereno.cli.demo_post import Post, missing_packages, tell


async def test_without_providers_people_are_told_in_the_application(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert missing_packages() == ["aiohttp"]
    app = Sereno(database_url)
    post = Post(app, random.Random(7))
    assert await post.introduce() == 56
    for telling in post.tellings():
        await tell(telling)
    await app.aclose()
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "select type, channels, count(*) from sereno.events group by 1, 2 order by 1"
        ).fetchall()
    assert found == [("invoice.due", ["in_app"], 16), ("menu.new", ["in_app"], 3), ("order.ready", ["in_app"], 60)]

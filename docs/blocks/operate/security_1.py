import asyncio
from types import SimpleNamespace

import httpx
# the block of the page


async def ask(**user: object) -> httpx.Response:
    """As an application asks whose session knows the user."""

    async def session(scope, receive, send) -> None:
        await inside({**scope, "user": SimpleNamespace(**user)} if user else scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(session), base_url="http://here") as client:
        return await client.get("/api/v1/me")


async def main() -> None:
    assert (await ask()).status_code == 401
    assert (await ask(email="bob@example.org", is_staff=False)).status_code == 401
    me = (await ask(email="ada@example.org", is_staff=True)).json()
    assert (me["name"], me["role"]) == ("ada@example.org", "operator"), me
    await app.aclose()


asyncio.run(main())

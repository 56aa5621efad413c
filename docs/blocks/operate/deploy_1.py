import asyncio

import httpx
# the block of the page


done = asyncio.Event()


@app.task
async def clean_up() -> None:
    done.set()


async def main() -> None:
    client = httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://here")
    async with api.router.lifespan_context(api), client:
        assert (await client.get("/sereno/readyz")).status_code == 200
        assert "sign-in" in (await client.get("/sereno/jobs")).headers["location"]
        assert (await client.get("/sereno/api/v1/jobs")).status_code == 401
        await clean_up.aenqueue()
        await done.wait()


asyncio.run(main())

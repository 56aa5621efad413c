import psycopg
# the block of the page


async def wrong() -> None:
    titles = [row.title for row in await app.inbox.alist("ada")]
    assert titles == ["New tender in RM"], titles
    assert await app.inbox.alist("bob") == []
    async with await psycopg.AsyncConnection.connect(app.url) as connection:
        await connection.execute("""select sereno.notify('tender.published', '{"code": 7}', subject => 'T-3')""")
    async with app.working():
        while (await published.astatus("T-3")).matched_at is None:
            await asyncio.sleep(0.1)
    await app.aclose()


asyncio.run(wrong())

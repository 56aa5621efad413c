import asyncio

import psycopg
# the block of the page


async def main() -> None:
    job = await reconcile.using(tenant="r42", trace="4bf92f35").aenqueue(account="r42")
    async with await psycopg.AsyncConnection.connect(app.url, autocommit=True) as connection:
        async with app.working():
            while await (await connection.execute("select 1 from sereno.jobs")).fetchone():
                await asyncio.sleep(0.02)
        columns = "level, event, message, tenant, job_id, task, trace_id, context"
        kept = await connection.execute(f"select {columns} from sereno.logs where task = 'reconcile'")
        line = await kept.fetchone()
    await app.aclose()
    said = ("warning", "bank.slow", "the bank is slow", "r42", job.id, "reconcile", "4bf92f35")
    assert line == (*said, {"bank": "north", "seconds": 12.5, "attempt": 1}), line


asyncio.run(main())

"""Jobs that wait for others; each records its run in the transaction that settles it."""

from sereno import Context, Sereno

app = Sereno()


@app.task(queue="work")
async def stage(ctx: Context, of: str, number: int) -> str:
    async with ctx.transaction() as connection:
        ctx.set_result(f"{of} {number}")
        await connection.execute("insert into runs (of, number) values (%s, %s)", [of, number])
    return ""


@app.task(queue="work")
async def report(ctx: Context, of: str) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("insert into runs (of, number) values (%s, -1)", [of])

"""An application whose isolated tasks wait for signals and other jobs, and iterate; batch tasks have hooks."""

from sereno import Context, JobEvent, Sereno

app = Sereno()
events: list[tuple[str, str]] = []


@app.on("job.succeeded", "job.dead")
async def note(event: JobEvent) -> None:
    events.append((event.name, event.task))


@app.task
def number(of: int) -> int:
    return of


@app.task(isolate=True)
def in_thread(ctx: Context) -> list[int]:
    paid: int = ctx.receive("paid", timeout="1h", type=int)
    called: list[int] = ctx.run_all([number.job(1), number.job(2)])
    return [paid, *called, *ctx.run_iterate("items", [3, 4], commit_every=1)]


@app.task(isolate=True)
async def in_loop(ctx: Context) -> list[int]:
    paid = await ctx.wait_for("paid", timeout="1h", type=int)
    called: list[int] = [await ctx.call(number.job(1))]
    return [paid, *called, *[item async for item in ctx.iterate("items", [3, 4], commit_every=1)]]


@app.task(isolate=True)
def reads(ctx: Context) -> list[int]:
    return ctx.read_results()


@app.task(isolate=True, retry=0)
def fails() -> None:
    raise ValueError("no")


@app.task(batch=10)
async def batch(items: list[int]) -> None: ...

"""Tasks under limits that another process can import."""

from sereno import Context, Rate, Sereno

app = Sereno("postgresql://unused")


@app.task(isolate=True, rate=Rate(1000, key="{account}", name="isolated"))
async def throttles(ctx: Context, account: str) -> None:
    ctx.throttle("isolated", seconds="1h")


@app.task(isolate=True, rate=Rate(1000, key="{account}", name="isolated"))
def throttles_in_a_thread(ctx: Context, account: str) -> None:
    ctx.throttle("isolated", seconds="1h")


def adopt(other: Sereno) -> None:
    """Register these tasks in the application of a test."""
    for definition in app.registry:
        other.registry.add(definition)

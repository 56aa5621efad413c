"""One application in two releases, chosen by SERENO_RELEASE: the newer one has other arguments."""

import os

from sereno import Context, Sereno

# The names of the releases, the older one first.
OLD, NEW = "2026.1", "2026.2"


def in_release(release: str, url: str | None = None) -> Sereno:
    """Return the application as this release declares it. Each run is written in the transaction that settles it."""
    app = Sereno(url)

    async def ran(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into runs (job_id, release) values (%s, %s)", [ctx.job_id, release])

    if release == OLD:

        @app.task
        async def export(ctx: Context, account: str) -> None:
            await ran(ctx)

        @app.task
        async def totals(ctx: Context, day: int) -> None:
            await ran(ctx)

        return app

    @app.task(version=2, name="export")
    async def export_as(ctx: Context, account: str, form: str = "csv") -> None:
        await ran(ctx)

    # The version was forgotten here: an older worker finds out when it decodes the arguments.
    @app.task(name="totals")
    async def totals_of(ctx: Context, day: int | str) -> None:
        await ran(ctx)

    return app


app = in_release(os.environ.get("SERENO_RELEASE", NEW))

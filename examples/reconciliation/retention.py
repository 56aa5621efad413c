"""Deletes files that a newer file of the same month has replaced."""

from dataclasses import dataclass

from reconciliation import settings, storage
from reconciliation.job_types import CONTROL, app
from sereno import Context, Daily
from sereno.duration import seconds

# Files of one pass; the next night continues.
BATCH = 10_000


@dataclass
class DeletedFiles:
    """The result of a pass."""

    files: int


@app.cycle(Daily("04:40", tz=settings.ZONE), key="reconciliation.delete_replaced_files")
@app.task(name="reconciliation.delete_replaced_files", queue=CONTROL)
async def delete_replaced_files(ctx: Context) -> DeletedFiles | None:
    """Delete the files first and their rows with the success of the job: a row without a file is harmless."""
    async with ctx.transaction() as connection:
        old = [ctx.claimed_at, seconds(settings.KEEP_REPLACED), BATCH]
        rows = await (await connection.execute(REPLACED, old)).fetchall()
        for _, path in rows:
            await storage.delete(path)
            await storage.delete(f"{path}.gz")
        await connection.execute("delete from reconciliation.files where id = any(%s)", [[file for file, _ in rows]])
        ctx.set_result(DeletedFiles(len(rows)))
    return None


REPLACED = """
select id, path from reconciliation.files
where replaced_at < %s - make_interval(secs => %s) order by replaced_at limit %s for update"""

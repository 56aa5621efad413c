"""An application whose middlewares write what they see to a table, also in isolated processes."""

from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

from sereno import Context, Dead, Retry, Sereno

app = Sereno()
JOB: ContextVar[int | None] = ContextVar("JOB", default=None)


def seen(line: str) -> None:
    with app.database.connection() as connection:
        connection.execute("insert into seen (job, line) values (%s, %s)", [JOB.get(), line])


@app.around
async def outer(ctx: Context) -> AsyncIterator[None]:
    token = JOB.set(ctx.job_id)
    seen("outer begins")
    try:
        yield
    except BaseException as error:
        seen(f"outer sees {type(error).__name__}")
        raise
    else:
        seen("outer ends")
    finally:
        JOB.reset(token)


@app.around
def inner(ctx: Context) -> Iterator[None]:
    try:
        yield
    except KeyError:
        seen("inner ignores KeyError")
    except ValueError as error:
        raise Dead("inner gives up") from error


@app.task(retry=0)
async def async_task(what: str) -> None:
    _do(what)


@app.task(retry=0)
def sync_task(what: str) -> None:
    _do(what)


@app.task(isolate=True, retry=0)
def isolated_task(what: str) -> None:
    _do(what)


@app.task(isolate=True, retry=0)
async def isolated_async_task(what: str) -> None:
    _do(what)


@app.task(batch=1, retry=0)
async def batch_task(items: list[str]) -> None:
    _do(items[0])


def _do(what: str) -> None:
    seen("handler")
    match what:
        case "lookup":
            raise KeyError(what)
        case "value":
            raise ValueError(what)
        case "retry":
            raise Retry("later")
        case "other":
            raise OSError("a handler's own error")

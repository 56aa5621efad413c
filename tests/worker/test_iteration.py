"""`ctx.iterate`: a later attempt continues at the last commit; in a batch's transaction, writes and cursor are one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Cancel, ConfigurationError, Context, InvalidArguments, Keyset, LeaseLost, Lines, Sereno
from sereno.jobs.attempt import Released, Settlement
from sereno.jobs.cursors import Cursor, keep_cursor
from sereno.jobs.job import ClaimedJob
from sereno.worker import sessions
from sereno.worker.iteration import Batch
from sereno.worker.iteration_sources import Source
from tests.facts import one
from tests.jobs.job_steps import add, do, end, row, session, take_one, tries

QUERY = "select id, name from rows where id > %(cursor)s order by id limit %(limit)s"


class Attempts:
    """The attempts of one job, each with a context, as a worker makes them."""

    def __init__(self, app: Sereno, connection: psycopg.Connection) -> None:
        self._app = app
        self.connection = connection
        (self.job_id,) = add(connection)
        self.owner = session(connection)

    def begin(self) -> Context:
        self.job: ClaimedJob = take_one(self.connection, self.owner)
        return Context(self.job, self.owner, self._app.database)

    def release(self) -> None:
        assert end(self.connection, self.owner, [self.job], Settlement("release"))

    def again(self) -> Context:
        """Return the context of the next attempt."""
        self.release()
        return self.begin()

    def die(self) -> None:
        """Let the session die, and its job be rescued."""
        do(self.connection, sessions.finish([self.owner], "dead"))
        assert do(self.connection, sessions.rescue()) == [self.job_id]
        self.owner = session(self.connection)

    @property
    def stored(self) -> Any:
        query = "select (result ->> 'cursor', result ->> 'items', result ->> 'done', attempt)::text from sereno.steps"
        return one(self.connection, query)


@pytest.fixture
def attempts(app: Sereno, connection: psycopg.Connection) -> Attempts:
    connection.execute("create table rows (id integer primary key, name text)")
    connection.execute("insert into rows select n, 'row ' || n from generate_series(1, 10) n")
    connection.execute("create table effects (id integer)")
    return Attempts(app, connection)


async def _all(ctx: Context, source: Source[Any], every: int = 3, stop_at: int | None = None) -> list[Any]:
    """Return the items that an attempt handles; it fails at the item with this number."""
    items: list[Any] = []
    async for item in ctx.iterate("rows", source, commit_every=every):
        if len(items) == stop_at:
            return items
        items.append(item)
    return items


def _all_sync(ctx: Context, source: Source[Any], every: int = 3, stop_at: int | None = None) -> list[Any]:
    items: list[Any] = []
    for item in ctx.run_iterate("rows", source, commit_every=every):
        if len(items) == stop_at:
            return items
        items.append(item)
    return items


def _own(cursor: int | None) -> Iterator[tuple[str, int]]:
    for number in range(cursor or 0, 10):
        yield f"own {number}", number + 1


async def _own_async(cursor: int | None) -> AsyncIterator[tuple[str, int]]:
    for pair in _own(cursor):
        yield pair


@pytest.mark.slow
async def test_every_source_continues_at_the_last_commit(
    app: Sereno, connection: psycopg.Connection, attempts: Attempts, subtests: pytest.Subtests, tmp_path: Path
) -> None:
    """An attempt that ends at the eighth item has committed six: the next one begins with the seventh."""
    path = tmp_path / "lines.txt"
    path.write_bytes("".join(f"Zeile {n} äöü\r\n" for n in range(9)).encode() + b"no end")
    sources: dict[str, tuple[Source[Any], list[Any]]] = {
        "keyset": (Keyset(QUERY), [{"id": n, "name": f"row {n}"} for n in range(1, 11)]),
        "keyset with a limit of its own": (
            Keyset(
                "select id from rows where id > %(cursor)s and id < %(top)s order by id limit 4", params={"top": 10}
            ),
            [{"id": n} for n in range(1, 10)],
        ),
        "text keys": (
            Keyset("select name from rows where name > %(cursor)s order by name limit 4", column="name", start=""),
            [{"name": name} for name in sorted(f"row {n}" for n in range(1, 11))],
        ),
        "lines": (Lines(path), [*(f"Zeile {n} äöü" for n in range(9)), "no end"]),
        "list": (list("abcdefghij"), list("abcdefghij")),
        "own": (_own, [f"own {n}" for n in range(10)]),
    }
    for name, (source, expected) in sources.items():
        for is_async in (True, False):
            with subtests.test(name, is_async=is_async):
                connection.execute("delete from sereno.jobs")
                connection.execute("delete from sereno.steps")
                made = Attempts(app, connection)
                ctx = made.begin()
                first = await _all(ctx, source, stop_at=7) if is_async else _all_sync(ctx, source, stop_at=7)
                assert first == expected[:7]
                ctx = made.again()
                second = await _all(ctx, source) if is_async else _all_sync(ctx, source)
                assert second == expected[6:]
                ctx = made.again()
                assert (await _all(ctx, source) if is_async else _all_sync(ctx, source)) == []


async def test_an_async_source_needs_an_async_handler(attempts: Attempts) -> None:
    assert await _all(attempts.begin(), _own_async, stop_at=7) == [f"own {n}" for n in range(7)]
    with pytest.raises(ConfigurationError, match="its source is async"):
        _all_sync(attempts.again(), _own_async)
    assert await _all(attempts.again(), _own_async) == [f"own {n}" for n in range(6, 10)]


async def test_the_cursor_is_stored_after_every_few_items(attempts: Attempts) -> None:
    ctx = attempts.begin()
    seen = [(number, attempts.stored) async for number in ctx.iterate("rows", list(range(7)), commit_every=3)]
    after_three, after_six = "(3,3,false,1)", "(6,6,false,1)"
    assert seen == [
        *((number, None) for number in range(3)), *((number, after_three) for number in range(3, 6)), (6, after_six),
    ]  # fmt: skip
    assert attempts.stored == "(7,7,true,1)"
    assert ctx.used_side_rows
    assert ctx.has_advanced


async def test_steps_and_iterations_do_not_mix(attempts: Attempts) -> None:
    ctx = attempts.begin()
    await _all(ctx, [1, 2])
    assert await ctx.step("other", lambda: 7) == 7
    with pytest.raises(ConfigurationError, match="'rows' is the name of another step or iteration"):
        ctx.iterate("rows", [1])
    with pytest.raises(ConfigurationError, match="'other' is the name of another step or iteration"):
        ctx.run_iterate("other", [1])
    ctx = attempts.again()
    assert await ctx.step("other", lambda: 8) == 7
    assert await _all(ctx, [1, 2]) == []


async def test_a_transaction_commits_writes_with_the_cursor(attempts: Attempts) -> None:
    """The third batch fails after its writes: they are rolled back, and its items are handled by the next attempt."""
    connection = attempts.connection
    ctx = attempts.begin()
    with pytest.raises(OSError, match="no space"):
        await _insert_batches(ctx, fails_at=8)
    assert one(connection, "select array_agg(id order by id) from effects") == [1, 2, 3, 4, 5, 6]
    assert attempts.stored == "(6,6,false,1)"
    await _insert_batches(attempts.again())
    assert one(connection, "select array_agg(id order by id) from effects") == list(range(1, 11))
    assert attempts.stored == "(10,10,true,2)"


async def _insert_batches(ctx: Context, fails_at: int | None = None) -> None:
    async for batch in ctx.iterate("rows", Keyset(QUERY), commit_every=3).batches():
        async with batch.transaction() as connection:
            for item in batch:
                await connection.execute("insert into effects values (%s)", [item["id"]])
                if item["id"] == fails_at:
                    raise OSError("no space")


def test_a_sync_transaction_commits_writes_with_the_cursor(attempts: Attempts) -> None:
    def insert(ctx: Context, fails_at: int | None = None) -> None:
        for batch in ctx.run_iterate("rows", Keyset(QUERY), commit_every=4).batches():
            with batch.transaction() as connection:
                connection.execute("insert into effects select unnest(%s)", [[item["id"] for item in batch]])
                if len(batch) == fails_at:
                    raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        insert(attempts.begin(), fails_at=2)
    assert one(attempts.connection, "select array_agg(id order by id) from effects") == list(range(1, 9))
    insert(attempts.again())
    assert one(attempts.connection, "select array_agg(id order by id) from effects") == list(range(1, 11))


async def test_a_batch_without_a_transaction_is_committed_when_its_block_ends(attempts: Attempts) -> None:
    ctx = attempts.begin()
    async for batch in ctx.iterate("rows", list(range(5)), commit_every=2).batches():
        assert (batch[0], len(batch)) == (batch.cursor - len(batch), len(batch))
        assert attempts.stored == (None if batch[0] == 0 else f"({batch[0]},{batch[0]},false,1)")
    assert attempts.stored == "(5,5,true,1)"


async def test_a_batch_has_one_transaction(attempts: Attempts) -> None:
    async for batch in attempts.begin().iterate("rows", [1]).batches():
        async with batch.transaction():
            pass
        with pytest.raises(ConfigurationError, match="has committed this batch"):
            async with batch.transaction():
                pass


async def test_an_attempt_that_has_lost_its_lease_advances_nothing(attempts: Attempts) -> None:
    """Its writes in the transaction are rolled back: the attempt that has the job now repeats the items."""
    late = attempts.begin()
    attempts.die()
    current = attempts.begin()
    with pytest.raises(LeaseLost, match="iteration 'rows' was not advanced"):
        await _insert_batches(late)
    assert one(attempts.connection, "select count(*) from effects") == 0
    with pytest.raises(LeaseLost):
        _all_sync(Context(late._job, late.session, late._database), list(range(3)))
    assert attempts.stored is None
    await _insert_batches(current)
    assert one(attempts.connection, "select count(*) from effects") == 10


def test_only_the_attempt_that_holds_the_job_moves_its_cursor(attempts: Attempts, subtests: pytest.Subtests) -> None:
    attempts.begin()
    job, owner = attempts.job, attempts.owner
    fences = {
        "another session": (owner + 1, job.id, 1),
        "another attempt": (owner, job.id, 2),
        "no job": (owner, 99, 1),
    }
    for name, fence in fences.items():
        with subtests.test(name), pytest.raises(LeaseLost):
            do(attempts.connection, keep_cursor(*fence, "rows", Cursor(1, 1)))
    assert attempts.stored is None
    do(attempts.connection, keep_cursor(owner, job.id, job.attempt, "rows", Cursor(1, 1)))
    assert attempts.stored == "(1,1,false,1)"


async def test_an_iteration_that_is_to_stop_commits_and_ends(attempts: Attempts) -> None:
    ctx = attempts.begin()
    seen: list[int] = []

    async def until_stopped() -> None:
        async for number in ctx.iterate("rows", list(range(9)), commit_every=3):
            seen.append(number)
            ctx.stop_requested = number >= 3

    with pytest.raises(Released, match="the worker stopped: iteration 'rows' continues in the next attempt"):
        await until_stopped()
    assert seen == [0, 1, 2, 3]
    assert attempts.stored == "(4,4,false,1)"
    ctx = attempts.again()
    ctx.cancel_requested = True
    with pytest.raises(Cancel):
        seen.extend(ctx.run_iterate("rows", list(range(9)), commit_every=3))
    assert seen == [0, 1, 2, 3, 4]
    ctx = attempts.again()
    ctx.stop_requested = True
    batches = ctx.run_iterate("rows", list(range(9)), commit_every=3).batches()
    assert next(batches).items == [5, 6, 7]
    with pytest.raises(Released):
        next(batches)
    assert attempts.stored == "(8,8,false,3)"


async def test_a_batch_that_was_rolled_back_is_not_skipped(attempts: Attempts) -> None:
    """A handler that catches the error of a batch has to commit it, for example empty, or the attempt fails."""
    batches = attempts.begin().iterate("rows", list(range(9)), commit_every=3).batches()
    first = await anext(batches)
    with pytest.raises(OSError, match="no space"):
        await _fail(first)
    async with first.transaction():
        pass
    second = await anext(batches)
    with pytest.raises(OSError, match="no space"):
        await _fail(second)
    with pytest.raises(ConfigurationError, match="was rolled back, and the loop continued"):
        await anext(batches)
    assert attempts.stored == "(3,3,false,1)"


async def _fail(batch: Batch[int]) -> None:
    async with batch.transaction():
        raise OSError("no space")


async def test_a_crash_after_a_commit_is_not_charged(attempts: Attempts) -> None:
    """A job that kills its process before it advances is a suspect, as any other job."""
    connection = attempts.connection
    await _all(attempts.begin(), list(range(10)), stop_at=4)
    attempts.die()
    assert (row(connection, attempts.job_id)["crashes"], row(connection, attempts.job_id)["releases"]) == (0, 1)
    assert one(connection, "select reason from sereno.attempts").endswith("its iteration had advanced, and continues")
    attempts.begin()
    attempts.die()
    assert (row(connection, attempts.job_id)["crashes"], row(connection, attempts.job_id)["releases"]) == (1, 1)
    assert tries(connection, attempts.job_id) == [(1, "release"), (2, "crash")]


async def test_the_public_rescue_charges_the_same(attempts: Attempts) -> None:
    await _all(attempts.begin(), list(range(10)), stop_at=4)
    do(attempts.connection, sessions.finish([attempts.owner], "dead"))
    attempts.connection.execute("select sereno.release_lost_jobs()")
    found = row(attempts.connection, attempts.job_id)
    assert (found["state"], found["crashes"], found["releases"]) == ("ready", 0, 1)


async def test_wrong_iterations_are_refused(attempts: Attempts, tmp_path: Path) -> None:
    ctx = attempts.begin()
    with pytest.raises(ConfigurationError, match="commit_every is 0: give 1 or more"):
        ctx.iterate("a", [1], commit_every=0)
    with pytest.raises(ConfigurationError, match="str is no source: give a Keyset, Lines, a list, or a function"):
        ctx.iterate("b", "text")
    with pytest.raises(ConfigurationError, match=r"the query needs `id > %\(cursor\)s`"):
        Keyset("select id from rows")
    wrong: dict[str, Source[Any]] = {
        "a page ends at id 1, where it began": Keyset("select 1 as id where %(cursor)s >= 0"),
        "a row has no id": Keyset("select name from rows where id > %(cursor)s"),
        "yields the cursor None, which means the beginning": lambda _: iter([("item", None)]),
        "cannot be stored": lambda _: iter([("item", object())]),
    }
    for reason, source in wrong.items():
        with pytest.raises((ConfigurationError, InvalidArguments), match=reason):
            _all_sync(Context(attempts.job, attempts.owner, ctx._database), source, every=1)
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\n")
    _all_sync(ctx, Lines(path), every=1, stop_at=1)
    attempts.connection.execute("update sereno.steps set result = result || '{\"cursor\": 100}'")
    with pytest.raises(ConfigurationError, match="is shorter than the 100 bytes that were read before"):
        await _all(attempts.again(), Lines(path))

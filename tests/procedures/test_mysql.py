"""Procedures of a real MariaDB are found, called, stopped and refused."""

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pymysql
import pytest

from sereno import Backoff, Sereno
from sereno.database.driver import adrive
from sereno.errors import ConfigurationError, Refused
from sereno.jobs import operations as jobs
from sereno.jobs.filters import JobFilter
from sereno.procedures.operations import ProcedureOperations, find, list_allowed
from sereno.procedures.procedure import ProcedureName
from sereno.procedures.result import MOST_ROWS
from sereno.procedures.targets import mysql
from tests.facts import auntil, one, state
from tests.procedures.conftest import allow_on, reason, result, run, run_all
from tests.procedures.mariadb import SERVER, MariaDB, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SERVER is None, reason="there is no mariadbd: tools/bring_packages mariadb-server"),
]
ONCE = Backoff(0)
# The tests' own queries use the socket, not the network.
BY_NETWORK = "from information_schema.processlist where command = 'Query' and host not in ('', 'localhost')"


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    with running() as server:
        yield server


class Shop:
    """A database of the test's own, and a user who can call what is in it."""

    def __init__(self, server: MariaDB) -> None:
        self.server = server
        self.name = f"shop_{uuid.uuid4().hex[:8]}"
        self.user = f"'{self.name}'@'%'"
        self.url = f"mysql://{self.name}:p%40ss%3Aword@127.0.0.1:{server.port}/"
        server.do(
            f"create database {self.name} character set utf8mb4",
            f"create user {self.user} identified by 'p@ss:word'",
            f"grant execute on {self.name}.* to {self.user}",
            f"create table {self.name}.ran (day date, n int)",
        )

    def make(self, declared: str) -> None:
        self.server.do(f"use {self.name}", f"create {declared}")

    def ran(self) -> int:
        found: int = self.server.query(f"select count(*) from {self.name}.ran")[0][0]
        return found

    def statements(self) -> int:
        """Return the running statements, of any definer."""
        found: int = self.server.query(f"select count(*) {BY_NETWORK}")[0][0]
        return found

    def sleeping(self) -> int:
        """Return those inside sleep(), not those that are about to call it."""
        found: int = self.server.query(f"select count(*) {BY_NETWORK} and state = 'User sleep'")[0][0]
        return found

    def end_statements(self) -> None:
        """Kill them as root, unless the server has noticed that the client is gone."""
        for (number,) in self.server.query(f"select id {BY_NETWORK}"):
            with suppress(pymysql.err.OperationalError):
                self.server.do(f"kill {number}")


@pytest.fixture
def shop(mariadb: MariaDB) -> Iterator[Shop]:
    made = Shop(mariadb)
    yield made
    mariadb.do(f"drop database {made.name}", f"drop user {made.user}")


@pytest.fixture
def erp(database_url: str, shop: Shop) -> Iterator[Sereno]:
    made = Sereno(database_url, procedure_targets={"erp": shop.url})
    yield made
    made.close()


async def called(erp: Sereno, connection: psycopg.Connection, name: str, params: dict[str, Any], **options: Any) -> int:
    await allow_on(erp, name, target="erp", **options)
    job = erp.procedure(name, target="erp", retry=ONCE).enqueue(**params)
    assert await run(erp, connection, job.id) == "succeeded", reason(connection, job.id)
    return job.id


@pytest.mark.slow
async def test_a_procedure_is_called_and_its_result_stored(
    erp: Sereno, shop: Shop, connection: psycopg.Connection
) -> None:
    shop.make(
        "procedure close_day(in day date, in n int unsigned, inout note varchar(20), out total decimal(10,2)) begin "
        "insert into ran values (day, n); select * from ran; set total = n * 1.5; set note = concat(note, '!'); "
        "signal sqlstate '01000' set message_text = 'mind the gap'; end"
    )
    params = {"day": "2026-11-01", "n": 3, "note": "100% done"}
    job = await called(erp, connection, f"{shop.name}.close_day", params)
    assert result(connection, job) == {
        "rows": [{"note": "100% done!", "total": "4.50"}, {"day": "2026-11-01", "n": 3}],
        "row_count": 2,
        "notices": ["Warning: mind the gap"],
    }
    assert one(connection, "select task from sereno.history") == f"procedure.erp.{shop.name}.close_day"
    (line,) = await erp.database.arun(list_allowed())
    assert (line.allowed.target, line.allowed.signature.definer) == ("erp", "root@localhost")
    assert line.last is not None
    assert line.last.job_id == job


@pytest.mark.slow
async def test_a_function_is_called(erp: Sereno, shop: Shop, connection: psycopg.Connection) -> None:
    shop.make("function twice(n int) returns int deterministic return n * 2")
    job = await called(erp, connection, f"{shop.name}.twice", {"n": 21})
    assert result(connection, job)["rows"] == [{"result": 42}]


async def test_changed_rows_are_counted_and_returned_rows_bounded(
    erp: Sereno, shop: Shop, connection: psycopg.Connection
) -> None:
    shop.make("procedure change_all() begin update ran set n = n + 1; end")
    shop.server.do(f"insert into {shop.name}.ran values ('2026-11-01', 1), ('2026-11-02', 2)")
    job = await called(erp, connection, f"{shop.name}.change_all", {})
    assert result(connection, job) == {"rows": [], "row_count": 2, "notices": []}
    shop.make("procedure many() begin select seq from seq_1_to_5000; end")
    job = await called(erp, connection, f"{shop.name}.many", {})
    found = result(connection, job)
    assert (found["row_count"], len(found["rows"]), found["rows"][0]) == (5000, MOST_ROWS, {"seq": 1})


# Type of the parameter, value of the job, result.
VALUES: tuple[tuple[str, Any, Any], ...] = (
    ("int", "7", 7),
    ("tinyint(1)", True, 1),
    ("bigint unsigned", 2**64 - 1, str(2**64 - 1)),
    ("decimal(10,2)", "12.50", "12.50"),
    ("double", 1.25, 1.25),
    ("varchar(20)", 'it\'s \\ "%" `☃`', 'it\'s \\ "%" `☃`'),
    ("date", "2026-02-28", "2026-02-28"),
    ("datetime", "2026-02-28T03:00:00", "2026-02-28T03:00:00"),
    ("time", "03:00", "3:00:00"),
    ("year", 2026, 2026),
    ("enum('new','old')", "old", "old"),
    ("set('a','b')", "a,b", "a,b"),
    ("text", None, None),
    ("json", {"a": [1, "x"]}, {"a": [1, "x"]}),
)


async def test_json_is_converted_to_the_parameters_type(
    erp: Sereno, shop: Shop, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    jobs = []
    for number, (type_, given, _) in enumerate(VALUES):
        name = f"{shop.name}.echo_{number}"
        shop.make(f"procedure echo_{number}(in x {type_}) begin select x as x; end")
        await allow_on(erp, name, target="erp")
        jobs.append(erp.procedure(name, target="erp", retry=ONCE).enqueue(x=given).id)
    states = await run_all(erp, connection, jobs)
    for (type_, given, expected), job, ended in zip(VALUES, jobs, states, strict=True):
        with subtests.test(type_=type_, given=repr(given)):
            assert ended == "succeeded", reason(connection, job)
            ((found,),) = [row.values() for row in result(connection, job)["rows"]]
            assert (json.loads(found) if type_ == "json" else found) == expected


# Parameters that do not fit, and what the job says.
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"n": 1}, "day (date) is missing"),
    ({"day": "2026-11-01", "n": 1, "x": 1}, "there is no parameter 'x'"),
    ({"day": "2026-13-01", "n": 1}, "is not a date"),
    ({"day": "2026-11-01", "n": "many"}, "is not a int"),
    ({"day": "2026-11-01", "n": 2**31}, "out of range"),
    ({"day": "2026-11-01", "n": 1.5}, "not a whole number"),
    ({"day": "2026-11-01", "n": [1]}, "a list is not a int"),
    ({"day": "2026-11-01'); drop table ran; -- ", "n": 1}, "is not a date"),
)


@pytest.mark.slow
async def test_wrong_parameters_are_refused(
    erp: Sereno, shop: Shop, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    shop.make("procedure book(in day date, in n int) begin insert into ran values (day, n); end")
    name = f"{shop.name}.book"
    await allow_on(erp, name, target="erp")
    task = erp.procedure(name, target="erp")
    jobs = [task.enqueue(**params).id for params, _ in WRONG]
    states = await run_all(erp, connection, jobs)
    for (params, words), job, ended in zip(WRONG, jobs, states, strict=True):
        with subtests.test(params=repr(params)):
            assert ended == "dead"
            assert words in reason(connection, job)
            assert one(connection, "select attempt from sereno.history where id = %s", job) == 1
    assert shop.ran() == 0


async def test_a_changed_or_missing_procedure_is_refused(
    erp: Sereno, shop: Shop, connection: psycopg.Connection
) -> None:
    shop.make("procedure book(in day date) begin insert into ran values (day, 1); end")
    name = f"{shop.name}.book"
    allowed = await allow_on(erp, name, target="erp")
    task = erp.procedure(name, target="erp")
    board = ProcedureOperations(erp.settings, lambda: erp.url)
    assert (await board.check(allowed)).standing == "ok"
    shop.server.do(f"drop procedure {name}")
    shop.make("procedure book(in day datetime) begin insert into ran values (day, 1); end")
    job = task.enqueue(day="2026-11-01")
    assert await run(erp, connection, job.id) == "dead"
    assert "has changed since it was allowed" in reason(connection, job.id)
    assert (await board.check(allowed)).standing == "changed"
    shop.server.do(f"drop procedure {name}")
    job = task.enqueue(day="2026-11-01")
    assert await run(erp, connection, job.id) == "dead"
    assert f"{name} no longer exists" in reason(connection, job.id)
    assert (await board.check(allowed)).standing == "gone"
    assert shop.ran() == 0


async def test_a_function_and_a_procedure_with_one_name_are_distinguished(
    erp: Sereno, shop: Shop, connection: psycopg.Connection
) -> None:
    shop.make("function both_(n int) returns int deterministic return n")
    shop.make("procedure both_(n int) begin select n + 1 as n; end")
    with pytest.raises(Refused, match="--kind"):
        await allow_on(erp, f"{shop.name}.both_", target="erp")
    job = await called(erp, connection, f"{shop.name}.both_", {"n": 1}, kind="procedure")
    assert result(connection, job)["rows"] == [{"n": 2}]


async def test_hostile_names_are_quoted(erp: Sereno, shop: Shop, connection: psycopg.Connection) -> None:
    for place, name in enumerate(("a`; drop table ran; --x", "100% %s", """it's "it\"""", "x.y")):
        quoted = name.replace("`", "``")
        shop.make(f"procedure `{quoted}`(in `{quoted}` varchar(30)) begin select 1 as one; end")
        wanted = str(ProcedureName(shop.name, name))
        await allow_on(erp, wanted, target="erp")
        job = erp.procedure(wanted, target="erp", task=f"odd_{place}").enqueue(**{name: name})
        assert await run(erp, connection, job.id) == "succeeded", reason(connection, job.id)
    assert shop.ran() == 0


@pytest.mark.slow
async def test_names_are_case_sensitive(erp: Sereno, shop: Shop) -> None:
    shop.make("procedure book() begin end")
    with pytest.raises(Refused, match="there is no function or procedure"):
        await allow_on(erp, f"{shop.name}.BOOK", target="erp")
    with pytest.raises(Refused, match="belongs to the database"):
        await allow_on(erp, "mysql.AddGeometryColumn", target="erp")


async def test_the_statement_timeout_applies(
    erp: Sereno, shop: Shop, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends it, not the client, whose timeout is later."""
    monkeypatch.setattr(mysql, "BEHIND", 60.0)
    shop.make("procedure busy() begin declare i bigint default 0; while i < 1e12 do set i = i + 1; end while; end")
    name = f"{shop.name}.busy"
    await allow_on(erp, name, target="erp", timeout="300ms")
    job = erp.procedure(name, target="erp", retry=ONCE).enqueue()
    assert await run(erp, connection, job.id) == "dead"
    assert "max_statement_time exceeded" in reason(connection, job.id)
    await auntil(lambda: shop.statements() == 0)


async def test_the_lock_timeout_applies(erp: Sereno, shop: Shop, connection: psycopg.Connection) -> None:
    shop.make("procedure change_all() begin update ran set n = n + 1; end")
    shop.server.do(f"insert into {shop.name}.ran values ('2026-11-01', 1)")
    name = f"{shop.name}.change_all"
    await allow_on(erp, name, target="erp", lock_timeout="100ms")
    job = erp.procedure(name, target="erp", retry=ONCE).enqueue()
    other = shop.server.root()
    other.begin()
    other.cursor().execute(f"select * from {shop.name}.ran for update")
    assert await run(erp, connection, job.id) == "dead"
    other.close()
    assert "Lock wait timeout exceeded" in reason(connection, job.id)


@pytest.mark.parametrize("rights", ["invoker", "definer"])
async def test_cancelling_the_job_cancels_the_statement(
    erp: Sereno, shop: Shop, connection: psycopg.Connection, rights: str
) -> None:
    """What runs with a definer's privileges can be killed by a login with CONNECTION ADMIN."""
    if rights == "definer":
        shop.server.do(f"grant connection admin on *.* to {shop.user}")
    shop.make(f"procedure sleeps() sql security {rights} begin do sleep(3600); end")
    name = f"{shop.name}.sleeps"
    await allow_on(erp, name, target="erp", timeout="1h")
    job = erp.procedure(name, target="erp").enqueue()
    async with erp.working():
        await auntil(shop.sleeping)
        await adrive(jobs.cancel(JobFilter(ids=[job.id])), erp.database.arun)
        await auntil(lambda: state(connection, job.id) == "cancelled")
    await auntil(lambda: shop.statements() == 0)


async def test_a_statement_that_cannot_be_stopped_is_logged(
    erp: Sereno, shop: Shop, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    shop.make("procedure sleeps() begin do sleep(3600); end")
    name = f"{shop.name}.sleeps"
    await allow_on(erp, name, target="erp", timeout="1h")
    job = erp.procedure(name, target="erp").enqueue()
    try:
        async with erp.working():
            await auntil(shop.sleeping)
            await adrive(jobs.cancel(JobFilter(ids=[job.id])), erp.database.arun)
            await auntil(lambda: state(connection, job.id) == "cancelled")
        assert "still runs in its database" in caplog.text
        assert "CONNECTION ADMIN" in caplog.text
    finally:
        shop.end_statements()
    await auntil(lambda: shop.statements() == 0)


async def test_a_login_with_more_privileges_is_refused(erp: Sereno, shop: Shop, subtests: pytest.Subtests) -> None:
    shop.make("procedure book() begin end")
    for grant, words in (("super", "SUPER"), ("file", "FILE"), ("all privileges", "ALL")):
        with subtests.test(grant=grant):
            shop.server.do(f"grant {grant} on *.* to {shop.user}")
            with pytest.raises(ConfigurationError, match=f"the login has the global privilege {words}"):
                await allow_on(erp, f"{shop.name}.book", target="erp")
            shop.server.do(f"revoke {grant} on *.* from {shop.user}")


async def test_a_procedure_without_privilege_is_not_found(erp: Sereno, shop: Shop) -> None:
    shop.make("procedure book() begin end")
    shop.server.do(f"revoke execute on {shop.name}.* from {shop.user}")
    with pytest.raises(Refused, match="there is no function or procedure"):
        await allow_on(erp, f"{shop.name}.book", target="erp")


async def test_types_without_a_json_equivalent_are_refused(erp: Sereno, shop: Shop) -> None:
    shop.make("procedure draws(in x geometry) begin end")
    with pytest.raises(Refused, match="JSON has no equivalent of the type"):
        await allow_on(erp, f"{shop.name}.draws", target="erp")


async def test_an_unreachable_server_is_retried(
    database_url: str, shop: Shop, erp: Sereno, connection: psycopg.Connection
) -> None:
    shop.make("procedure book() begin end")
    name = f"{shop.name}.book"
    await allow_on(erp, name, target="erp")
    elsewhere = Sereno(database_url, procedure_targets={"erp": shop.url.replace(str(shop.server.port), "1")})
    job = elsewhere.procedure(name, target="erp", retry=Backoff(1, delays=[0], jitter=0)).enqueue()
    assert await run(elsewhere, connection, job.id) == "dead"
    text = reason(connection, job.id)
    assert "cannot connect to MySQL at 127.0.0.1:1" in text
    assert "ss:word" not in text
    assert one(connection, "select failures from sereno.history") == 2
    await elsewhere.aclose()


async def test_an_unknown_target_is_reported_by_name(erp: Sereno) -> None:
    with pytest.raises(ConfigurationError, match="no target 'crm'; use one of here, erp"):
        await allow_on(erp, "shop.book", target="crm")
    with pytest.raises(Refused, match="is not allowed on erp"):
        await erp.database.arun(find("erp", "shop.book"))

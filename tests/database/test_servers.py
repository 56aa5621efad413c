"""Addresses with several servers: how they are read, ordered and printed, and which timeline is refused."""

import asyncio

import psycopg
import pytest

from sereno import DatabaseUnavailable, Sereno
from sereno.database.connect import connect, open_async, open_sync
from sereno.database.servers import ServerList, ports_of, servers_of
from sereno.database.timelines import STANDBY_QUERY, OldPrimary, ServerTimeline, Timelines, ask_timeline
from sereno.settings import Settings

BOTH_FORMS = (
    "postgresql://me:hunter2@a:1,b:2,c:3/shop",
    "host=a,b,c port=1,2,3 user=me password=hunter2 dbname=shop",
)


def test_both_forms_of_an_address_name_the_same_servers(subtests: pytest.Subtests) -> None:
    for url in BOTH_FORMS:
        with subtests.test(url):
            found = [server.parameters for server in ServerList(url).order]
            assert [(each["host"], each["port"]) for each in found] == [("a", "1"), ("b", "2"), ("c", "3")]
            assert {(each["user"], each["dbname"], each["password"]) for each in found} == {("me", "shop", "hunter2")}
            assert {each["target_session_attrs"] for each in found} == {"read-write"}


def test_options_of_the_address_count_more_than_the_defaults_of_several_servers() -> None:
    given = ServerList("host=a,b target_session_attrs=any connect_timeout=9").order[0].parameters
    assert (given["target_session_attrs"], int(given["connect_timeout"])) == ("any", 9)
    assert "target_session_attrs" not in ServerList("host=a").order[0].parameters
    assert [server.parameters.get("port") for server in ServerList("host=a,b port=7").order] == ["7", "7"]


def test_a_list_of_servers_in_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "a,b")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "primary")
    found = [server.parameters for server in ServerList("dbname=shop").order]
    assert [(each["host"], each["target_session_attrs"]) for each in found] == [("a", "primary"), ("b", "primary")]


def test_an_address_with_too_few_ports_is_refused_without_its_password() -> None:
    with pytest.raises(DatabaseUnavailable, match="3 servers, and 2 values of port") as refusal:
        connect("host=a,b,c port=1,2 password=hunter2", Settings(), "test")
    assert "hunter2" not in str(refusal.value)


def test_the_server_of_a_broken_connection_is_tried_last(connection: psycopg.Connection) -> None:
    servers = ServerList("host=a,b,c")
    a, b, c = servers.order
    servers.connected(b, connection)
    assert servers.order == [b, a, c]
    assert "host=b,a,c" in servers.conninfo()
    servers.failed(connection)
    assert servers.order == [a, c, b]


def test_the_error_names_every_server_and_no_password() -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1,127.0.0.1:2/nowhere"
    with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1:1: .*refused.*127\.0\.0\.1:2: .*refused") as refusal:
        connect(url, Settings(), "test")
    assert "hunter2" not in str(refusal.value)


def test_ports_are_read_from_both_forms_of_an_address() -> None:
    assert ports_of("postgresql://a:1,b:6432/shop") == {1, 6432}
    assert ports_of("host=a port=6432") == {6432}
    assert ports_of("postgresql:///shop") == ports_of("no address") == set()


def test_a_role_without_privileges_can_read_the_timeline(connection: psycopg.Connection, database_url: str) -> None:
    connection.execute("create role plain_timeline_reader")
    try:
        connection.execute("set role plain_timeline_reader")
        seen = ask_timeline(connection)
        connection.execute(STANDBY_QUERY.encode())
    finally:
        connection.execute("reset role")
        connection.execute("drop role plain_timeline_reader")
    assert seen is not None
    assert seen.timeline >= 1
    assert not seen.is_standby


def test_a_server_that_does_not_tell_its_timeline_is_used(
    database_url: str, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """As some managed ones: the settings of the connection are made nevertheless."""
    for transaction_pooler in (False, True):
        with subtests.test(transaction_pooler=transaction_pooler):
            settings = Settings(transaction_pooler=transaction_pooler)
            (server,) = servers_of(database_url).order
            monkeypatch.setattr("sereno.database.servers.TIMELINE_QUERY", "select no_such_function()")
            server.tells_timeline = True
            with open_sync(database_url, settings, "test") as connection:
                assert connection.execute("show application_name").fetchone() == ("sereno test",)
                assert connection.execute("show jit").fetchone() == ("off",)
            assert not server.tells_timeline

            async def use(url: str, given: Settings) -> object:
                async with await open_async(url, given, "test") as opened:
                    return await (await opened.execute("show jit")).fetchone()

            server.tells_timeline = True
            assert asyncio.run(use(database_url, settings)) == ("off",)
            assert not server.tells_timeline
            server.tells_timeline = True


def test_a_primary_with_a_lower_timeline_is_refused(database_url: str) -> None:
    known = Timelines()
    with psycopg.connect(database_url) as first, psycopg.connect(database_url) as second:
        known.accept(first, ServerTimeline("one", False, 1), "a")
        known.accept(second, ServerTimeline("one", False, 2), "b")
        # The connection to the older primary is closed, also while it waits.
        with pytest.raises(psycopg.OperationalError):
            first.execute("select 1")
        assert second.execute("select 1").fetchone() == (1,)
        with pytest.raises(OldPrimary, match="its timeline is 1, and a server with timeline 2 was promoted"):
            known.accept(second, ServerTimeline("one", False, 1), "a")
        # A standby may lag behind, and another cluster counts for itself.
        known.accept(second, ServerTimeline("one", True, 1), "c")
        known.accept(second, ServerTimeline("other", False, 1), "a")


def test_a_client_leaves_a_server_that_has_become_read_only(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue()
    with app.database.connection() as own:
        pid = own.info.backend_pid
        own.execute("set default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        work.enqueue()
    work.enqueue()
    with app.database.connection() as own:
        assert own.info.backend_pid != pid


def test_a_write_in_a_read_only_transaction_is_an_error_of_the_statement(app: Sereno) -> None:
    def write() -> None:
        with app.database.connection() as own, own.transaction():
            own.execute("set transaction read only")
            own.execute("delete from sereno.jobs")

    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        write()


def test_a_promoted_copy_under_another_address_is_no_successor(connection: psycopg.Connection) -> None:
    first, second = ServerList("host=a"), ServerList("host=copy")
    first.timelines.accept(connection, ServerTimeline("one", False, 1), "a")
    second.timelines.learn(ServerTimeline("one", False, 2), "copy")
    first.timelines.accept(connection, ServerTimeline("one", False, 1), "a")
    assert connection.execute("select 1").fetchone() == (1,)

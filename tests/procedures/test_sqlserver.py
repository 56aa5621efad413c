"""SQL Server: the statements sent to it, and how its catalogue is read. No server is started here."""

import sys
from typing import Any
from urllib.parse import urlsplit

import pytest

from sereno.errors import ConfigurationError, InvalidArguments
from sereno.procedures.call_sql import sqlserver_call
from sereno.procedures.procedure import Parameter, ProcedureName, ProcedureSignature
from sereno.procedures.result import ProcedureNotices
from sereno.procedures.targets.address import Targets, _for_sqlserver
from sereno.procedures.targets.contract import Timeouts, UnsafeLogin
from sereno.procedures.targets.sqlserver import LOGIN, PARAMETERS, ROUTINES, SqlServerSession, signature_of
from sereno.procedures.values import converted
from sereno.settings import Settings

CLOSE = ProcedureName("dbo", "close_day")
# name, type, max_length, precision, scale, is_output, is_user_defined, is_table_type
LINES: list[tuple[Any, ...]] = [
    ("@day", "date", 3, 10, 0, False, False, False),
    ("@note", "nvarchar", 100, 0, 0, False, False, False),
    ("@all", "varchar", -1, 0, 0, False, False, False),
    ("@rate", "decimal", 9, 10, 2, False, False, False),
    ("@at", "datetime2", 7, 23, 3, False, False, False),
    ("@total", "int", 4, 10, 0, True, False, False),
]


def test_the_catalogue_is_read() -> None:
    found = signature_of(CLOSE, (1, "P", None, None, 1), LINES)
    assert str(found) == (
        'procedure dbo.close_day(day date, note nvarchar(50), "all" varchar(max), rate decimal(10,2), '
        "at datetime2(3), inout total int)"
    ).replace('"all"', "all")
    assert found.unfit is None
    as_owner = signature_of(CLOSE, (1, "P", -2, None, 1), [])
    assert as_owner.definer == "its owner"
    assert signature_of(CLOSE, (1, "P", 5, "reports", 1), []).definer == "reports"


def test_functions_have_their_return_type() -> None:
    scalar = [("", "int", 4, 10, 0, True, False, False), *LINES[:1]]
    found = signature_of(CLOSE, (1, "FN", None, None, 1), scalar)
    assert (found.kind, found.returns, found.returns_set, len(found.parameters)) == ("function", "int", False, 1)
    table = signature_of(CLOSE, (1, "IF", None, None, 1), LINES[:1])
    assert (table.kind, table.returns, table.returns_set) == ("function", "table", True)


def test_types_without_a_json_equivalent_are_refused() -> None:
    for line in (
        ("@x", "varbinary", -1, 0, 0, False, False, False),
        ("@x", "rows_of_mine", -1, 0, 0, False, True, True),
        ("@x", "geography", -1, 0, 0, False, False, False),
    ):
        assert "JSON has no equivalent of the type" in str(signature_of(CLOSE, (1, "P", None, None, 1), [line]).unfit)


def test_a_procedure_is_called_with_named_parameters() -> None:
    signature = signature_of(CLOSE, (1, "P", None, None, 1), [LINES[0], LINES[5]])
    call = sqlserver_call(signature, {"day": "2026-11-01"})
    assert call.text == (
        "declare @sereno_1 int = ?;\n"
        "exec [dbo].[close_day] @day = ?, @total = @sereno_1 output;\n"
        "select @sereno_1 as [total]"
    )
    assert call.values == [None, "2026-11-01"]
    assert sqlserver_call(ProcedureSignature("procedure", "dbo", "x"), {}).text == "exec [dbo].[x]"


def test_functions_are_selected() -> None:
    parameters = (Parameter("a", "int"), Parameter("b", "int"))
    scalar = ProcedureSignature("function", "dbo", "f", parameters, "int")
    assert sqlserver_call(scalar, {"a": 1, "b": 2})[1:3] == ("select [dbo].[f](?, ?) as result", [1, 2])
    table = ProcedureSignature("function", "dbo", "f", parameters, "table", returns_set=True)
    assert sqlserver_call(table, {"a": 1, "b": 2}).text == "select * from [dbo].[f](?, ?)"


def test_hostile_names_are_quoted(subtests: pytest.Subtests) -> None:
    for name in ("x]; drop table t; --", "x'", "100% ?", "]]", "a.b", "名前"):
        with subtests.test(name=name):
            text = sqlserver_call(ProcedureSignature("procedure", name, name), {}).text
            inside = name.replace("]", "]]")
            assert text == f"exec [{inside}].[{inside}]"


def test_a_parameter_whose_name_cannot_be_quoted_is_not_sent() -> None:
    with pytest.raises(ValueError, match="drop"):
        sqlserver_call(
            ProcedureSignature("procedure", "dbo", "x", (Parameter("a = 1; drop", "int"),)), {"a = 1; drop": 1}
        )


def test_a_tinyint_is_unsigned() -> None:
    signature = ProcedureSignature("procedure", "dbo", "x", (Parameter("n", "tinyint"),))
    assert converted(signature, {"n": 255}, unsigned_bytes=True) == {"n": 255}
    with pytest.raises(InvalidArguments, match="0 to 255"):
        converted(signature, {"n": -1}, unsigned_bytes=True)


def test_addresses_become_connection_strings() -> None:
    def made(url: str) -> str:
        parts = urlsplit(url)
        return _for_sqlserver("erp", parts, parts.port)

    assert made("sqlserver://sa:p%3Bw%7D@db.example.com:1433/shop") == (
        "Server=db.example.com,1433;Database=shop;UID=sa;PWD={p;w}}};Encrypt=yes"
    )
    assert made("mssql://db?trust_server_certificate=yes") == "Server=db;Encrypt=yes;TrustServerCertificate=yes"
    with pytest.raises(ConfigurationError, match="'UID'"):
        made("sqlserver://db?UID=sa")


async def test_a_missing_driver_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mssql_python", None)
    targets = Targets(Settings(procedure_targets={"erp": "sqlserver://u:p@db/shop"}), lambda: "")
    with pytest.raises(ConfigurationError, match=r"sereno\[sqlserver\]"):
        async with targets.find("erp").open():
            pass


class Cursor:
    """Like the driver's, with scripted results; it proves nothing about the server itself."""

    def __init__(self, script: list[Any], sent: list[tuple[str, list[Any]]]) -> None:
        self._script = script
        self._sent = sent
        self._sets: list[tuple[list[str] | None, list[Any], int, list[Any]]] = []

    def execute(self, text: str, values: list[Any]) -> None:
        self._sent.append((text, values))
        self._sets = list(self._script.pop(0))
        self._show()

    def _show(self) -> None:
        names, self._rows, self.rowcount, self.messages = self._sets.pop(0)
        self.description = None if names is None else [(name,) for name in names]

    def nextset(self) -> bool:
        if not self._sets:
            return False
        self._show()
        return True

    def __iter__(self) -> Any:
        return iter(self._rows)

    def fetchall(self) -> list[Any]:
        return self._rows

    def close(self) -> None: ...


class Connection:
    """The part of a connection that the session uses."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.sent: list[tuple[str, list[Any]]] = []
        self.timeout = 0

    def cursor(self) -> Cursor:
        return Cursor(self.script, self.sent)


async def test_results_messages_and_outputs_are_read() -> None:
    nothing: list[Any] = [(None, [], -1, [])]
    results = [
        (None, [], 3, [("[01000] (0)", "[Microsoft][ODBC Driver 18 for SQL Server][SQL Server]closing")]),
        (["day", "n"], [("2026-11-01", 1), ("2026-11-02", 2)], -1, []),
        (["total"], [(7,)], -1, []),
    ]
    connection = Connection(nothing, results)
    session = SqlServerSession(connection)
    signature = signature_of(CLOSE, (1, "P", None, None, 1), [LINES[0], LINES[5]])
    found = await session.call(signature, {"day": "2026-11-01"}, Timeouts(2.5, 0.5), ProcedureNotices())
    assert connection.timeout == 3
    assert connection.sent[0] == ("set lock_timeout 500", [])
    assert found.rows == [{"day": "2026-11-01", "n": 1}, {"day": "2026-11-02", "n": 2}, {"total": 7}]
    assert found.row_count == 3
    assert list(map(str, found.notices)) == ["NOTICE: closing"]


async def test_the_catalogue_is_queried_with_parameters() -> None:
    connection = Connection([(["a"] * 5, [(99, "P", None, None, 1)], -1, [])], [(["a"] * 8, LINES[:1], -1, [])])
    (found,) = await SqlServerSession(connection).resolve(CLOSE)
    assert connection.sent == [(ROUTINES, ["dbo", "close_day"]), (PARAMETERS, [99])]
    assert str(found) == "procedure dbo.close_day(day date)"


async def test_a_login_with_more_privileges_is_refused() -> None:
    harmless = Connection([(["a"] * 4, [("caller", 0, 0, 0)], -1, [])])
    await SqlServerSession(harmless).check_login()
    assert harmless.sent == [(LOGIN, [])]
    powerful = Connection([(["a"] * 4, [("sa", 1, 1, 0)], -1, [])])
    with pytest.raises(UnsafeLogin, match="'sa' is a member of sysadmin"):
        await SqlServerSession(powerful).check_login()

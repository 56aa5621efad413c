"""The T-SQL of examples/triggers: parsed by two parsers, linted, and consistent in itself. No SQL Server has run it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlfluff
import sqlglot
from sqlglot import exp

HERE = Path(__file__).parents[2] / "examples" / "triggers" / "sqlserver"
FILES = sorted(HERE.glob("*.sql"))
# Statements that sqlglot reads only as a whole; sqlfluff parses them.
AS_A_WHOLE = r"GRANT EXECUTE ON OBJECT::triggers\.usp_\w+ TO trigger_worker|IF DATABASE_PRINCIPAL_ID"
OBJECTS = {
    "triggers.AllowedProcedures",
    "triggers.EventTriggers",
    "triggers.EventTriggerRuns",
    "triggers.fn_NextInterval",
    "triggers.usp_ClaimDueTriggers",
    "triggers.usp_RenewTriggerLease",
    "triggers.usp_ReportTriggerRunResult",
    "triggers.usp_SetNextRunAt",
    "triggers.usp_AllowProcedure",
    "triggers.usp_RevokeProcedure",
}
# What the aliases of the procedures stand for.
ALIASES = {
    "t": "EventTriggers",
    "other": "EventTriggers",
    "inserted": "EventTriggers",
    "deleted": "EventTriggers",
    "r": "EventTriggerRuns",
    "a": "AllowedProcedures",
    "c": "Claimed",
    "l": "Lost",
}


def batches(file: Path) -> Iterator[str]:
    """Return what is between two lines GO, as the client sends it."""
    return filter(str.strip, re.split(r"(?m)^GO$", file.read_text()))


def statements() -> Iterator[exp.Expr]:
    """Return the statements of all files as trees."""
    for file in FILES:
        for batch in batches(file):
            for tree in sqlglot.parse(batch, read="tsql", error_level=sqlglot.ErrorLevel.RAISE):
                if tree is not None:
                    yield tree


@pytest.mark.slow
def test_the_files_are_parsed_and_linted(subtests: pytest.Subtests) -> None:
    assert len(FILES) == 3
    for file in FILES:
        with subtests.test(file.name):
            found = sqlfluff.lint(file.read_text(), config_path=str(HERE / ".sqlfluff"))
            assert [(each["start_line_no"], each["code"], each["description"]) for each in found] == []


def test_every_statement_is_understood_and_every_object_is_created(caplog: pytest.LogCaptureFixture) -> None:
    trees = list(statements())
    created = {
        tree.find(exp.Table).sql("tsql")  # type: ignore[union-attr]  # a CREATE names something
        for each in trees
        for tree in each.find_all(exp.Create)
        if tree.kind in ("TABLE", "PROCEDURE", "FUNCTION")
    }
    assert created == OBJECTS
    left = [each.sql("tsql") for each in trees if each.find(exp.Command)]
    assert [text for text in left if not re.match(AS_A_WHOLE, text)] == []
    assert [record.message for record in caplog.records if not re.match(rf"'({AS_A_WHOLE})", record.message)] == []


def test_the_procedures_name_columns_that_exist() -> None:
    columns: dict[str, set[str]] = {}
    trees = list(statements())
    for tree in trees:
        for table in tree.find_all(exp.Create, exp.DeclareItem):
            named = table.this[0] if isinstance(table, exp.DeclareItem) else table.find(exp.Table)
            name = named.name  # type: ignore[union-attr]  # a CREATE names something
            columns.setdefault(name, set()).update(each.name for each in table.find_all(exp.ColumnDef))
    used = [found for tree in trees for found in tree.find_all(exp.Column) if found.table in ALIASES]
    assert len(used) > 80
    assert [str(each) for each in used if each.name not in columns[ALIASES[each.table]]] == []


def test_the_claim_is_atomic_and_asks_for_what_the_original_design_asks() -> None:
    """The hints, the conditions and the columns that a worker gets."""
    text = (HERE / "2_procedures.sql").read_text()
    claim = next(batch for batch in batches(HERE / "2_procedures.sql") if "usp_ClaimDueTriggers" in batch)
    assert claim.count("WITH (UPDLOCK, READPAST, ROWLOCK)") == 2
    for wanted in ("@NowUtc", "@WorkerId", "@MaxToClaim", "t.IsEnabled = 1", "t.NextRunAtUtc <= @NowUtc", "OUTPUT"):
        assert wanted in claim
    assert "OBJECT_ID(QUOTENAME(t.ProcedureSchema) + N'.' + QUOTENAME(t.ProcedureName), N'P') IS NOT NULL" in claim
    # No statement is put together from a name, except the grants of the operator's procedures.
    assert "sp_executesql" not in text
    assert (HERE / "3_security.sql").read_text().count("QUOTENAME(@SchemaName) + N'.' + QUOTENAME(@ProcedureName)") == 2

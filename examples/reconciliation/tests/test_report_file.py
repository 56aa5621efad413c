"""The reading of untrusted files: what is accepted, and what is refused."""

from datetime import date
from decimal import Decimal

import pytest
from reconciliation.errors import BadReport
from reconciliation.report_file import NO_ENTRIES, Entry, read
from reconciliation.stand_in_files import HEADER, report

GOOD = dict(
    zip(HEADER.split(";"), report("m-1", "2026-10")[0].split(";"), strict=True),
)


def text(encoding: str = "utf-8", **changed: str) -> bytes:
    """Return a file of one line."""
    return f"{HEADER}\n{';'.join((GOOD | changed).values())}\n".encode(encoding)


def test_a_line_is_read() -> None:
    order = GOOD["pedido_associado_ifood"]
    entry = Entry(order, date(2026, 10, 1), "Venda", "Entrada Financeira", Decimal("50.00"), counts=True)
    assert read(text(), "2026-10", "m-1") == [entry]
    assert len(read(NO_ENTRIES, "2026-10", "m-1")) == 0


def test_variants_of_the_partner_are_accepted(subtests: pytest.Subtests) -> None:
    for name, content, amount in (
        ("a comma", text(valor="1234,56"), "1234.56"),
        ("thousands", text(valor="-1.234,56"), "-1234.56"),
        ("thousands with a point", text(valor="1,234.56"), "1234.56"),
        ("a byte order mark", b"\xef\xbb\xbf" + text(), "50.00"),
        ("Windows-1252", text("cp1252", descricao_lancamento="Promoção"), "50.00"),
        ("a date as month", text(competencia="2026-10-01"), "50.00"),
        ("no order", text(pedido_associado_ifood="", data_criacao_pedido_associado=""), "50.00"),
        ("quotes", text(descricao_lancamento='"Taxa; dois"'), "50.00"),
    ):
        with subtests.test(name=name):
            (entry,) = read(content, "2026-10", "m-1")
            assert entry.amount == Decimal(amount)
    (entry,) = read(text(impacto_no_repasse="NÃO"), "2026-10", "m-1")
    assert not entry.counts


def test_invalid_files_are_refused(subtests: pytest.Subtests) -> None:
    for name, content, message in (
        ("nothing", b"", "columns are missing"),
        ("bytes", bytes(range(256)), "columns are missing"),
        ("another month", text(competencia="2026-09"), "and 2026-10 was requested"),
        ("another merchant", text(loja_id="m-2"), "the merchant 'm-2'"),
        ("not a number", text(valor="NaN"), "line 2: not readable"),
        ("no number", text(valor=""), "line 2: not readable"),
        ("too large", text(valor="1e30"), "line 2: not readable"),
        ("no date", text(data_criacao_pedido_associado="soon"), "line 2: not readable"),
        ("a NUL", text(fato_gerador="a\0b"), "not readable"),
        ("a long text", text(fato_gerador="a" * 1000), "line 2: not readable"),
        ("a short line", f"{HEADER}\n2026-10;a\n".encode(), "line 2: not readable"),
        ("an open quote", text(descricao_lancamento='"open'), "not readable"),
    ):
        with subtests.test(name=name), pytest.raises(BadReport, match=message):
            read(content, "2026-10", "m-1")
